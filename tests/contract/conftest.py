"""A small tree, its contract, and the same tree as importable modules."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sglang_eagle3_patch.contract import live, source
from sglang_eagle3_patch.contract.compare import Mismatch
from sglang_eagle3_patch.contract.schema import Contract, Name

SOURCE = """\
import contextlib
import functools
import sys
from dataclasses import dataclass
from os import path as renamed
from typing import TYPE_CHECKING


def handing_on(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        return function(*args, **kwargs)
    return inner


def handing_on_with_self(function):
    @functools.wraps(function)
    def inner(self, *args, **kwargs):
        return function(self, *args, **kwargs)
    return inner


LIMIT: int = 3


@dataclass
class Options:
    size: int
    names: tuple = ()


class Base:
    def __init__(self):
        self.inherited = 1


class Worker(Base):
    shared = None

    def __init__(self, options, *, depth=1):
        self.options, self.depth = options, depth

    if sys.maxsize > 1:
        @handing_on_with_self
        def forward(self, batch, on_publish=None):
            self.late: int = 2

    @handing_on
    def draft(self, batch, /, topk=(1, 2), *more, flag=LIMIT, **rest):
        with open("x") as self.handle:
            pass

    @property
    def backends(self):
        return ()

    @functools.cached_property
    def slow(self):
        return 1

    @staticmethod
    def build(size=-1):
        return size

    @classmethod
    def of(cls, size):
        return cls(size)


@functools.lru_cache
def cached(size):
    return size


if TYPE_CHECKING:
    from nowhere import Typed


try:
    import torch_that_is_not_there
except ImportError:
    def helper(a, b="x"):
        return a
"""


def name(symbol: str, kind: str, use: str = "read", *parameters: str) -> Name:
    return Name(f"sglang.srt.worker:{symbol}", kind, use, "a test", parameters or None)


NAMES = (
    name("LIMIT", "name"),
    name("renamed", "name"),
    name("Worker", "class"),
    name("Worker.__init__", "function", "call", "self", "options", "*", "depth=1"),
    name("Worker.forward", "function", "override", "self", "batch", "on_publish=None"),
    name("Worker.draft", "function", "override", "self", "batch", "/", "topk=(1, 2)", "*more", "flag=LIMIT", "**rest"),
    name("Worker.build", "function", "call", "size=-1"),
    name("Worker.of", "function", "call", "cls", "size"),
    name("Worker.backends", "attribute"),
    name("Worker.backends", "function", "override", "self"),
    name("Worker.options", "attribute"),
    name("Worker.depth", "attribute"),
    name("Worker.late", "attribute"),
    name("Worker.handle", "attribute"),
    name("Worker.shared", "attribute"),
    name("Options.size", "attribute"),
    name("Options.names", "attribute"),
    name("Worker.slow", "attribute"),
    name("Worker.slow", "function", "override", "self"),
    name("cached", "function", "call", "size"),
    name("helper", "function", "call", "a", "b='x'"),
)


@dataclass
class Tree:
    """The module `sglang.srt.worker`, on disk and importable."""

    package: Path

    @property
    def file(self) -> Path:
        return self.package / "srt/worker.py"

    def write(self, text: str) -> None:
        ast.parse(text)
        self.file.write_text(text)

    def on_source(self, *names: Name) -> list[Mismatch]:
        return source.check(self.package, Contract("1", names or NAMES))

    def on_live(self, *names: Name) -> list[Mismatch]:
        for module in [module for module in sys.modules if module.partition(".")[0] == "sglang"]:
            del sys.modules[module]
        importlib.invalidate_caches()
        return live.check(Contract("1", names or NAMES))


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tree]:
    made = Tree(tmp_path / "sglang")
    (made.package / "srt").mkdir(parents=True)
    (made.package / "__init__.py").touch()
    (made.package / "srt/__init__.py").touch()
    made.write(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    kept = {module: sys.modules[module] for module in sys.modules if module.partition(".")[0] == "sglang"}
    yield made
    for module in [module for module in sys.modules if module.partition(".")[0] == "sglang"]:
        del sys.modules[module]
    sys.modules.update(kept)
