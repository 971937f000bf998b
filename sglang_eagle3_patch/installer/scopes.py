"""Names that a file uses and nothing binds: an edit may stand on a local that a later release no longer has."""

from __future__ import annotations

import builtins
import symtable
from collections.abc import Iterator

# Scopes without a name of their own, some of them a scope up to Python 3.11 only: the one around names the place.
NAMELESS = {"listcomp", "setcomp", "dictcomp", "genexpr", "lambda"}
ALWAYS = {*dir(builtins), "__file__", "__name__", "__doc__", "__spec__", "__package__", "__class__"}


def unbound(source: bytes, file: str) -> set[str]:
    """Return every such use as `scope: name`.

    Raises:
        SyntaxError: the file is not Python.
    """
    module = symtable.symtable(source, file, "exec")  # type: ignore[arg-type]  # bytes are taken, their coding read
    bound = {symbol.get_name() for symbol in module.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    for _, table in _tables(module, ""):
        bound |= {s.get_name() for s in table.get_symbols() if s.is_declared_global() and s.is_assigned()}
    return {
        f"{scope or '<module>'}: {symbol.get_name()}"
        for scope, table in _tables(module, "")
        for symbol in table.get_symbols()
        if symbol.is_referenced() and (symbol.is_global() or not scope) and symbol.get_name() not in bound | ALWAYS
    }


def _tables(table: symtable.SymbolTable, scope: str) -> Iterator[tuple[str, symtable.SymbolTable]]:
    yield scope, table
    for child in table.get_children():
        name = child.get_name()
        yield from _tables(child, scope if name in NAMELESS else f"{scope}.{name}".lstrip("."))
