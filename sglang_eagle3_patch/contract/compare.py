"""What a mismatch is, and the rule that compares two parameter lists: for the check on source and the live one."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass

SameDefault = Callable[[str, str], bool]


@dataclass(frozen=True)
class Mismatch:
    """One name that is not as the contract says.

    Attributes:
        symbol: `module:Qualified.name`.
        expected: what the contract says.
        found: what is there.
        candidate: the nearest name that is there, when the symbol is gone.
    """

    symbol: str
    expected: str
    found: str
    candidate: str | None = None

    @property
    def gone(self) -> bool:
        """The name is not there at all."""
        return self.found.startswith("gone")

    def __str__(self) -> str:
        nearest = f" (nearest: {self.candidate})" if self.candidate else ""
        return f"{self.symbol}: expected {self.expected}, found {self.found}{nearest}"


def parameters_of(arguments: ast.arguments) -> tuple[str, ...]:
    """Return a parameter list as the contract writes it: names and defaults, without annotations."""
    written: list[str] = []
    positional = [*arguments.posonlyargs, *arguments.args]
    first_default = len(positional) - len(arguments.defaults)
    for index, argument in enumerate(positional):
        default = arguments.defaults[index - first_default] if index >= first_default else None
        written.append(_parameter(argument.arg, default))
        if index + 1 == len(arguments.posonlyargs):
            written.append("/")
    if arguments.vararg:
        written.append(f"*{arguments.vararg.arg}")
    elif arguments.kwonlyargs:
        written.append("*")
    written += [_parameter(a.arg, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    if arguments.kwarg:
        written.append(f"**{arguments.kwarg.arg}")
    return tuple(written)


def _parameter(name: str, default: ast.expr | None) -> str:
    return name if default is None else f"{name}={ast.unparse(default)}"


def compare(use: str, expected: Sequence[str], found: Sequence[str], same: SameDefault) -> str | None:
    """Return what differs in one phrase, or None when `found` may be used as `expected` says.

    Args:
        use: `override` demands equality, `call` that every listed parameter is taken in the way it is passed and no
            other is required, `read` nothing.
        expected: the contract's parameters.
        found: the tree's parameters.
        same: whether two written defaults are one.
    """
    if use == "read":
        return None
    if use == "override":
        equal = len(expected) == len(found) and all(_equal(e, f, same) for e, f in zip(expected, found, strict=True))
        return None if equal else f"({', '.join(found)})"
    by_position, by_keyword = _split(expected)
    tree_position, tree_keyword = _split(found)
    tree = {_bare(p): p for p in (*tree_position, *tree_keyword)}
    only_position = {_bare(parameter) for parameter in found[: found.index("/")]} if "/" in found else set()
    listed = [*by_position, *by_keyword]
    for index, parameter in enumerate(listed):
        name = _bare(parameter)
        if name not in tree:
            return f"no parameter {name} in ({', '.join(found)})"
        if not _equal(parameter, tree[name], same):
            return f"parameter {tree[name]} where {parameter} was"
        place = [_bare(p) for p in tree_position[index : index + 1]]
        if index >= len(by_position) and name in only_position:
            return f"parameter {name} by position only in ({', '.join(found)})"
        if index < len(by_position) and not name.startswith("*") and place != [name]:
            return f"parameter {name} no longer number {index + 1} in ({', '.join(found)})"
    known = {_bare(parameter) for parameter in listed}
    for name, parameter in tree.items():
        if "=" not in parameter and not name.startswith("*") and name not in known:
            return f"a further required parameter {name}"
    return None


def same_text(expected: str, found: str) -> bool:
    """Defaults on source: one expression, however it is formatted."""
    return _normal(expected) == _normal(found)


def _normal(expression: str) -> str:
    try:
        return ast.dump(ast.parse(expression, mode="eval"))
    except SyntaxError:
        return expression


def _bare(parameter: str) -> str:
    return parameter.partition("=")[0].strip()


def _equal(expected: str, found: str, same: SameDefault) -> bool:
    name, has_default, default = expected.partition("=")
    other, other_has, other_default = found.partition("=")
    return (
        name.strip() == other.strip()
        and has_default == other_has
        and (not has_default or same(default.strip(), other_default.strip()))
    )


def _split(parameters: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split into what is passed by position and what by keyword; the markers `*` and `/` fall away."""
    position: list[str] = []
    keyword: list[str] = []
    target = position
    for parameter in parameters:
        if parameter == "/":
            continue
        if parameter.startswith("*"):
            if parameter != "*":
                keyword.append(parameter)
            target = keyword
        else:
            target.append(parameter)
    return position, keyword
