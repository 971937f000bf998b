"""The contract check on the classes that the server really runs, plugins and all. Called when the server starts."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import sys
from pathlib import Path
from typing import Any

from sglang_eagle3_patch.contract.compare import Mismatch, compare
from sglang_eagle3_patch.contract.schema import Contract, Name
from sglang_eagle3_patch.contract.source import attributes, describe, find, nearest, parse

MISSING = object()
# SGLang passes over a model that can't be imported here; then it isn't served either.
MODELS = "sglang.srt.models."


def check(contract: Contract) -> list[Mismatch]:
    """Hold every name of `contract` against the imported modules.

    Returns:
        What differs, in the contract's order; empty when the contract holds.
    """
    try:
        return [found for name in contract.names if (found := _check(name))]
    finally:
        parse.cache_clear()  # a server would carry the syntax trees for life


def _check(name: Name) -> Mismatch | None:
    expected = describe(name)
    try:
        owner: Any = importlib.import_module(name.module)
    except Exception as error:  # whatever a module raises while it is imported
        return None if name.module.startswith(MODELS) else Mismatch(name.symbol, expected, f"gone: {error}")
    *path, last = name.qualname.split(".")
    for part in path:
        owner = inspect.getattr_static(owner, part, MISSING)
        if owner is MISSING:
            return Mismatch(name.symbol, expected, f"gone: no class {'.'.join(path)}")
    found = inspect.getattr_static(owner, last, MISSING)
    if name.kind == "attribute":
        known = _attributes(owner) if isinstance(owner, type) else frozenset()
        if last in known or (found is not MISSING and not inspect.isfunction(found)):
            return None
        return Mismatch(
            name.symbol, expected, f"gone: {'.'.join(path)} does not assign it", nearest(last, sorted(known))
        )
    if found is MISSING:
        return Mismatch(name.symbol, expected, "gone", nearest(last, sorted(vars(owner))))
    if name.kind == "class" and not isinstance(found, type):
        return Mismatch(name.symbol, expected, f"a {type(found).__name__} of that name")
    if name.kind == "function":
        return _check_function(name, found, expected)
    return None


def _check_function(name: Name, found: Any, expected: str) -> Mismatch | None:
    if isinstance(found, staticmethod | classmethod):
        found = found.__func__
    elif isinstance(found, property):
        found = found.fget
    elif isinstance(found, functools.cached_property):
        found = found.func
    if not callable(found):
        return Mismatch(name.symbol, expected, f"a {type(found).__name__} of that name")
    try:
        signature = _signature(found)
    except (TypeError, ValueError):
        return Mismatch(name.symbol, expected, "something without a signature")
    if name.parameters is None:
        return None
    parameters, defaults = _written(signature)
    differs = compare(name.use, name.parameters, parameters, lambda text, key: _same_value(text, defaults[key]))
    if differs is None:
        return None
    for key, value in defaults.items():
        differs = differs.replace(key, repr(value))
    return Mismatch(name.symbol, expected, differs)


def _signature(function: Any) -> inspect.Signature:
    """Look through wrappers that hand everything on (`torch.no_grad`), never through one with parameters of its own."""
    while True:
        wrapped = getattr(function, "__wrapped__", None)
        try:
            signature = inspect.signature(function, follow_wrapped=False)
        except ValueError:  # `functools.cache` has none of its own
            if wrapped is None:
                raise
        else:
            kinds = [parameter.kind for name, parameter in signature.parameters.items() if name not in ("self", "cls")]
            if wrapped is None or kinds != [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD]:
                return signature
        function = wrapped


def _written(signature: inspect.Signature) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Write a live signature as the contract does, with a key in place of each default's value."""
    defaults: dict[str, Any] = {}
    written: list[str] = []
    only_positional = 0
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.POSITIONAL_ONLY:
            only_positional += 1
        elif parameter.kind is parameter.KEYWORD_ONLY and not any(w.startswith("*") for w in written):
            written.append("*")
        if parameter.default is parameter.empty:
            star = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
            written.append(("**" if parameter.kind is parameter.VAR_KEYWORD else star) + parameter.name)
        else:
            key = f"<default {len(defaults)}>"
            defaults[key] = parameter.default
            written.append(f"{parameter.name}={key}")
    if only_positional:
        written.insert(only_positional, "/")
    return tuple(written), defaults


def _same_value(text: str, value: Any) -> bool:
    try:
        literal = ast.literal_eval(text)
    except ValueError:
        return True  # an expression of SGLang's own names: that there is a default is all that can be said
    return type(literal) is type(value) and bool(literal == value)


@functools.cache
def _attributes(owner: type) -> frozenset[str]:
    """What the class and its bases assign, by their source: instances are not built yet."""
    found: set[str] = set()
    for base in owner.__mro__[:-1]:
        # not inspect.getsource: it reads and parses the whole module again for each class
        file = getattr(sys.modules.get(base.__module__), "__file__", None)
        module = parse(Path(file).read_bytes()) if file and file.endswith(".py") else None
        node = find(module, base.__qualname__) if module else None
        if isinstance(node, ast.ClassDef):
            found |= attributes(node)
    return frozenset(found)
