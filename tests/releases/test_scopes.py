"""An edit that stands on a name which nothing binds: no anchor is missed and the file compiles, yet it would crash."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sglang_eagle3_patch.contract.paths import PATCHES_VARIABLE, patches_root
from sglang_eagle3_patch.installer.plan import make_plan
from sglang_eagle3_patch.installer.refusal import Refusal
from sglang_eagle3_patch.installer.scopes import unbound
from sglang_eagle3_patch.installer.tree import open_tree
from tests.trees import unpacked

EDIT = """
[[edit]]
id = "reserve-allocate"
file = "srt/speculative/eagle_utils.py"
target = "eagle_prepare_for_decode"
anchor = "double_alloc = get_alloc_reserve_per_decode()"
action = "insert_after"
code = "double_alloc = max(double_alloc, bs)"
why = "why"
upstream = "upstream"
retire_when = "later"
"""
SOURCE = b"""\
import torch
LIMIT = 4
def total():
    global count
    count = 1
class Pool:
    size: int = 2
    def reserve(self, batch):
        width = LIMIT * self.size
        return [width + count + len(b) for b in batch if torch.is_tensor(b)] + [lambda x: x + width]
"""


def test_bound_names_of_every_kind() -> None:
    assert unbound(SOURCE, "pool.py") == set()


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("width = bs", "Pool.reserve: bs"),
        ("batch = [bs for _ in batch]", "Pool.reserve: bs"),
        ("batch = size", "Pool.reserve: size"),  # a class's names are not seen by its methods
    ],
)
def test_an_unbound_name_is_named(code: str, found: str) -> None:
    edited = SOURCE.replace(b"width = LIMIT * self.size", f"width = LIMIT * self.size; {code}".encode())
    assert unbound(edited, "pool.py") == {found}


def test_an_edit_with_one_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """0.5.21 has a local there that 0.5.22 lacks; the anchor is in both."""
    folder = tmp_path / "patches/v0.5.22"
    shutil.copytree(patches_root(), tmp_path / "patches")
    with (folder / "series.toml").open("a") as series:
        series.write(EDIT)
    monkeypatch.setenv(PATCHES_VARIABLE, str(tmp_path / "patches"))
    tree = open_tree(unpacked("0.5.22"))
    with pytest.raises(Refusal, match=r"edits in srt/speculative/eagle_utils.py.*unbound eagle_prepare_for_decode: bs"):
        make_plan(tree, {}).demand()
