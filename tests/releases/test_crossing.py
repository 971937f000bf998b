"""The gate on a release of each shape; 0.5.9 and 0.5.20 have tests of their own in tests/e2e.

``scripts/check_releases.py --end-to-end`` runs and records every release.
"""

from __future__ import annotations

import pytest

from tests.releases.chosen import chosen
from tests.releases.crossing import cross

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("release", chosen("0.5.16 0.5.18 0.5.22 0.5.23"))
def test_output_equals_no_speculation_across_the_threshold(release: str) -> None:
    assert cross(release)
