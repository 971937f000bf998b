"""Apply and revert on a tree of each form: what changes, what does not, and that every byte comes back."""

from __future__ import annotations

import os
import py_compile
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.installer.conftest import EDITS, Toy, run

PATCHED = {edit["file"] for edit in EDITS}


def test_round_trip(toy: Toy) -> None:
    (toy.package / "srt/worker.py").chmod(0o755)
    before = toy.snapshot()
    applied = toy.run("apply")
    assert applied.code == 0, applied.err
    changed = {name for name, entry in toy.snapshot().items() if before.get(name) != entry}
    assert {name for name in changed if name.endswith(".py")} == {f"sglang/{file}" for file in PATCHED}
    assert (toy.package / "srt/worker.py").stat().st_mode & 0o777 == 0o755
    assert toy.run("status").out.startswith("applied: SGLang 1.0.0")
    assert toy.run("diff").code == 0
    reverted = toy.run("revert")
    assert reverted.code == 0
    assert reverted.out.startswith("reverted 3 files")
    assert toy.snapshot() == before


def test_patched_text(toy: Toy) -> None:
    toy.run("apply")
    assert (toy.package / "srt/options.py").read_bytes() == (
        b"class Options:\r\n    size: int = 4\r\n    # sglang-eagle3-patch: option\r\n    threshold: int = 0\r\n\r\n"
        b"    def check(self):\r\n        return self.size > 0"
    )
    worker = (toy.package / "srt/worker.py").read_text()
    assert "import os\n# sglang-eagle3-patch: import-hook\nfrom hooks import hook\n" in worker
    marked = "        # sglang-eagle3-patch: step\n        batch = hook(batch)\n"
    assert f"{marked}        # decide\n        if batch:" in worker
    marked = "# sglang-eagle3-patch: values\nVALUES = [1, 2, 3]\n"
    assert (toy.package / "srt/nested/values.py").read_text() == marked


def test_second_apply_changes_nothing(toy: Toy) -> None:
    toy.run("apply")
    once = toy.snapshot()
    again = toy.run("apply")
    assert again.code == 0
    assert again.out.startswith("already applied")
    assert toy.snapshot() == once
    assert toy.run("apply", "--json").document["changed"] is False


def test_revert_of_a_clean_tree(toy: Toy) -> None:
    before = toy.snapshot()
    reverted = toy.run("revert")
    assert reverted.code == 0
    assert reverted.out.startswith("not patched")
    assert toy.snapshot() == before


@pytest.mark.parametrize("form", ["checkout", "site-packages", "package"])
def test_forms_of_a_tree(toy: Toy, tmp_path: Path, form: str) -> None:
    tree = toy.site
    if form == "package":
        tree = toy.package
    elif form == "checkout":
        tree = tmp_path / "checkout"
        shutil.copytree(toy.site, tree / "python")
        (tree / "python" / "pyproject.toml").write_text("")
    prefix = "a/python/sglang/" if form == "checkout" else "a/sglang/"
    assert f"--- {prefix}srt/worker.py" in toy.run("diff", tree=tree).out
    assert toy.run("apply", tree=tree).code == 0
    assert toy.run("status", "--json", tree=tree).document["state"] == "applied"
    assert toy.run("revert", tree=tree).code == 0


def test_importable_tree(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(toy.site))
    status = run("status", "--json")
    assert status.document["tree"] == str(toy.package.resolve())
    assert "sglang" not in sys.modules


def test_hard_linked_cache_is_left_alone(toy: Toy, tmp_path: Path) -> None:
    cached = tmp_path / "cached_worker.py"
    os.link(toy.package / "srt/worker.py", cached)
    before = cached.read_bytes()
    toy.run("apply")
    assert cached.read_bytes() == before


@pytest.mark.parametrize("patched", [False, True])
def test_git_takes_the_diff(toy: Toy, tmp_path: Path, patched: bool) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(toy.site, copy)
    if patched:
        toy.run("apply")
    diff = toy.run("diff")
    (tmp_path / "series.diff").write_text(toy.run("diff", "--json").document["diff"], newline="")
    assert diff.code == 0
    subprocess.run(["git", "apply", str(tmp_path / "series.diff")], cwd=copy, check=True)
    toy.run("apply")
    for file in PATCHED:
        assert (copy / "sglang" / file).read_bytes() == (toy.package / file).read_bytes()


def test_old_bytecode_never_runs(toy: Toy) -> None:
    """A file of equal size and time would be taken for the one that its bytecode was compiled from."""
    source = toy.package / "srt/nested/values.py"
    toy.edits = [edit | {"code": "[1, 3]"} for edit in toy.edits if edit["id"] == "values"]
    toy.write_series()
    source.write_text("# 28 characters, as our mark\nVALUES = [1, 2]\n")

    def imported() -> str:
        code = "import importlib.util as u, sys; s = u.spec_from_file_location('v', sys.argv[1]); "
        code += "m = u.module_from_spec(s); s.loader.exec_module(m); print(m.VALUES)"
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        done = subprocess.run(
            [sys.executable, "-c", code, str(source)], capture_output=True, text=True, env=environment
        )
        return done.stdout.strip()

    py_compile.compile(str(source))
    toy.run("apply")
    assert imported() == "[1, 3]"
    toy.run("revert")
    assert imported() == "[1, 2]"


def test_unchecked_bytecode_is_warned_about(toy: Toy) -> None:
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compiled = py_compile.compile(str(toy.package / "srt/worker.py"), invalidation_mode=mode)
    assert f"{compiled} hides the patched source" in toy.run("apply").err


def test_warns_where_the_server_could_not_import_us(toy: Toy) -> None:
    assert toy.run("apply").err == ""
    toy.run("revert")
    (toy.site / "sglang_eagle3_patch").rmdir()
    applied = toy.run("apply", "--json")
    assert applied.code == 0
    assert "pip install sglang-eagle3-patch" in applied.document["warnings"][0]


def test_record_stays(toy: Toy) -> None:
    info = toy.site / "sglang-1.0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 1.0.0\n")
    (info / "RECORD").write_text("sglang/__init__.py,,\n")
    before = (info / "RECORD").read_bytes()
    assert toy.run("apply").code == 0
    assert (info / "RECORD").read_bytes() == before
