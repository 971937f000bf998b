"""The contract check on source: reads the tree's files as syntax, imports nothing of SGLang and needs no torch."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from sglang_eagle3_patch.contract.compare import Mismatch, compare, parameters_of, same_text
from sglang_eagle3_patch.contract.schema import Contract, Name

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
Definition = ast.stmt | ast.alias
# Original bytes by path relative to the package, for files that a patch has replaced.
Originals = Mapping[str, bytes]
NOTHING: Originals = {}
DEFINITIONS: dict[str, tuple[type, ...]] = {
    "function": (ast.FunctionDef, ast.AsyncFunctionDef),
    "class": (ast.ClassDef,),
    "name": (ast.stmt, ast.alias),
}


def check(tree: Path, contract: Contract, originals: Originals = NOTHING) -> list[Mismatch]:
    """Hold every name of `contract` against the source in `tree`.

    Args:
        tree: the `sglang` package folder.
        contract: of the tree's release.
        originals: read instead of the files themselves.

    Returns:
        What differs, in the contract's order; empty when the contract holds.
    """
    return [found for name in contract.names if (found := check_name(tree, name, originals))]


def check_name(tree: Path, name: Name, originals: Originals = NOTHING) -> Mismatch | None:
    """Hold one name against the source."""
    expected = describe(name)
    module = _module(tree, name.module, originals)
    if module is None:
        return Mismatch(name.symbol, expected, f"gone: no module {name.module}", nearest_module(tree, name.module))
    owner_path, _, last = name.qualname.rpartition(".")
    owner = find(module, owner_path)
    if owner is None or not isinstance(owner, ast.Module | ast.ClassDef):
        known = [n for n, d in members(module) if isinstance(d, ast.ClassDef)]
        return Mismatch(name.symbol, expected, f"gone: no class {owner_path}", nearest(owner_path, known))
    if name.kind == "attribute":
        assert isinstance(owner, ast.ClassDef)
        known = sorted(attributes(owner))
        if last in known:
            return None
        return Mismatch(name.symbol, expected, f"gone: {owner_path} does not assign it", nearest(last, known))
    found = dict(members(owner)).get(last)
    if found is None:
        return Mismatch(name.symbol, expected, "gone", nearest(last, [n for n, _ in members(owner)]))
    if not isinstance(found, DEFINITIONS[name.kind]):
        return Mismatch(name.symbol, expected, f"a {type(found).__name__} of that name")
    if isinstance(found, FunctionNode) and name.parameters is not None:
        differs = compare(name.use, name.parameters, parameters_of(found.args), same_text)
        return Mismatch(name.symbol, expected, differs) if differs else None
    return None


def describe(name: Name) -> str:
    """Say in a few words what the contract expects."""
    if name.kind == "function" and name.parameters is not None:
        return f"({', '.join(name.parameters)}) to {name.use}"
    return f"{'an' if name.kind == 'attribute' else 'a'} {name.kind} to {name.use}"


def signature_of(tree: Path, symbol: str, originals: Originals = NOTHING) -> tuple[str, ...] | None:
    """Return the parameters of the function `symbol` as the tree has them, or None where there is no such function."""
    module_name, _, qualname = symbol.partition(":")
    module = _module(tree, module_name, originals)
    found = find(module, qualname) if module else None
    return parameters_of(found.args) if isinstance(found, FunctionNode) else None


def find(module: ast.Module, qualname: str) -> Definition | ast.Module | None:
    """Return the last definition of `qualname` (the module itself for ""), also one under `if`, `try` or `with`."""
    scope: Definition | ast.Module | None = module
    for part in qualname.split(".") if qualname else []:
        if not isinstance(scope, ast.Module | ast.ClassDef):
            return None
        scope = dict(members(scope)).get(part)
    return scope


def members(scope: ast.Module | ast.ClassDef) -> Iterator[tuple[str, Definition]]:
    """Yield the names that a module or class body binds, in order, with what binds them."""
    for statement in _statements(scope.body):
        if isinstance(statement, FunctionNode | ast.ClassDef):
            yield statement.name, statement
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            for alias in statement.names:
                yield alias.asname or alias.name.partition(".")[0], alias
        else:
            for target in _targets(statement):
                if isinstance(target, ast.Name):
                    yield target.id, statement


def attributes(owner: ast.ClassDef) -> set[str]:
    """Return what the class itself declares or assigns: fields, properties, and `self.x` in any of its methods."""
    found: set[str] = set()
    for name, definition in members(owner):
        if not isinstance(definition, FunctionNode):
            found.add(name)
            continue
        if any("property" in ast.unparse(decorator) for decorator in definition.decorator_list):
            found.add(name)
        receiver = next((a.arg for a in (*definition.args.posonlyargs, *definition.args.args)), None)
        for node in ast.walk(definition):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and isinstance(node.value, ast.Name)
                and node.value.id == receiver
            ):
                found.add(node.attr)
    return found


def nearest(name: str, known: list[str]) -> str | None:
    """Return the known name that looks most like `name`."""
    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.5)), None)


def nearest_module(tree: Path, module: str) -> str | None:
    """Return the nearest module in the folder where `module` should be, or its namesake elsewhere in the tree."""
    last = module.rpartition(".")[2]
    folder = tree.joinpath(*module.split(".")[1:-1])
    here = nearest(last, [path.stem for path in folder.glob("*.py")])
    if here:
        return f"{module.rpartition('.')[0]}.{here}"
    elsewhere = sorted((tree / "srt").rglob(f"{last}.py"))
    return ".".join(("sglang", *elsewhere[0].relative_to(tree).with_suffix("").parts)) if elsewhere else None


def _module(tree: Path, module: str, originals: Originals) -> ast.Module | None:
    parts = module.split(".")[1:]  # the tree is `sglang` itself
    for relative in ("/".join(parts) + ".py", "/".join([*parts, "__init__.py"])):
        if relative in originals:
            return parse(originals[relative])
        if (tree / relative).is_file():
            return parse((tree / relative).read_bytes())
    return None


@lru_cache(maxsize=64)
def parse(source: bytes) -> ast.Module | None:
    """Parse a file, or return None where it is not Python."""
    try:
        return ast.parse(source)
    except SyntaxError:
        return None


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of one scope, those nested in if/try/with/for/while included, defs not entered.

    What is there for type checkers only is not there when a server runs.
    """
    for statement in body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test).endswith("TYPE_CHECKING"):
            yield from _statements(statement.orelse)
            continue
        yield statement
        if not isinstance(statement, FunctionNode | ast.ClassDef):
            for block in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(statement, block, []))
            for handler in getattr(statement, "handlers", []):
                yield from _statements(handler.body)


def _targets(statement: ast.stmt) -> Iterator[ast.expr]:
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            yield from target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    elif isinstance(statement, ast.AnnAssign):
        yield statement.target
