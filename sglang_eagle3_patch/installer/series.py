"""A patch series: the declarative edits of one release, its parents' included."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import PurePosixPath
from typing import Any

from sglang_eagle3_patch.contract.paths import ContractError, chain, read_toml

ANCHORED = ("insert_before", "insert_after", "replace", "replace_expression")
ACTIONS = (*ANCHORED, "append_to_body", "prepend_to_body")
SERIES_KEYS = {"release", "parent", "torch", "generation", "drop", "edit"}


@dataclass(frozen=True)
class Edit:
    """One edit of one file.

    Attributes:
        id: names it in messages, in the marker comment, and for a later release that replaces it.
        file: relative to the `sglang` package folder.
        target: qualified name of the function or class whose own statements are searched; "" is the module level.
        action: one of ACTIONS.
        code: our lines; `{series}` in them stands for the release whose series is applied.
        why: what it is for.
        upstream: what it relates to upstream.
        retire_when: when it can be dropped.
        anchor: a statement (the header line of a compound one) or, for replace_expression, an expression, that must
            match exactly once; none for append_to_body and prepend_to_body.
    """

    id: str
    file: str
    target: str
    action: str
    code: str
    why: str
    upstream: str
    retire_when: str
    anchor: str = ""

    @property
    def place(self) -> str:
        """Where it acts, for messages."""
        return f"{self.file}:{self.target or '<module>'}"


@dataclass(frozen=True)
class Series:
    """All edits of one release.

    Attributes:
        release: the SGLang release.
        parent: the release that it inherits from, or None.
        torch: that release's torch pin.
        generation: the runtime's room for this shape of the worker.
        edits: in order, parents' first.
    """

    release: str
    parent: str | None
    torch: str
    generation: str
    edits: tuple[Edit, ...]


def load(release: str) -> Series:
    """Read the series of `release`.

    Raises:
        ContractError: it does not follow the schema; the sentence names the entry.
    """
    edits: dict[str, Edit] = {}
    inherited: dict[str, Any] = {}
    for step in chain(release):
        where = f"patches/v{step}/series.toml"
        document = read_toml(step, "series.toml")
        if unknown := set(document) - SERIES_KEYS:
            raise ContractError(f"{where}: unknown key {', '.join(sorted(unknown))}")
        if document.get("release") != step:
            raise ContractError(f"{where}: release is {document.get('release')!r} in the folder v{step}")
        inherited = {"parent": None, **{key: inherited.get(key) for key in ("torch", "generation")}} | {
            key: document[key] for key in ("parent", "torch", "generation") if key in document
        }
        for id_ in document.get("drop", []):
            if id_ not in edits:
                raise ContractError(f"{where}: drops edit {id_!r}, which no parent has")
            del edits[id_]
        own: set[str] = set()
        for entry in document.get("edit", []):
            edit = _edit(entry, where)
            if edit.id in own:
                raise ContractError(f"{where}: has two edits named {edit.id!r}")
            own.add(edit.id)
            edits[edit.id] = edit
    for key in ("torch", "generation"):
        if not isinstance(inherited[key], str) or not inherited[key]:
            raise ContractError(f"patches/v{release}/series.toml: {key} is missing")
    if not edits:
        raise ContractError(f"patches/v{release}/series.toml: has no edit")
    named = [replace(edit, code=edit.code.replace("{series}", release)) for edit in edits.values()]
    return Series(release, edits=tuple(named), **inherited)


def _edit(entry: dict[str, Any], where: str) -> Edit:
    label = f"{where}: edit {entry.get('id', '?')!r}"
    names = {field.name for field in fields(Edit)}
    if unknown := set(entry) - names:
        raise ContractError(f"{label} has an unknown key {', '.join(sorted(unknown))}")
    for key in sorted(names - {"anchor", "target"}):
        if not isinstance(entry.get(key), str) or not entry[key].strip():
            raise ContractError(f"{label} lacks {key}")
    if not isinstance(entry.get("target"), str) or not isinstance(entry.get("anchor", ""), str):
        raise ContractError(f'{label} lacks target ("" is the module level), or its anchor is no string')
    edit = Edit(**entry)
    if edit.action not in ACTIONS:
        raise ContractError(f"{label} has action {edit.action!r}; known are {', '.join(ACTIONS)}")
    if (edit.action in ANCHORED) != bool(edit.anchor.strip()):
        raise ContractError(f"{label}: {edit.action} {'needs an' if edit.action in ANCHORED else 'takes no'} anchor")
    path = PurePosixPath(edit.file)
    if path.is_absolute() or ".." in path.parts or path.suffix != ".py":
        raise ContractError(f"{label}: {edit.file} is not a Python file inside the sglang package folder")
    return edit
