"""Run a function on a module right after that module was imported, whoever imports it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

Hook = Callable[[ModuleType], None]


class _AfterImport(MetaPathFinder):
    """Finds the named modules as Python would, and has their loader call the hooks once the body has run."""

    def __init__(self, tables: Sequence[Mapping[str, Hook]]) -> None:
        self._tables = tables

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        hooks = [table[fullname] for table in self._tables if fullname in table]
        spec = PathFinder.find_spec(fullname, path) if hooks else None
        if spec is None or spec.loader is None:
            return None
        run_body = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run_body(module)
            for hook in hooks:
                hook(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def install(*tables: Mapping[str, Hook]) -> None:
    """Hook modules that are yet to be imported.

    ``tables``: full module name to the function that gets the module; a module in several tables gets all, in order.
    """
    sys.meta_path.insert(0, _AfterImport(tables))
