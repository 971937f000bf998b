"""For trees of any content: apply and revert restore every byte, mode and time."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_eagle3_patch.installer import transaction
from sglang_eagle3_patch.installer.tree import open_tree
from tests.installer.conftest import Toy, snapshot

text = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\x0c\x00"), max_size=20)
files = st.lists(
    st.tuples(st.lists(text, max_size=3), st.sampled_from(["\n", "\r\n"]), st.booleans(), st.integers(0o400, 0o777)),
    min_size=1,
    max_size=3,
)


@settings(max_examples=60, deadline=None)
@given(files, st.integers(0, 2**33))
def test_round_trip(made: list[tuple[list[str], str, bool, int]], mtime: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        toy = Toy(Path(folder) / "site-packages", Path(folder) / "patches", names=[])
        patch.setenv("SGLANG_EAGLE3_PATCHES", str(toy.patches))
        (toy.package / "srt").mkdir(parents=True)
        (toy.package / "__init__.py").touch()
        toy.set_release("1.0.0")
        toy.edits = []
        for number, (comments, newline, final, mode) in enumerate(made):
            lines = [*(f"# {comment}" for comment in comments), "anchor()"]
            file = toy.package / f"srt/f{number}.py"
            file.write_bytes((newline.join(lines) + (newline if final else "")).encode())
            file.chmod(mode | 0o400)
            os.utime(file, (mtime, mtime))
            edit = {"id": f"e{number}", "file": f"srt/f{number}.py", "target": "", "anchor": "anchor()"}
            toy.edits.append(edit | {"action": "insert_after", "code": "anchor(2)"})
        toy.write_series()
        before = snapshot(toy.site)
        written, _ = transaction.apply(open_tree(toy.site))
        assert written
        after = snapshot(toy.site)
        for number in range(len(made)):
            name = f"sglang/srt/f{number}.py"
            assert b"anchor(2)" in after[name][0]
            assert after[name][1] == before[name][1]
            assert after[name][2] // 10**9 != before[name][2] // 10**9  # else old bytecode would run
        transaction.revert(open_tree(toy.site))
        assert snapshot(toy.site) == before
