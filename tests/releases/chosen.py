"""Which releases the tests run."""

from __future__ import annotations

import os

from sglang_eagle3_patch.contract.paths import releases


def chosen(default: str) -> list[str]:
    """``default``, unless ``SGLANG_EAGLE3_RELEASES`` names others, or ``all`` of them."""
    asked = os.environ.get("SGLANG_EAGLE3_RELEASES", default)
    return releases() if asked == "all" else asked.split()
