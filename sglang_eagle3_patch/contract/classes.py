"""What a class does with its own attributes, read off its syntax: the facts behind the construction rule (C1)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
# Calls that can't raise: these with constants only, and those with anything.
SAFE_WITH_CONSTANTS = {"dict", "list", "set", "tuple", "frozenset", "deque", "collections.deque"} | {
    f"threading.{name}" for name in ("Lock", "RLock", "Event", "Condition")
}
SAFE = {"isinstance", "super", "logging.getLogger", "time.perf_counter", "time.monotonic"}
CONSTRUCTORS = ("__init__", "__post_init__")
FIELDS_BY_BASE = {"NamedTuple", "TypedDict", "Protocol"}


@dataclass
class ClassFacts:
    """One class of ours.

    Attributes:
        name: its name.
        file: where it is defined.
        line: of the definition.
        bases: names of its bases, as the file they come from calls them.
        on_class: class-level values, fields of a dataclass, and properties.
        methods: its other methods.
        declared: bare annotations of an ordinary class: what another class it is joined with brings.
        first: attributes assigned in the constructor before anything can raise, with their lines.
        late: attributes assigned in the constructor after that, or under a condition.
        elsewhere: attributes assigned by other methods.
        reads: attributes read through `self`, with the first line.
        can_raise: what can raise first in the constructor, as text and line; None when nothing can.
        has_constructor: it has an `__init__` or `__post_init__` of its own.
        base_first: the first thing that can raise is the base constructor.
    """

    name: str
    file: Path
    line: int
    bases: list[str]
    on_class: set[str] = field(default_factory=set)
    methods: set[str] = field(default_factory=set)
    declared: set[str] = field(default_factory=set)
    first: dict[str, int] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)
    elsewhere: dict[str, int] = field(default_factory=dict)
    reads: dict[str, int] = field(default_factory=dict)
    can_raise: tuple[str, int] | None = None
    has_constructor: bool = False
    base_first: bool = False

    @property
    def assigns(self) -> set[str]:
        """Every attribute that the class gives a value anywhere."""
        return self.on_class | self.methods | set(self.first) | set(self.late) | set(self.elsewhere)


def facts_of(file: Path) -> list[ClassFacts]:
    """Read every class of a file, also one inside a function."""
    module = ast.parse(file.read_bytes())
    renamed = {
        alias.asname: alias.name
        for node in ast.walk(module)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    return [_facts(node, file, renamed) for node in ast.walk(module) if isinstance(node, ast.ClassDef)]


def _facts(node: ast.ClassDef, file: Path, renamed: dict[str, str]) -> ClassFacts:
    bases = [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]
    facts = ClassFacts(node.name, file, node.lineno, [renamed.get(base, base) for base in bases])
    has_fields = bool(FIELDS_BY_BASE & set(bases)) or any("dataclass" in ast.unparse(d) for d in node.decorator_list)
    methods: list[FunctionNode] = []
    for statement in node.body:
        if isinstance(statement, FunctionNode):
            is_property = any("property" in ast.unparse(decorator) for decorator in statement.decorator_list)
            (facts.on_class if is_property else facts.methods).add(statement.name)
            methods.append(statement)
        elif isinstance(statement, ast.Assign):
            facts.on_class.update(target.id for target in statement.targets if isinstance(target, ast.Name))
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            valued = has_fields or statement.value is not None
            (facts.on_class if valued else facts.declared).add(statement.target.id)
        elif isinstance(statement, ast.ClassDef):
            facts.on_class.add(statement.name)
    for method in methods:
        if (
            any(ast.unparse(d) in ("staticmethod", "classmethod") for d in method.decorator_list)
            or not method.args.args
        ):
            continue
        receiver = method.args.args[0].arg
        if method.name in CONSTRUCTORS:
            facts.has_constructor = True
            _constructor(facts, method, receiver)
        else:
            for attribute, line in _stores(method, receiver):
                facts.elsewhere.setdefault(attribute, line)
        for attribute, line in _reads(method, receiver):
            facts.reads.setdefault(attribute, line)
    return facts


def _constructor(facts: ClassFacts, method: FunctionNode, receiver: str) -> None:
    for statement in method.body:
        raising = _can_raise(statement)
        if raising and facts.can_raise is None:
            facts.can_raise = (ast.unparse(raising).splitlines()[0], raising.lineno)
            facts.base_first = isinstance(raising, ast.Call) and ast.unparse(raising.func) == "super().__init__"
        plain = isinstance(statement, ast.Assign | ast.AnnAssign)
        for attribute, line in _stores(statement, receiver):
            safe = plain and facts.can_raise is None
            if attribute not in facts.first:
                (facts.first if safe else facts.late).setdefault(attribute, line)


def _can_raise(statement: ast.stmt) -> ast.Call | ast.Raise | ast.Assert | None:
    """Return what in the statement can raise first: of nested calls the innermost runs first."""
    found: list[ast.Call | ast.Raise | ast.Assert] = []
    for node in _walk(statement):
        if isinstance(node, ast.Raise | ast.Assert) or (isinstance(node, ast.Call) and not _is_safe(node)):
            found.append(node)
    return min(found, key=lambda node: (node.end_lineno, node.end_col_offset), default=None)


def _is_safe(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    constants = all(isinstance(value, ast.Constant) for value in given)
    return name in SAFE or (name in SAFE_WITH_CONSTANTS and constants) or (name == "getattr" and len(given) == 3)


def _stores(scope: ast.AST, receiver: str) -> Iterator[tuple[str, int]]:
    for node in _walk(scope):
        if isinstance(node, ast.AnnAssign) and node.value is None:
            continue
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_name(node.value, receiver):
            yield node.attr, node.lineno


def _reads(method: FunctionNode, receiver: str) -> Iterator[tuple[str, int]]:
    for node in _walk(method):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Store) and _is_name(node.value, receiver):
            yield node.attr, node.lineno
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Attribute):
            if _is_name(node.target.value, receiver):
                yield node.target.attr, node.lineno
        elif (  # getattr without a default is a read like any other
            isinstance(node, ast.Call)
            and ast.unparse(node.func) == "getattr"
            and len(node.args) == 2
            and _is_name(node.args[0], receiver)
            and isinstance(node.args[1], ast.Constant)
        ):
            yield str(node.args[1].value), node.lineno


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _walk(scope: ast.AST) -> Iterator[ast.AST]:
    """Walk, but not into a class defined inside: its `self` is another."""
    yield scope
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, ast.ClassDef):
            yield from _walk(child)
