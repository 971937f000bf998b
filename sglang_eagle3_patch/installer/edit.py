"""Make the edits of one file, in memory. What no edit touches keeps every byte."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import cast

import libcst as cst

from sglang_eagle3_patch.contract.compare import Mismatch
from sglang_eagle3_patch.installer.locate import Found, locate, problem
from sglang_eagle3_patch.installer.refusal import Refusal
from sglang_eagle3_patch.installer.series import Edit

Body = Sequence[cst.BaseStatement]


def parse(file: str, source: bytes) -> cst.Module:
    """Parse `source` such that it can be written back byte for byte.

    Raises:
        Refusal: it is not Python, or would not come back the same.
    """
    try:
        module = cst.parse_module(source)
        same = module.bytes == source
    except (cst.ParserSyntaxError, UnicodeError, LookupError) as error:
        raise Refusal(f"{file} can't be read as Python: {error}") from None
    if not same:
        raise Refusal(f"{file} holds bytes that LibCST would not keep: reinstall SGLang, or report it")
    return module


@lru_cache(maxsize=64)  # a run over many releases asks for `diff`, `apply` and `check` of the same files
def apply_edits(file: str, source: bytes, edits: tuple[Edit, ...]) -> tuple[bytes, tuple[Mismatch, ...]]:
    """Return the edited source, and what stood in the way of an edit (then the source comes back as it is).

    Raises:
        Refusal: the file can't be read, or what comes out does not compile.
        ContractError: an anchor that is not one statement or expression.
    """
    module = parse(file, source)
    found, scopes = locate(module, edits)
    if any(problem(edit, found[edit.id], scopes) for edit in edits):
        found, scopes = locate(module, edits, everywhere=True)  # for what is near
        return source, tuple(mismatch for edit in edits if (mismatch := problem(edit, found[edit.id], scopes)))
    writer = _Writer([(edit, found[edit.id]) for edit in edits])
    edited = module.visit(writer).bytes
    try:
        compile(edited, file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise Refusal(f"{file} does not compile after the edits {', '.join(e.id for e in edits)}: {error}") from None
    return edited, ()


class _Writer(cst.CSTTransformer):
    """Makes all edits in one pass: places were found on the untouched file, so no edit can disturb another's anchor."""

    def __init__(self, edits: Iterable[tuple[Edit, Found]]) -> None:
        super().__init__()
        self.edits: dict[int, list[Edit]] = {}
        self.marks: dict[int, list[str]] = {}
        self.path: set[int] = set()
        for edit, found in edits:
            match = found.matches[0] if edit.anchor else found.targets[0]
            self.path |= match.path
            self.edits.setdefault(id(match.node), []).append(edit)
            if edit.action == "replace_expression":
                self.marks.setdefault(id(match.statement), []).append(edit.id)
        for several in self.edits.values():
            replacing = [edit.id for edit in several if edit.action.startswith("replace")]
            if len(replacing) > 1:
                raise Refusal(f"edits {', '.join(replacing)} of {several[0].file} replace the same code")

    def on_visit(self, node: cst.CSTNode) -> bool:
        return id(node) in self.path

    def on_leave(  # type: ignore[override]  # one place for every node type
        self, original_node: cst.CSTNode, updated_node: cst.CSTNode
    ) -> cst.CSTNode | cst.FlattenSentinel[cst.BaseStatement]:
        before: list[cst.BaseStatement] = []
        after: list[cst.BaseStatement] = []
        middle = [_marked(updated_node, self.marks.get(id(original_node), []))]
        for edit in self.edits.get(id(original_node), []):
            if edit.action == "replace_expression":
                return cst.parse_expression(
                    f"({edit.code.strip()})" if "\n" in edit.code.strip() else edit.code.strip()
                )
            if edit.action == "append_to_body":
                middle = [_with_body(middle[0], edit, at_end=True)]
            elif edit.action == "prepend_to_body":
                middle = [_with_body(middle[0], edit, at_end=False)]
            elif edit.action == "insert_before":
                before += _statements(edit)
            elif edit.action == "insert_after":
                after += _statements(edit)
            else:
                kept = getattr(updated_node, "leading_lines", ())
                first, *rest = _statements(edit)
                middle = [first.with_changes(leading_lines=[*kept, *getattr(first, "leading_lines", ())]), *rest]
        if not before and not after and len(middle) == 1:
            return middle[0]
        return cst.FlattenSentinel(cast(Body, [*before, *middle, *after]))


def _statements(edit: Edit) -> list[cst.BaseStatement]:
    """Parse our lines, the first with the marker above it."""
    module = cst.parse_module(edit.code.strip("\n") + "\n")
    if not module.body:
        raise Refusal(f"edit {edit.id} of {edit.file} has no code")
    first, *rest = cast(list[cst.BaseStatement], list(module.body))
    lines = [*module.header, *getattr(first, "leading_lines", ())]
    marked = cast(cst.BaseStatement, _marked(first.with_changes(leading_lines=lines), [edit.id], above=True))
    return [marked, *rest]


def _marked(node: cst.CSTNode, ids: Sequence[str], above: bool = False) -> cst.CSTNode:
    """Put one marker comment an edit next to a statement, above its own comments if it is ours."""
    if not ids:
        return node
    marks = [cst.EmptyLine(comment=cst.Comment(f"# sglang-eagle3-patch: {id_}")) for id_ in ids]
    lines = list(cast(Sequence[cst.EmptyLine], getattr(node, "leading_lines", ())))
    return node.with_changes(leading_lines=[*marks, *lines] if above else [*lines, *marks])


def _with_body(node: cst.CSTNode, edit: Edit, at_end: bool) -> cst.CSTNode:
    block = node if isinstance(node, cst.Module) else cast(cst.FunctionDef | cst.ClassDef, node).body
    if not isinstance(block, cst.Module | cst.IndentedBlock):
        raise Refusal(f"edit {edit.id}: the body of {edit.place} is on its header's line")
    body = list(block.body)
    start = 0
    while not at_end and start < len(body) and _stays_first(body[start], start):
        start += 1
    position = len(body) if at_end else start
    changed = block.with_changes(body=[*body[:position], *_statements(edit), *body[position:]])
    return changed if isinstance(node, cst.Module) else node.with_changes(body=changed)


def _stays_first(statement: cst.BaseStatement | cst.BaseSmallStatement, index: int) -> bool:
    """A docstring, and `from __future__` imports, stay above everything."""
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    small = statement.body[0]
    if isinstance(small, cst.ImportFrom):
        return isinstance(small.module, cst.Name) and small.module.value == "__future__"
    return index == 0 and isinstance(small, cst.Expr) and isinstance(small.value, cst.SimpleString)
