"""What each action writes, and that nothing else in the file moves."""

from __future__ import annotations

import difflib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_eagle3_patch.contract.paths import ContractError
from sglang_eagle3_patch.installer.edit import apply_edits, parse
from sglang_eagle3_patch.installer.refusal import Refusal
from sglang_eagle3_patch.installer.series import Edit

SOURCE = '''\
"""Module."""

from __future__ import annotations

import os


class Outer:
    """Doc."""

    x: int = 1

    @property
    def value(self):
        """Doc."""
        # about y
        y = f(1,
              2)  # trailing
        if y:
            return y
        elif y is None:
            return 0
        return g(y, [1, 2])

    if True:
        def hidden(self): return 1

def value(self):
    y = f(1, 2)

    def inner():
        return y
    return inner
'''


def edit(**changes: str) -> Edit:
    base = Edit("e", "m.py", "Outer.value", "insert_before", "new()", "why", "upstream", "later", "return g(y, [1, 2])")
    return replace(base, **changes)


def lines_of(*edits: Edit, source: str = SOURCE) -> list[str]:
    """Return the changed lines, `+` and `-` as in a diff without context."""
    after, problems = apply_edits("m.py", source.encode(), edits)
    assert problems == ()
    diff = difflib.unified_diff(source.splitlines(), after.decode().splitlines(), n=0, lineterm="")
    return [line for line in diff if not line.startswith(("---", "+++", "@@"))]


def problem_of(one: Edit, source: str = SOURCE) -> str:
    after, problems = apply_edits("m.py", source.encode(), (one,))
    assert after == source.encode()
    (mismatch,) = problems
    return str(mismatch)


MARK = "# sglang-eagle3-patch: e"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, [f"+        {MARK}", "+        new()"], id="insert_before"),
        pytest.param(
            {"action": "insert_after", "anchor": "y = f(1, 2)"},
            [f"+        {MARK}", "+        new()"],
            id="insert_after a statement that is laid out differently",
        ),
        pytest.param(
            {"action": "replace", "anchor": "y = f(1, 2)", "code": "y = 1\nif y:\n  z = 2"},
            [
                "-        y = f(1,",
                "-              2)  # trailing",
                f"+        {MARK}",
                "+        y = 1",
                "+        if y:",
                "+            z = 2",
            ],
            id="replace keeps the comment above and takes the file's indentation",
        ),
        pytest.param(
            {"action": "replace_expression", "anchor": "[1, 2]", "code": "[\n 3]"},
            ["-        return g(y, [1, 2])", f"+        {MARK}", "+        return g(y, ([", "+         3]))"],
            id="replace_expression",
        ),
        pytest.param(
            {"action": "replace_expression", "anchor": "y is None", "code": "not y"},
            ["-        elif y is None:", f"+        {MARK}", "+        elif not y:"],
            id="replace_expression in an elif",
        ),
        pytest.param(
            {"anchor": "if y:", "code": "# ours\nnew()"},
            [f"+        {MARK}", "+        # ours", "+        new()"],
            id="header of a compound statement, with a comment of ours",
        ),
        pytest.param(
            {"action": "prepend_to_body", "anchor": ""},
            [f"+        {MARK}", "+        new()"],
            id="prepend_to_body",
        ),
        pytest.param(
            {"action": "append_to_body", "anchor": "", "target": "Outer", "code": "z: int = 0"},
            [f"+    {MARK}", "+    z: int = 0"],
            id="append_to_body",
        ),
        pytest.param(
            {"action": "prepend_to_body", "anchor": "", "target": ""},
            [f"+{MARK}", "+new()"],
            id="module level, below the docstring and the future",
        ),
        pytest.param(
            {"anchor": "def value(self):", "target": "Outer"},
            [f"+    {MARK}", "+    new()"],
            id="a definition, above its decorators",
        ),
        pytest.param({"target": "value", "anchor": "return inner"}, [f"+    {MARK}", "+    new()"], id="a function"),
        pytest.param(
            {"target": "value.inner", "anchor": "return y"}, [f"+        {MARK}", "+        new()"], id="a closure"
        ),
    ],
)
def test_actions(changes: dict[str, str], expected: list[str]) -> None:
    assert lines_of(edit(**changes)) == expected


def test_where_the_lines_land() -> None:
    after, _ = apply_edits("m.py", SOURCE.encode(), (edit(action="prepend_to_body", anchor="", target=""),))
    assert after.decode().startswith(
        f'"""Module."""\n\nfrom __future__ import annotations\n{MARK}\nnew()\n\nimport os\n'
    )
    after, _ = apply_edits("m.py", SOURCE.encode(), (edit(action="prepend_to_body", anchor=""),))
    assert f'        """Doc."""\n        {MARK}\n        new()\n        # about y\n' in after.decode()


def test_several_edits_do_not_see_each_other() -> None:
    """The second one's anchor would match twice if it saw what the first one wrote."""
    first = edit(id="a", code="return g(y, [1, 2])", anchor="y = f(1, 2)")
    assert lines_of(first, edit(id="b"), edit(id="c", action="insert_after", code="last()")) == [
        "+        # sglang-eagle3-patch: a",
        "+        return g(y, [1, 2])",
        "+        # sglang-eagle3-patch: b",
        "+        new()",
        "+        # sglang-eagle3-patch: c",
        "+        last()",
    ]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"anchor": "return h(y)"}, "gone: no match (nearest: return y)"),
        ({"anchor": "return inner"}, "gone: no match"),  # another function's
        ({"target": "Outer.valve"}, "gone: no Outer.valve (nearest: Outer.value)"),
        ({"target": "Outer", "anchor": "", "action": "append_to_body"}, None),
        ({"action": "replace_expression", "anchor": "y"}, "matches"),
        ({"anchor": "elif y is None:"}, "not one statement"),
        ({"anchor": "a()\nb()"}, "not one statement"),
        ({"anchor": "if y is None:"}, "gone: no match"),  # an elif: nothing can go before it
        ({"target": "Outer.hidden", "anchor": "", "action": "append_to_body"}, "on its header's line"),
        ({"code": "# nothing"}, "has no code"),
    ],
)
def test_what_does_not_fit(changes: dict[str, str], expected: str | None) -> None:
    if expected is None:
        lines_of(edit(**changes))
        return
    try:
        said = problem_of(edit(**changes))
    except (Refusal, ContractError) as refused:
        said = str(refused)
    assert expected in said


@pytest.mark.parametrize(
    "source",
    [
        b"if x:\n\ty = 1\n\tz = 2\n",
        b"if x:\r\n  y = 1\r\n  z = 2",
        b"\xef\xbb\xbfif x:\n    y = 1\n    z = 2 # \xc3\xa9\n",
        b"# -*- coding: latin-1 -*-\nif x:\n    y = '\xe9'\n    z = 2\n",
        b"if x:\n    y = 1 ;  w = 2\n    z = 2 \\\n      + 1\n\x0c\n\n\n",
    ],
    ids=["tabs", "crlf", "bom", "latin-1", "odd"],
)
def test_other_bytes_stay(source: bytes) -> None:
    anchor = "z = 2 + 1" if b"+ 1" in source else "z = 2"
    after, problems = apply_edits("m.py", source, (edit(target="", anchor=anchor, code="if a:\n    b = 1"),))
    assert problems == ()
    newline = b"\r\n" if b"\r\n" in source else b"\n"
    indent = b"\t" if b"\t" in source else b"  " if newline == b"\r\n" else b"    "
    ours = [indent + MARK.encode(), indent + b"if a:", indent + indent + b"b = 1"]
    assert after.replace(b"".join(line + newline for line in ours), b"") == source


pieces = st.sampled_from(
    ["a = 1", "b  =  [1,2]", "# note", "", "   # indented note", "c = (\n  1 )", "'''doc\n  x'''", "pass;"]
)
bodies = st.lists(pieces, max_size=6)


@given(bodies, bodies, st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_an_insertion_only_adds_lines(above: list[str], below: list[str], newline: str, final: bool) -> None:
    text = "\n".join([*above, "anchor()", *below]) + ("\n" if final else "")
    source = text.replace("\n", newline).encode()
    try:
        parse("m.py", source)
    except Refusal:  # LibCST would not keep an indented comment at the very end, and we say so
        assert b"   # indented note" in source
        return
    if b"\r" not in source:
        newline = "\n"
    after, problems = apply_edits("m.py", source, (edit(target="", anchor="anchor()"),))
    assert problems == ()
    ours = f"{MARK}{newline}new(){newline}".encode()
    assert after.count(ours) == 1
    assert after.replace(ours, b"") == source
