"""Names that a file uses and nothing binds: an edit may stand on a local that a later release no longer has."""

from __future__ import annotations

import builtins
import symtable
from collections.abc import Iterator

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
        yield from _tables(child, f"{scope}.{child.get_name()}".lstrip("."))
