"""The gate without graphs; every shape has a run with graphs beside this (test_graph_crossing.py).

``scripts/check_releases.py --end-to-end`` runs and records every release.
"""

from __future__ import annotations

import pytest

from tests.releases.chosen import chosen
from tests.releases.crossing import cross

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("release", chosen("0.5.16 0.5.22"))
def test_output_equals_no_speculation_across_the_threshold(release: str) -> None:
    assert cross(release)
