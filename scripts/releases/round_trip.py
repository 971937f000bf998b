"""One release, in a copy of its wheel: check, diff, apply, compile, apply again, revert, and back to every byte."""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from sglang_eagle3_patch.contract import schema
from sglang_eagle3_patch.contract.paths import ContractError
from sglang_eagle3_patch.installer import transaction
from sglang_eagle3_patch.installer.diff import unified
from sglang_eagle3_patch.installer.plan import Plan, make_plan
from sglang_eagle3_patch.installer.refusal import Refusal
from sglang_eagle3_patch.installer.tree import Tree, open_tree
from tests.trees import sglang_tree, unpacked


@dataclass(frozen=True)
class Outcome:
    """How one release stands.

    Attributes:
        release: the SGLang release.
        torch: its torch pin, as the wheel says.
        names: names of SGLang in the contract.
        edits: edits in the series.
        files: files that they change.
        problem: what went wrong, None when nothing did.
    """

    release: str
    torch: str = ""
    names: int = 0
    edits: int = 0
    files: int = 0
    problem: str | None = None


class Broken(Exception):
    """A step did not do what it has to; the sentence says which."""


def round_trip(release: str) -> Outcome:
    """Run every step on `release`. The wheel is downloaded if it is not in the cache."""
    torch = ""
    try:
        torch = torch_pin(unpacked(release))
        with tempfile.TemporaryDirectory(prefix=f"sglang-{release}-") as folder:
            tree = open_tree(sglang_tree(release, Path(folder)))
            plan = make_plan(tree, {}).demand()
            if plan.series.torch != torch:
                raise Broken(f"the series says torch {plan.series.torch}, the wheel pins {torch}")
            _git_takes_the_diff(tree, plan)
            _applies(tree, plan)
            _reverts(tree, unpacked(release))
    except (Broken, Refusal, ContractError, subprocess.CalledProcessError, RuntimeError, OSError) as error:
        return Outcome(release, torch, problem=str(error))
    return Outcome(release, torch, len(schema.load(release).names), len(plan.series.edits), len(plan.changes))


def torch_pin(site: Path) -> str:
    """Return the version of torch that the wheel requires.

    Raises:
        Broken: it pins none.
    """
    for metadata in site.glob("sglang-*.dist-info/METADATA"):
        for line in metadata.read_text().splitlines():
            if line.startswith("Requires-Dist: torch=="):
                return line.partition("==")[2].partition(";")[0].strip()
    raise Broken(f"the wheel in {site} pins no torch")


def _git_takes_the_diff(tree: Tree, plan: Plan) -> None:
    diff = unified(plan.changes, tree.diff_prefix)
    done = subprocess.run(["git", "apply", "--check", "-"], input=diff, cwd=tree.site, capture_output=True, check=False)
    if done.returncode:
        raise Broken(f"git does not take the diff: {done.stderr.decode().strip()}")


def _applies(tree: Tree, plan: Plan) -> None:
    written, _ = transaction.apply(tree)
    if not written:
        raise Broken("a fresh copy of the wheel was already patched")
    for change in plan.changes:
        text = tree.path(change.file).read_bytes()
        compile(text, change.file, "exec", dont_inherit=True)
        if text != change.after:
            raise Broken(f"{change.file} is not what was planned")
    for edit in plan.series.edits:
        mark = f"# sglang-eagle3-patch: {edit.id}\n".encode()
        if tree.path(edit.file).read_bytes().count(mark) != 1:
            raise Broken(f"edit {edit.id} does not stand once in {edit.file}")
    if transaction.apply(tree)[0]:
        raise Broken("a second apply changed something")


def _reverts(tree: Tree, pristine: Path) -> None:
    transaction.revert(tree)
    copy = tree.package.parent
    here, there = _files(copy), _files(pristine)
    if differing := sorted(here ^ there):
        raise Broken(f"after revert the folder has other files: {', '.join(differing[:3])}")
    for file in sorted(here):
        ours, theirs = copy / file, pristine / file
        if not os.path.samefile(ours, theirs) and ours.read_bytes() != theirs.read_bytes():
            raise Broken(f"after revert {file} is not what it was")


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}
