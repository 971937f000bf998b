"""Find where an edit acts: its target, and the anchor that must match exactly once inside it."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

import libcst as cst

from sglang_eagle3_patch.contract.compare import Mismatch
from sglang_eagle3_patch.contract.paths import ContractError
from sglang_eagle3_patch.contract.source import nearest
from sglang_eagle3_patch.installer.series import Edit

BODIES = (
    cst.BaseStatement, cst.BaseSuite, cst.Else, cst.ExceptHandler, cst.ExceptStarHandler, cst.Finally, cst.MatchCase,
)  # fmt: skip
EMPTY = cst.IndentedBlock([cst.SimpleStatementLine([cst.Pass()])])


@dataclass(frozen=True)
class Match:
    """A place in a file.

    Attributes:
        scope: qualified name of the function or class that holds it.
        statement: the statement in a body.
        node: the statement again, or the expression inside it that matched, or the function or class itself.
        path: identities of all nodes from the module down to `node`.
    """

    scope: str
    statement: cst.CSTNode
    node: cst.CSTNode
    path: frozenset[int]


@dataclass
class Found:
    """What one walk over a file found for one edit: definitions of its target, matches in it and in other scopes."""

    targets: list[Match] = field(default_factory=list)
    matches: list[Match] = field(default_factory=list)
    elsewhere: list[Match] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)


def locate(module: cst.Module, edits: Sequence[Edit], everywhere: bool = False) -> tuple[dict[str, Found], list[str]]:
    """Walk the file once.

    Args:
        module: the file.
        edits: what to look for.
        everywhere: look outside the targets too, for what is near; else only what the edits need is visited.

    Returns:
        What was found, by edit id, and the qualified name of every definition that was passed.

    Raises:
        ContractError: an anchor that is not one statement or expression.
    """
    walk = _Walk([_Anchor(edit) for edit in edits], everywhere)
    module.visit(walk)
    return {anchor.edit.id: anchor.found for anchor in walk.anchors}, walk.scopes


def problem(edit: Edit, found: Found, scopes: Sequence[str]) -> Mismatch | None:
    """Say why the edit can't be made here, or None when it can."""
    wanted = f"`{edit.anchor}` once" if edit.anchor else "one definition"
    where = f"edit {edit.id} in {edit.place}"
    if not found.targets:
        return Mismatch(where, wanted, f"gone: no {edit.target}", nearest(edit.target, list(scopes)))
    if not edit.anchor:
        count = len(found.targets)
        return Mismatch(where, wanted, f"{count} definitions") if count > 1 else None
    if len(found.matches) == 1:
        return None
    if found.matches:
        return Mismatch(where, wanted, f"{len(found.matches)} matches")
    return Mismatch(where, wanted, "gone: no match", nearest(edit.anchor, found.seen))


class _Anchor:
    """An edit's anchor in comparable form: the type of node that may match, and its structure."""

    def __init__(self, edit: Edit) -> None:
        self.edit = edit
        self.found = Found()
        self.is_expression = edit.action == "replace_expression"
        self.type: type[cst.CSTNode] | None = None
        self.key = ""
        if not edit.anchor:
            return
        try:
            if self.is_expression:
                self.type = type(cst.parse_expression(edit.anchor.strip()))
                self.key = _expression_key(edit.anchor)
            else:
                header = edit.anchor.strip()
                header += "\n    pass" if header.endswith(":") else ""
                (statement,) = cst.parse_module(header).body
                self.type = type(statement)
                self.key = _statement_key(header)
        except (SyntaxError, cst.ParserSyntaxError, ValueError) as error:
            raise ContractError(f"edit {edit.id}: the anchor is not one statement or expression: {error}") from None


class _Walk(cst.CSTVisitor):
    """Compares statements and expressions with the anchors, each within the scope that owns it."""

    def __init__(self, anchors: list[_Anchor], everywhere: bool) -> None:
        super().__init__()
        self.anchors = anchors
        self.everywhere = everywhere
        self.names: list[str] = []
        self.nodes: list[cst.CSTNode] = []
        self.scopes: list[str] = []
        self.elifs: set[int] = set()

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.If) and isinstance(node.orelse, cst.If):
            self.elifs.add(id(node.orelse))  # nothing can be put before or after one
        self.nodes.append(node)
        if not isinstance(node, cst.BaseStatement):
            self._compare(node, is_expression=True)
        elif id(node) not in self.elifs:
            self._compare(node, is_expression=False)
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            self.names.append(node.name.value)
            self.scopes.append(self.scope)
        if isinstance(node, cst.Module | cst.FunctionDef | cst.ClassDef):
            for anchor in self.anchors:
                if anchor.edit.target == self.scope:
                    anchor.found.targets.append(self._match(node))
            return self.everywhere or any(f"{a.edit.target}.".startswith(self.prefix) for a in self.anchors)
        holds_statements = isinstance(node, BODIES) and not isinstance(node, cst.SimpleStatementLine)
        return holds_statements or any(anchor.is_expression and self._is_here(anchor) for anchor in self.anchors)

    def on_leave(self, original_node: cst.CSTNode) -> None:
        self.nodes.pop()
        if isinstance(original_node, cst.FunctionDef | cst.ClassDef):
            self.names.pop()

    @property
    def scope(self) -> str:
        return ".".join(self.names)

    @property
    def prefix(self) -> str:
        return f"{self.scope}." if self.names else ""

    def _is_here(self, anchor: _Anchor) -> bool:
        return self.everywhere or anchor.edit.target == self.scope

    def _match(self, node: cst.CSTNode) -> Match:
        statement = next((one for one in reversed(self.nodes) if isinstance(one, cst.BaseStatement)), node)
        return Match(self.scope, statement, node, frozenset(map(id, self.nodes)))

    def _compare(self, node: cst.CSTNode, is_expression: bool) -> None:
        asking = [a for a in self.anchors if self._is_here(a) and a.is_expression == is_expression]
        if not self.everywhere or is_expression:
            asking = [anchor for anchor in asking if anchor.type is type(node)]
        if not asking:
            return
        code = cst.Module([]).code_for_node(node if is_expression else _header(node))
        key = _expression_key(code) if is_expression else _statement_key(code)
        for anchor in asking:
            here = anchor.edit.target == self.scope
            if here and not is_expression:
                anchor.found.seen.append(code.strip().removesuffix("pass").strip())
            if anchor.key == key:
                (anchor.found.matches if here else anchor.found.elsewhere).append(self._match(node))


def _header(node: cst.CSTNode) -> cst.CSTNode:
    """Return a statement without what a header does not have: body, other branches, decorators, lines above."""
    without = {"leading_lines": (), "lines_after_decorators": (), "decorators": (), "body": EMPTY, "orelse": None}
    if isinstance(node, cst.SimpleStatementLine):
        del without["body"]
    if isinstance(node, cst.Try | cst.TryStar | cst.Match):
        without = {"leading_lines": ()}  # their header says nothing by itself
    return node.with_changes(**{name: value for name, value in without.items() if hasattr(node, name)})


def _statement_key(code: str) -> str:
    """Reduce a statement to its structure: no whitespace, comments or quotes, and of a compound one the header."""
    module = ast.parse(code)
    for name, empty in (("body", [ast.Pass()]), ("orelse", []), ("decorator_list", [])):
        if hasattr(module.body[0], name):
            setattr(module.body[0], name, empty)
    return ast.dump(module)


def _expression_key(code: str) -> str:
    try:
        return ast.dump(ast.parse(f"({code.strip()}\n)", mode="eval"))
    except SyntaxError:
        return ""
