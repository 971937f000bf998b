"""Both checks: the contract holds on its own tree, and each planted change is caught by name."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import pytest

from sglang_eagle3_patch.contract import live, source
from sglang_eagle3_patch.contract.compare import Mismatch
from sglang_eagle3_patch.contract.schema import Contract
from tests.contract.conftest import NAMES, SOURCE, Tree, name

Check = Callable[[Tree], list[Mismatch]]
BOTH = pytest.mark.parametrize("check", [Tree.on_source, Tree.on_live], ids=["source", "live"])


@BOTH
def test_holds(tree: Tree, check: Check) -> None:
    assert check(tree) == []


def test_source_imports_nothing(tree: Tree) -> None:
    tree.write("raise RuntimeError('imported')\n" + SOURCE)
    assert tree.on_source() == []
    assert "sglang.srt.worker" not in sys.modules


@BOTH
@pytest.mark.parametrize(
    ("was", "becomes", "expected"),
    [
        pytest.param("def forward(self, batch", "def forwards(self, batch", None, id="renamed method"),
        pytest.param(
            "def of(cls, size)",
            "def of(cls, size, rank)",
            "Worker.of: expected (cls, size) to call, found a further required parameter rank",
            id="new required parameter",
        ),
        pytest.param(
            "self.options, self.depth = options, depth",
            "self.options, self.depths = options, depth",
            "Worker.depth: expected an attribute to read, found gone: Worker does not assign it (nearest: depths)",
            id="removed attribute",
        ),
        pytest.param(
            "size=-1",
            "size=0",
            "Worker.build: expected (size=-1) to call, found parameter size=0 where size=-1 was",
            id="changed default",
        ),
        pytest.param(
            "def forward(self, batch, on_publish=None)",
            "def forward(self, batch, on_publish=None, extra=None)",
            "Worker.forward: expected (self, batch, on_publish=None) to override, "
            "found (self, batch, on_publish=None, extra=None)",
            id="new optional parameter of what we override",
        ),
        pytest.param(
            "def of(cls, size)",
            "def of(cls, *, size)",
            "Worker.of: expected (cls, size) to call, found parameter size no longer number 2 in (cls, *, size)",
            id="passed by position, taken by keyword",
        ),
        pytest.param(
            "def of(cls, size)",
            "def of(cls, rank=0, size=1)",
            "Worker.of: expected (cls, size) to call, found parameter size=1 where size was",
            id="a default that was none",
        ),
        pytest.param(
            "def helper(a, b=",
            "def helper(a, c=0, b=",
            "helper: expected (a, b='x') to call, found parameter b no longer number 2 in (a, c=0, b='x')",
            id="another place",
        ),
        pytest.param(
            "depth=1",
            "width=1",
            "Worker.__init__: expected (self, options, *, depth=1) to call, "
            "found no parameter depth in (self, options, *, width=1)",
            id="renamed parameter",
        ),
        pytest.param(
            "topk=(1, 2)",
            "topk=[1, 2]",
            "Worker.draft: expected (self, batch, /, topk=(1, 2), *more, flag=LIMIT, **rest) to override, "
            "found (self, batch, /, topk=[1, 2], *more, flag=LIMIT, **rest)",
            id="default of another type, behind a wrapper",
        ),
        pytest.param("LIMIT: int = 3", "LIMITS = LIMIT_ = 3", None, id="renamed name"),
        pytest.param("    size: int\n", "", None, id="removed field"),
        pytest.param("    shared = None\n", "", None, id="removed class attribute"),
        pytest.param("class Worker(Base):", "class Worker2(Base):", None, id="renamed class"),
        pytest.param("    @property\n", "", None, id="a property that became a method"),
    ],
)
def test_planted_change_is_caught(tree: Tree, check: Check, was: str, becomes: str, expected: str | None) -> None:
    assert was in SOURCE
    text = SOURCE.replace(was, becomes).replace("flag=LIMIT", "flag=3" if "LIMITS" in becomes else "flag=LIMIT")
    text = text.replace("if sys.maxsize > 1:", "if True:") if "forwards" in becomes else text
    tree.write(text)
    found = [str(mismatch).removeprefix("sglang.srt.worker:") for mismatch in check(tree)]
    if expected is None:
        assert found
    elif check is Tree.on_live and "LIMIT" in expected:
        assert found == [expected.rpartition("LIMIT")[0] + "3" + expected.rpartition("LIMIT")[2]]
    else:
        assert found == [expected]


@BOTH
def test_harmless_changes_pass(tree: Tree, check: Check) -> None:
    """What we call may grow an optional parameter at its end, and lines may move."""
    text = SOURCE.replace("def helper(a, b=", "def helper(a, b='x', c=").replace(
        "of(cls, size)", "of(cls, size, rank=0)"
    )
    tree.write("# moved\n\n" + text.replace('b="x"', "b='x'"))
    assert check(tree) == []


@BOTH
@pytest.mark.parametrize(
    "symbol", ["sglang.srt.wroker:Worker", "sglang.srt.worker:Wroker.forward", "sglang.srt.worker:Worker.inner.x"]
)
def test_gone(tree: Tree, check: Callable[..., list[Mismatch]], symbol: str) -> None:
    module, _, qualname = symbol.partition(":")
    gone = name(qualname, "class" if module.endswith("wroker") else "function")
    gone = type(gone)(symbol, gone.kind, gone.use, gone.why)
    (mismatch,) = check(tree, gone)
    assert mismatch.gone
    assert mismatch.symbol == symbol


@BOTH
def test_a_name_for_type_checkers_is_not_there(tree: Tree, check: Callable[..., list[Mismatch]]) -> None:
    (mismatch,) = check(tree, name("Typed", "name"))
    assert mismatch.gone


def test_the_nearest_module_is_named(tree: Tree) -> None:
    gone = type(NAMES[0])("sglang.srt.old.worker:Worker", "class", "read", "a test")
    assert tree.on_source(gone)[0].candidate == "sglang.srt.worker"


def test_signature_of(tree: Tree) -> None:
    assert source.signature_of(tree.package, "sglang.srt.worker:Worker.build") == ("size=-1",)
    assert source.signature_of(tree.package, "sglang.srt.worker:Worker.builds") is None
    assert source.signature_of(tree.package, "sglang.srt.worker:Worker") is None


def test_originals_are_read_instead_of_patched_files(tree: Tree) -> None:
    tree.write("x = 1\n")
    assert source.check(tree.package, Contract("1", NAMES), {"srt/worker.py": SOURCE.encode()}) == []


def replaced(tree: Tree, method: Any) -> list[str]:
    """Let a plugin replace `Worker.forward` in the running server, and check."""
    assert tree.on_live() == []
    sys.modules["sglang.srt.worker"].Worker.forward = method
    return [str(mismatch) for mismatch in live.check(Contract("1", NAMES))]


def test_a_plugin_that_changes_a_signature_is_caught(tree: Tree) -> None:
    def forward(self: Any, batch: Any) -> None: ...

    (said,) = replaced(tree, forward)
    assert said.endswith("Worker.forward: expected (self, batch, on_publish=None) to override, found (self, batch)")


def test_a_plugin_that_hides_it_behind_wraps_is_caught(tree: Tree) -> None:
    def original(self: Any, batch: Any, on_publish: Any = None) -> None: ...

    @functools.wraps(original)
    def forward(self: Any, batch: Any) -> None: ...

    assert "found (self, batch)" in replaced(tree, forward)[0]


def test_a_plugin_that_hands_everything_on_is_fine(tree: Tree) -> None:
    def original(self: Any, batch: Any, on_publish: Any = None) -> None: ...

    @functools.wraps(original)
    def forward(*args: Any, **kwargs: Any) -> None: ...

    assert replaced(tree, forward) == []


def test_a_plugin_that_puts_something_else_there_is_caught(tree: Tree) -> None:
    assert "found a int of that name" in replaced(tree, 3)[0]
