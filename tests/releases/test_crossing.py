"""The gate on a release of each shape; 0.5.9 and 0.5.20 have tests of their own in tests/e2e.

``SGLANG_EAGLE3_RELEASES`` names others, or ``all`` of them. ``scripts/check_releases.py --end-to-end`` runs and records
every release.
"""

from __future__ import annotations

import os

import pytest

from sglang_eagle3_patch.contract.paths import releases
from tests.releases.crossing import cross

pytestmark = pytest.mark.e2e
chosen = os.environ.get("SGLANG_EAGLE3_RELEASES", "0.5.16 0.5.18 0.5.22 0.5.23")


@pytest.mark.parametrize("release", releases() if chosen == "all" else chosen.split())
def test_output_equals_no_speculation_across_the_threshold(release: str) -> None:
    assert cross(release)
