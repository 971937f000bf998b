"""Every refusal: one clear line, exit status 2, and a tree that is as it was."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from sglang_eagle3_patch.installer import transaction
from sglang_eagle3_patch.installer.refusal import Refusal
from sglang_eagle3_patch.installer.transaction import LOCK
from sglang_eagle3_patch.installer.tree import open_tree
from tests.installer.conftest import Toy, in_child, run

NOBODY = 65534


def unknown_release(toy: Toy) -> str:
    toy.set_release("9.9.9")
    return "SGLang 9.9.9 has no patch series (there are: 1.0.0)"


def no_version(toy: Toy) -> str:
    (toy.package / "_version.py").unlink()
    return "can't tell the release"


def placeholder_version(toy: Toy) -> str:
    toy.set_release("0.0.0.dev0")
    return "SGLang 0.0.0.dev0 has no patch series"


def versions_that_disagree(toy: Toy) -> str:
    info = toy.site / "sglang-2.0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: sglang\nVersion: 2.0.0\n")
    return "can't tell the release"


def anchor_gone(toy: Toy) -> str:
    file = toy.package / "srt/worker.py"
    file.write_text(file.read_text().replace("if batch:", "if batches:"))
    return (
        "edit step in srt/worker.py:Worker.step: expected `if batch:` once, found gone: no match (nearest: if batches:)"
    )


def anchor_twice(toy: Toy) -> str:
    file = toy.package / "srt/worker.py"
    file.write_text(file.read_text() + "        if  batch : pass  # again\n")
    return "edit step in srt/worker.py:Worker.step: expected `if batch:` once, found 2 matches"


def target_gone(toy: Toy) -> str:
    file = toy.package / "srt/options.py"
    file.write_text("class Option:\n    size: int = 4\n")
    return (
        "edit option in srt/options.py:Options: expected `size: int = 4` once, found gone: no Options (nearest: Option)"
    )


def contract_broken(toy: Toy) -> str:
    file = toy.package / "srt/worker.py"
    file.write_text(
        file.read_text().replace("def step(self, batch, on_publish=None)", "def step(self, batch, publish)")
    )
    return "Worker.step: expected (self, batch, on_publish=None) to override, found (self, batch, publish)"


def file_missing(toy: Toy) -> str:
    (toy.package / "srt/options.py").unlink()
    return "srt/options.py is missing"


def not_python(toy: Toy) -> str:
    (toy.package / "srt/options.py").write_text("class Options(:\n")
    return "srt/options.py can't be read as Python"


def path_leaves_the_tree(toy: Toy) -> str:
    toy.edits[0]["file"] = "../hooks.py"
    toy.write_series()
    return "../hooks.py is not a Python file inside the sglang package folder"


def link_leaves_the_tree(toy: Toy) -> str:
    file = toy.package / "srt/options.py"
    outside = toy.site.parent / "options.py"
    file.rename(outside)
    file.symlink_to(outside)
    return "srt/options.py leads out of"


def linked_folder_leaves_the_tree(toy: Toy) -> str:
    folder = toy.package / "srt/nested"
    outside = toy.site.parent / "nested"
    folder.rename(outside)
    folder.symlink_to(outside)
    return "srt/nested/values.py leads out of"


def code_that_does_not_compile(toy: Toy) -> str:
    toy.edits[0]["code"] = "return"
    toy.edits[0]["target"] = ""
    toy.edits[0]["anchor"] = "import os"
    toy.write_series()
    return "srt/worker.py does not compile after the edits"


def two_edits_replace_one_place(toy: Toy) -> str:
    toy.edits.append(toy.edits[3] | {"id": "values-again"})
    toy.write_series()
    return "edits values, values-again of srt/nested/values.py replace the same code"


def no_sglang(toy: Toy) -> str:
    shutil.rmtree(toy.package)
    return "no SGLang in"


def damaged_manifest(toy: Toy) -> str:
    (toy.package / ".sglang_eagle3_patch").mkdir()
    (toy.package / ".sglang_eagle3_patch" / "manifest.json").write_text("{}")
    return "manifest.json is damaged"


REASONS: list[Callable[[Toy], str]] = [
    unknown_release, no_version, placeholder_version, versions_that_disagree, anchor_gone, anchor_twice, target_gone,
    contract_broken, file_missing, not_python, path_leaves_the_tree, link_leaves_the_tree,
    linked_folder_leaves_the_tree, code_that_does_not_compile, two_edits_replace_one_place, no_sglang, damaged_manifest,
]  # fmt: skip


@pytest.mark.parametrize("prepare", REASONS, ids=lambda prepare: prepare.__name__)
def test_apply_refuses(toy: Toy, prepare: Callable[[Toy], str]) -> None:
    sentence = prepare(toy)
    before = toy.snapshot()
    applied = toy.run("apply")
    assert applied.code == 2
    assert sentence in applied.err
    assert applied.err.startswith("refused: ")
    assert applied.err.count("\n") == 1
    document = toy.run("apply", "--json")
    assert document.code == 2
    assert document.document["ok"] is False
    assert sentence in document.document["error"]
    assert toy.snapshot() == before


@pytest.mark.parametrize("command", ["check", "diff"])
def test_every_mismatch_is_named_at_once(toy: Toy, command: str) -> None:
    sentences = [contract_broken(toy), anchor_twice(toy), target_gone(toy)]
    refused = toy.run(command, "--json")
    assert refused.code == 2
    for sentence in sentences:
        assert any(sentence in reason for reason in refused.document["reasons"])


@pytest.mark.parametrize("command", ["apply", "revert", "status", "diff", "check", "port"])
def test_no_sglang_for_any_command(toy: Toy, tmp_path: Path, command: str) -> None:
    refused = run(command, str(tmp_path / "nothing"))
    assert refused.code == 2
    assert "no SGLang in" in refused.err


@pytest.mark.parametrize("command", ["apply", "revert"])
def test_edited_since(toy: Toy, command: str) -> None:
    toy.run("apply")
    file = toy.package / "srt/worker.py"
    file.write_text(file.read_text() + "# mine\n")
    before = toy.snapshot()
    refused = toy.run(command)
    assert refused.code == 2
    assert "edited since the patch was applied: srt/worker.py in" in refused.err
    assert "options.py" not in refused.err
    assert toy.snapshot() == before
    assert toy.run("status", "--json").document["files"]["srt/worker.py"] == "edited"


def test_replaced_by_another_sglang_since(toy: Toy) -> None:
    toy.run("apply")
    (toy.package / "srt/worker.py").write_text("class Worker: pass\n")
    toy.set_release("2.0.0")
    assert "SGLang 1.0.0 was patched here and replaced by 2.0.0 since: delete" in toy.run("apply").err


def test_another_version_of_the_series(toy: Toy) -> None:
    toy.run("apply")
    before = toy.snapshot()
    toy.edits[0]["code"] = "batch = hook(hook(batch))"
    toy.write_series()
    refused = toy.run("apply")
    assert refused.code == 2
    assert "patched by another version of this series" in refused.err
    assert "run `revert`, then `apply`" in refused.err
    assert toy.snapshot() == before
    assert toy.run("revert").code == 0
    assert toy.run("apply").code == 0


@pytest.mark.parametrize("command", ["apply", "revert"])
def test_two_at_once(toy: Toy, command: str) -> None:
    with open(toy.package / LOCK, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused = toy.run(command)
    assert refused.code == 2
    assert "another apply or revert is at work" in refused.err


def test_lock_left_by_a_dead_process_is_no_lock(toy: Toy) -> None:
    (toy.package / LOCK).write_text("")
    assert toy.run("apply").code == 0
    assert not (toy.package / LOCK).exists()


@pytest.mark.parametrize("protected", [".", "srt/nested"])
def test_read_only(toy: Toy, protected: str) -> None:
    """As a user without the right: root may write anywhere."""
    for folder in (toy.site.parent, *toy.site.parent.parents):
        if os.geteuid() == 0 and folder.stat().st_mode & 0o1000 == 0 and folder.is_relative_to(tempfile.gettempdir()):
            folder.chmod(0o755)
    if os.geteuid() == 0:
        for path in [toy.site, *toy.site.rglob("*")]:
            os.chown(path, NOBODY, NOBODY)
    toy.run("check")  # whatever is imported late is imported by now
    (toy.package / protected).chmod(0o555)
    before = toy.snapshot()

    def attempt() -> str:
        if os.geteuid() == 0:
            os.setresuid(NOBODY, NOBODY, NOBODY)
        try:
            transaction.apply(open_tree(toy.site))
        except Refusal as refusal:
            return str(refusal)
        return "applied"

    assert "is read-only: give yourself the right to write there" in in_child(attempt)
    assert toy.snapshot() == before
