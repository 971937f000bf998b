"""Try a series on a release it was not made for: does each edit and contract entry hold, and if not, what is near."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from enum import StrEnum
from pathlib import Path

from packaging.version import Version

from sglang_eagle3_patch.contract import schema, source
from sglang_eagle3_patch.contract.paths import ContractError, releases
from sglang_eagle3_patch.contract.schema import Name
from sglang_eagle3_patch.installer import series
from sglang_eagle3_patch.installer.edit import parse
from sglang_eagle3_patch.installer.locate import locate, problem
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
    index = _Index(tree)
    findings = [_try_edit(tree, index, edit, originals) for edit in series.load(release).edits]
    return findings + [_try_name(tree, index, name, originals) for name in schema.load(release, complete=False).names]


def _try_edit(tree: Tree, index: _Index, edit: Edit, originals: Mapping[str, bytes]) -> Finding:
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


def _try_name(tree: Tree, index: _Index, name: Name, originals: Mapping[str, bytes]) -> Finding:
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


class _Index:
    """Searches the whole tree for what is no longer where it was. Files are read when first asked."""

    def __init__(self, tree: Tree) -> None:
        self.package = tree.package
        self.sources: dict[str, bytes] = {}

    def namesake(self, file: str) -> str | None:
        """Return the file of the same name elsewhere in the tree, or the nearest name in its folder."""
        same = sorted(self.package.joinpath("srt").rglob(Path(file).name))
        if same:
            return str(same[0].relative_to(self.package))
        return source.nearest(
            file, [str(p.relative_to(self.package)) for p in (self.package / file).parent.glob("*.py")]
        )

    def target(self, edit: Edit) -> str | None:
        """Return where else a function or class of the target's name is."""
        kinds = ("function", "class") if edit.target else ()
        return next((found for kind in kinds if (found := self.find(Name(f":{edit.target}", kind, "", "")))), None)

    def anchor(self, edit: Edit) -> str | None:
        """Return where in any file the anchor's first line is."""
        line = (edit.anchor.strip().splitlines() or [""])[0].encode()
        lines = [
            f"{file}:{text[: text.index(line)].count(10) + 1}" for file, text in self._files() if line and line in text
        ]
        return ", ".join(lines[:3]) or None

    def find(self, name: Name) -> str | None:
        """Return the symbol of the same name and kind elsewhere in the tree that looks most like the old one."""
        found = [symbol for file, text in self._files() for symbol in _symbols(file, text, name)]
        return max(found, key=lambda symbol: SequenceMatcher(None, symbol, name.symbol).ratio(), default=None)

    def _files(self) -> Iterator[tuple[str, bytes]]:
        if not self.sources:
            paths = sorted((self.package / "srt").rglob("*.py"))
            self.sources = {str(path.relative_to(self.package)): path.read_bytes() for path in paths}
        yield from self.sources.items()


def _symbols(file: str, text: bytes, name: Name) -> Iterator[str]:
    last = name.qualname.rpartition(".")[2]
    pattern = {"function": r"\bdef\s+{}\b", "class": r"\bclass\s+{}\b"}.get(name.kind, r"\b{}\b\s*[:=]").format(last)
    if not re.search(pattern.encode(), text):
        return
    try:
        module = ast.parse(text)
    except SyntaxError:
        return
    dotted = "sglang." + file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    if "." not in name.qualname:
        if last in dict(source.members(module)):
            yield f"{dotted}:{last}"
        return
    for node in module.body:
        if isinstance(node, ast.ClassDef):
            known = source.attributes(node) if name.kind == "attribute" else dict(source.members(node))
            if last in known:
                yield f"{dotted}:{node.name}.{last}"


def contract_for(tree: Tree, release: str, own: bool, originals: Mapping[str, bytes]) -> str:
    """Write the contract of this tree as TOML: what differs from the release it inherits from, with its signatures.

    Args:
        tree: where signatures are read.
        release: the series that was tried.
        own: it is the tree's own series, so that it inherits from that series' parent; else from the series itself.
        originals: read instead of patched files.
    """
    names = schema.load(release, complete=False).names
    parent = series.load(release).parent if own else release
    inherited = {name.key: name for name in schema.load(parent, complete=False).names} if parent else {}
    kept = [_filled(tree, name, originals) for name in names]
    present = {
        name.key
        for name in kept
        if own or (found := source.check_name(tree.package, name, originals)) is None or not found.gone
    }
    dropped = sorted({key[0] for key in inherited if key not in present})
    lines = [f"drop = {json.dumps(dropped, indent=4)}\n"] if dropped else []
    for name in kept:
        if name.key not in present or (inherited.get(name.key) == name and name.symbol not in dropped):
            continue
        lines.append("[[name]]")
        for key in ("symbol", "kind", "use"):
            lines.append(f"{key} = {json.dumps(getattr(name, key))}")
        if name.parameters is not None:
            lines.append(f"parameters = {json.dumps(list(name.parameters), ensure_ascii=False)}")
        lines.append(f"why = {json.dumps(name.why, ensure_ascii=False)}\n")
    return "\n".join(lines)


def _filled(tree: Tree, name: Name, originals: Mapping[str, bytes]) -> Name:
    """Take the tree's signature; for a call that lists what it passes, only those parameters' defaults."""
    found = source.signature_of(tree.package, name.symbol, originals) if name.needs_parameters else None
    if found is None:
        return name
    if name.use == "call" and name.parameters is not None:
        now = {parameter.partition("=")[0]: parameter for parameter in found}
        found = tuple(now.get(parameter.partition("=")[0], parameter) for parameter in name.parameters)
    return replace(name, parameters=found)
