"""Every series on the release it is for: check, apply, compile, diff, revert, and refusal of a wheel with a change."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from sglang_eagle3_patch.contract import schema, source
from sglang_eagle3_patch.contract.paths import releases
from sglang_eagle3_patch.contract.schema import Name
from sglang_eagle3_patch.installer import series
from tests.installer.conftest import run, snapshot
from tests.trees import sglang_tree, unpacked

RELEASES = sorted({releases()[0], releases()[-1]})  # scripts/check_releases.py does the round trip of every release
MOVED_AWAY = "_renamed_by_the_test"


def test_there_are_series() -> None:
    assert RELEASES


@pytest.mark.parametrize("release", RELEASES)
def test_round_trip(release: str, tmp_path: Path) -> None:
    tree = sglang_tree(release, tmp_path)
    before = snapshot(tree)
    edits = series.load(release).edits
    files = {edit.file for edit in edits}
    originals = {file: (tree / "sglang" / file).read_bytes() for file in files}
    diff = run("diff", str(tree), "--json").document["diff"]
    applied = run("apply", str(tree), "--json")
    assert applied.code == 0, applied.out
    assert set(applied.document["files"]) == files
    for edit in edits:
        text = (tree / "sglang" / edit.file).read_text()
        assert text.count(f"# sglang-eagle3-patch: {edit.id}\n") == 1
        compile(text, edit.file, "exec", dont_inherit=True)

    for file, content in originals.items():  # git makes the same files out of the same originals
        path = tmp_path / "by-git/sglang" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    subprocess.run(["git", "apply", "-"], input=diff, text=True, cwd=tmp_path / "by-git", check=True)
    for file in files:
        assert (tmp_path / "by-git/sglang" / file).read_bytes() == (tree / "sglang" / file).read_bytes()

    assert run("apply", str(tree)).out.startswith("already applied")
    assert run("revert", str(tree)).code == 0
    assert snapshot(tree) == before
    for file, content in originals.items():
        assert (unpacked(release) / "sglang" / file).read_bytes() == content  # not through the link


def renamed(text: str, name: Name) -> str:
    return re.sub(rf"\b{name.qualname.rpartition('.')[2]}\b", MOVED_AWAY, text)


@pytest.mark.parametrize("release", RELEASES)
def test_every_name_of_the_contract_is_missed(release: str) -> None:
    """Rename each in turn, in memory: the check names it."""
    package = unpacked(release) / "sglang"
    names = schema.load(release).names
    assert names, f"patches/v{release}/contract.toml lists nothing"
    silent = []
    for name in names:
        file = "/".join(name.module.split(".")[1:]) + ".py"
        if not (package / file).is_file():
            file = file.removesuffix(".py") + "/__init__.py"
        text = renamed((package / file).read_text(), name)
        if source.check_name(package, name, {file: text.encode()}) is None:
            silent.append(name.symbol)
    assert silent == []


@pytest.mark.parametrize("release", RELEASES)
def test_a_wheel_with_one_method_renamed_is_refused(release: str, tmp_path: Path) -> None:
    tree = sglang_tree(release, tmp_path)
    name = next((name for name in schema.load(release).names if name.use == "override"), None)
    assert name, f"patches/v{release}/contract.toml lists nothing that we override"
    file = tree.joinpath(*name.module.split(".")).with_suffix(".py")
    text = renamed(file.read_text(), name)
    file.unlink()  # it may be a link to the shared one
    file.write_text(text)
    before = snapshot(tree)
    refused = run("apply", str(tree))
    assert refused.code == 2
    assert name.symbol in refused.err
    assert snapshot(tree) == before
