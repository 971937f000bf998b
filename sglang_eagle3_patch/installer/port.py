"""Try a series on a release it was not made for: does each edit and contract entry hold, and if not, what is near."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from packaging.version import Version

from sglang_eagle3_patch.contract import schema, source
from sglang_eagle3_patch.contract.paths import ContractError, releases
from sglang_eagle3_patch.contract.schema import Name
from sglang_eagle3_patch.installer import series
from sglang_eagle3_patch.installer.edit import parse
from sglang_eagle3_patch.installer.locate import locate, problem
from sglang_eagle3_patch.installer.search import Index
from sglang_eagle3_patch.installer.series import Edit
from sglang_eagle3_patch.installer.tree import Tree


class Verdict(StrEnum):
    """How an entry stands on the tree."""

    HOLDS = "holds"
    CHANGED = "changed"  # there, but not as expected
    MOVED = "moved"  # elsewhere
    GONE = "gone"


@dataclass(frozen=True)
class Finding:
    """One edit or contract entry on the tree.

    Attributes:
        kind: `edit` or `name`.
        entry: the edit's id, or symbol and use.
        verdict: how it stands.
        detail: what is there instead.
        candidate: where to look.
    """

    kind: str
    entry: str
    verdict: Verdict
    detail: str = ""
    candidate: str | None = None


def series_for(version: str) -> str:
    """Return the series to try: its own, else the newest that is not newer, else the oldest.

    Raises:
        ContractError: there is no series at all.
    """
    known = releases()
    if not known:
        raise ContractError("there is no patch series to try")
    wanted = Version(version)
    return next((release for release in reversed(known) if Version(release) <= Version(wanted.public)), known[0])


def port(tree: Tree, release: str, originals: Mapping[str, bytes]) -> list[Finding]:
    """Hold every edit and every contract entry of the series of `release` against the tree."""
    index = Index(tree)
    findings = [_try_edit(tree, index, edit, originals) for edit in series.load(release).edits]
    return findings + [_try_name(tree, index, name, originals) for name in schema.load(release, complete=False).names]


def _try_edit(tree: Tree, index: Index, edit: Edit, originals: Mapping[str, bytes]) -> Finding:
    if not (tree.package / edit.file).is_file():
        near = _either(index.namesake(edit.file), index.target(edit), index.anchor(edit))
        return Finding("edit", edit.id, Verdict.GONE, f"no file {edit.file}", near)
    module = parse(edit.file, originals.get(edit.file) or tree.path(edit.file).read_bytes())
    found, scopes = locate(module, [edit], everywhere=True)
    mismatch = problem(edit, found[edit.id], scopes)
    if mismatch is None:
        return Finding("edit", edit.id, Verdict.HOLDS)
    if mismatch.gone and (elsewhere := found[edit.id].elsewhere):
        places = ", ".join(sorted({match.scope or "<module>" for match in elsewhere}))
        return Finding("edit", edit.id, Verdict.MOVED, f"{mismatch.found}, but the anchor is elsewhere", places)
    if not mismatch.gone:
        return Finding("edit", edit.id, Verdict.CHANGED, f"{edit.place}: {mismatch.found}")
    target = None if found[edit.id].targets else index.target(edit)
    near = _either(mismatch.candidate, target, index.anchor(edit))
    return Finding("edit", edit.id, Verdict.GONE, f"{edit.place}: {mismatch.found}", near)


def _either(*candidates: str | None) -> str | None:
    return " or ".join(candidate for candidate in candidates if candidate) or None


def _try_name(tree: Tree, index: Index, name: Name, originals: Mapping[str, bytes]) -> Finding:
    entry = f"{name.symbol} ({name.use})"
    mismatch = source.check_name(tree.package, name, originals)
    if mismatch is None:
        return Finding("name", entry, Verdict.HOLDS)
    if not mismatch.gone:
        return Finding("name", entry, Verdict.CHANGED, f"expected {mismatch.expected}, found {mismatch.found}")
    moved = index.find(name)
    if moved and _related(name.symbol, moved):
        there = source.check_name(tree.package, replace(name, symbol=moved), originals)
        detail = f"and changed: {there.found}" if there else ""
        return Finding("name", entry, Verdict.MOVED, detail, moved)
    return Finding("name", entry, Verdict.GONE, mismatch.found, _either(mismatch.candidate, moved))


def _related(old: str, new: str) -> bool:
    """A member moved if its module or its class is the same; else the names are the same by chance."""
    old_module, _, old_name = old.partition(":")
    new_module, _, new_name = new.partition(":")
    return old_module == new_module or old_name == new_name
