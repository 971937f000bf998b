"""Run a function on a module right after that module was imported, whoever imports it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

Hook = Callable[[ModuleType], None]


class _AfterImport(MetaPathFinder):
    """Finds the named modules as Python would, and has their loader call the hook once the body has run."""

    def __init__(self, hooks: Mapping[str, Hook]) -> None:
        self._hooks = hooks

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        hook = self._hooks.get(fullname)
        spec = PathFinder.find_spec(fullname, path) if hook else None
        if hook is None or spec is None or spec.loader is None:
            return None
        run_body = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run_body(module)
            hook(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def install(hooks: Mapping[str, Hook]) -> None:
    """Hook modules that are yet to be imported. ``hooks``: full module name to the function that gets the module."""
    sys.meta_path.insert(0, _AfterImport(hooks))
