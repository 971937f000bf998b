"""SGLang's own graph runners, and ours over them, on a release of each shape; tests/e2e/test_graphs.py has 0.5.20."""

from __future__ import annotations

import pytest

from tests.releases.chosen import chosen
from tests.releases.crossing import cross_with_graphs

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("release", chosen("0.5.9 0.5.11 0.5.12 0.5.13 0.5.14 0.5.16 0.5.18 0.5.23"))
def test_output_and_acceptance_are_right_with_graphs(release: str) -> None:
    assert cross_with_graphs(release)
