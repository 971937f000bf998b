"""For any signature: source and live read the same parameters, and every difference is seen."""

from __future__ import annotations

import ast
import inspect
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sglang_eagle3_patch.contract.compare import compare, parameters_of, same_text
from sglang_eagle3_patch.contract.live import _written

defaults = st.sampled_from(["", "=None", "=1", "=-1", "='x=y'", "=(1, 2)", "=1e-05"])


@st.composite
def signatures(draw: st.DrawFn, names: str = "abcdefgh", most: int = 2) -> str:
    order = list(draw(st.permutations(list(names))))
    count = [draw(st.integers(0, most)) for _ in range(3)]
    values = draw(st.lists(defaults, min_size=6, max_size=6))
    positional = sorted(values[: count[0] + count[1]], key=bool)  # a default, then none, is not Python
    parts = [order.pop() + default for default in positional]
    if count[0]:
        parts.insert(count[0], "/")
    star = draw(st.sampled_from(["", "*args"]))
    if star or count[2]:
        parts.append(star or "*")
    parts += [order.pop() + default for default in values[len(positional) : len(positional) + count[2]]]
    return ", ".join([*parts, *draw(st.sampled_from([[], ["**rest"]]))])


def of_source(signature: str) -> tuple[str, ...]:
    function = ast.parse(f"def f({signature}): pass").body[0]
    assert isinstance(function, ast.FunctionDef)
    return parameters_of(function.args)


def of_live(signature: str) -> tuple[str, ...]:
    namespace: dict[str, Any] = {}
    exec(f"def f({signature}): pass", namespace)
    written, values = _written(inspect.signature(namespace["f"]))
    return tuple(next((p.replace(k, repr(v)) for k, v in values.items() if p.endswith(k)), p) for p in written)


@given(signatures())
def test_source_and_live_agree(signature: str) -> None:
    assert of_source(signature) == of_live(signature)
    assert ", ".join(of_source(signature)) == signature


@given(signatures(), signatures())
def test_override_is_equality(one: str, other: str) -> None:
    same = compare("override", of_source(one), of_source(other), same_text) is None
    assert same == (one == other)


few = signatures("abc", 1)  # so few that many pairs compare well


@given(few, few)
def test_a_call_that_compares_well_binds(listed: str, tree: str) -> None:
    """If the tree takes what the contract lists, then passing just that binds; read off Python itself."""
    expected = of_source(listed)
    if compare("call", expected, of_source(tree), same_text) is not None:
        return
    namespace: dict[str, Any] = {}
    exec(f"def f({tree}): pass", namespace)
    positional, keyword, by_keyword = [], {}, False
    for parameter in expected:
        by_keyword = by_keyword or parameter.startswith("*")
        if parameter.startswith("*") or parameter == "/":
            continue
        if by_keyword:
            keyword[parameter.partition("=")[0]] = 0
        else:
            positional.append(0)
    inspect.signature(namespace["f"]).bind(*positional, **keyword)


@given(signatures())
def test_a_call_of_everything_holds_on_itself(signature: str) -> None:
    assert compare("call", of_source(signature), of_source(signature), same_text) is None
