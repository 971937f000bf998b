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

Scope = cst.Module | cst.FunctionDef | cst.ClassDef
EMPTY = cst.IndentedBlock([cst.SimpleStatementLine([cst.Pass()])])


@dataclass(frozen=True)
class Match:
    """A place in a file.

    Attributes:
        scope: qualified name of the function or class that holds it.
        statement: the statement in a body.
        node: the statement again, or the expression inside it that matched.
    """

    scope: str
    statement: cst.BaseStatement
    node: cst.CSTNode


@dataclass
class Found:
    """What one walk over a file found for one edit."""

    scopes: list[Scope] = field(default_factory=list)
    matches: list[Match] = field(default_factory=list)
    elsewhere: list[Match] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)


def locate(module: cst.Module, edits: Sequence[Edit]) -> tuple[dict[str, Found], list[str]]:
    """Walk the file once and return what was found, by edit id, and the qualified name of every definition.

    Raises:
        ContractError: an anchor that is not one statement or expression.
    """
    walk = _Walk([_Anchor(edit) for edit in edits])
    module.visit(walk)
    return {anchor.edit.id: anchor.found for anchor in walk.anchors}, walk.scopes


def problem(edit: Edit, found: Found, scopes: Sequence[str]) -> Mismatch | None:
    """Say why the edit can't be made here, or None when it can."""
    wanted = f"`{edit.anchor}` once" if edit.anchor else "one definition"
    where = f"edit {edit.id} in {edit.place}"
    if not found.scopes:
        return Mismatch(where, wanted, f"gone: no {edit.target}", nearest(edit.target, list(scopes)))
    if not edit.anchor:
        count = len(found.scopes)
        return Mismatch(where, wanted, f"{count} definitions") if count > 1 else None
    if len(found.matches) == 1:
        return None
    if found.matches:
        return Mismatch(where, wanted, f"{len(found.matches)} matches")
    return Mismatch(where, wanted, "gone: no match", nearest(edit.anchor, found.seen))


class _Anchor:
    """An edit's anchor in comparable form."""

    def __init__(self, edit: Edit) -> None:
        self.edit = edit
        self.found = Found()
        self.expression: type[cst.CSTNode] | None = None
        self.key = ""
        if not edit.anchor:
            return
        try:
            if edit.action == "replace_expression":
                self.expression = type(cst.parse_expression(edit.anchor.strip()))
                self.key = _expression_key(edit.anchor)
            else:
                header = edit.anchor.strip()
                header += "\n    pass" if header.endswith(":") else ""
                (_,) = cst.parse_module(header).body
                self.key = _statement_key(header)
        except (SyntaxError, cst.ParserSyntaxError, ValueError) as error:
            raise ContractError(f"edit {edit.id}: the anchor is not one statement or expression: {error}") from None


class _Walk(cst.CSTVisitor):
    """Compares every statement and expression with the anchors, each within the scope that owns it."""

    def __init__(self, anchors: list[_Anchor]) -> None:
        super().__init__()
        self.anchors = anchors
        self.path: list[str] = []
        self.statements: list[cst.BaseStatement] = []
        self.scopes: list[str] = []
        self.elifs: set[int] = set()
        self.by_type = {anchor.expression for anchor in anchors if anchor.expression}

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.BaseStatement):
            if id(node) not in self.elifs:
                self._statement(node)
            self.statements.append(node)
            if isinstance(node, cst.If) and isinstance(node.orelse, cst.If):
                self.elifs.add(id(node.orelse))  # nothing can be put before or after one
        elif type(node) in self.by_type:
            self._compare(_expression_key(cst.Module([]).code_for_node(node)), node, type(node))
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            self.path.append(node.name.value)
            self.scopes.append(".".join(self.path))
        if isinstance(node, cst.Module | cst.FunctionDef | cst.ClassDef):
            for anchor in self.anchors:
                if anchor.edit.target == ".".join(self.path):
                    anchor.found.scopes.append(node)
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if isinstance(original_node, cst.BaseStatement):
            self.statements.pop()
        if isinstance(original_node, cst.FunctionDef | cst.ClassDef):
            self.path.pop()

    def _statement(self, node: cst.BaseStatement) -> None:
        bare: cst.CSTNode
        if isinstance(node, cst.SimpleStatementLine):
            bare = node.with_changes(leading_lines=())
        elif isinstance(node, cst.FunctionDef | cst.ClassDef):
            bare = node.with_changes(leading_lines=(), lines_after_decorators=(), decorators=(), body=EMPTY)
        elif isinstance(node, cst.If | cst.For | cst.While):
            bare = node.with_changes(leading_lines=(), body=EMPTY, orelse=None)
        elif isinstance(node, cst.With):
            bare = node.with_changes(leading_lines=(), body=EMPTY)
        else:
            return
        code = cst.Module([]).code_for_node(bare)
        for anchor in self.anchors:
            if anchor.edit.target == ".".join(self.path):
                anchor.found.seen.append(code.strip().removesuffix("pass").strip())
        self._compare(_statement_key(code), node, None)

    def _compare(self, key: str, node: cst.CSTNode, expression: type[cst.CSTNode] | None) -> None:
        scope = ".".join(self.path)
        for anchor in self.anchors:
            if anchor.expression is expression and anchor.key and anchor.key == key:
                statement = node if isinstance(node, cst.BaseStatement) else self.statements[-1]
                here = scope == anchor.edit.target
                (anchor.found.matches if here else anchor.found.elsewhere).append(Match(scope, statement, node))


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
