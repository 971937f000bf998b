"""A toy SGLang and a toy series, and a way to call the command."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sglang_eagle3_patch.installer.cli import app

WORKER = '''\
"""A worker."""

import os


class Worker:
    """Works."""

    def __init__(self, size, depth=1):
        self.size = size  # in tokens

    def step(self, batch, on_publish=None):
        # decide
        if batch:
            return self.size
        return 0
'''
OPTIONS = (
    "class Options:\r\n    size: int = 4\r\n\r\n    def check(self):\r\n        return self.size > 0"  # no newline
)
LIST = "VALUES = [1, 2]\n"

EDITS: list[dict[str, str]] = [
    {
        "id": "step",
        "file": "srt/worker.py",
        "target": "Worker.step",
        "anchor": "if batch:",
        "action": "insert_before",
        "code": "batch = hook(batch)",
    },
    {
        "id": "import-hook",
        "file": "srt/worker.py",
        "target": "",
        "anchor": "import os",
        "action": "insert_after",
        "code": "from hooks import hook",
    },
    {
        "id": "option",
        "file": "srt/options.py",
        "target": "Options",
        "anchor": "size: int = 4",
        "action": "insert_after",
        "code": "threshold: int = 0",
    },
    {
        "id": "values",
        "file": "srt/nested/values.py",
        "target": "",
        "anchor": "[1, 2]",
        "action": "replace_expression",
        "code": "[1, 2, 3]",
    },
]
NAMES: list[dict[str, Any]] = [
    {
        "symbol": "sglang.srt.worker:Worker.step",
        "kind": "function",
        "use": "override",
        "parameters": ["self", "batch", "on_publish=None"],
    },
    {"symbol": "sglang.srt.worker:Worker.size", "kind": "attribute", "use": "read"},
]


def toml_tables(table: str, entries: list[dict[str, Any]], **common: str) -> str:
    """Write entries as an array of tables."""
    blocks = []
    for entry in entries:
        lines = [f"{key} = {json.dumps(value)}" for key, value in (common | entry).items()]
        blocks.append("\n".join([f"[[{table}]]", *lines, ""]))
    return "\n".join(blocks)


@dataclass
class Result:
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        loaded = json.loads(self.out)
        assert isinstance(loaded, dict)
        return loaded


@dataclass
class Toy:
    """A toy tree in a site-packages folder, and its patches folder."""

    site: Path
    patches: Path
    edits: list[dict[str, str]] = field(default_factory=lambda: [dict(edit) for edit in EDITS])
    names: list[dict[str, Any]] = field(default_factory=lambda: [dict(name) for name in NAMES])

    @property
    def package(self) -> Path:
        return self.site / "sglang"

    def write_series(self, release: str = "1.0.0", head: str = "") -> None:
        folder = self.patches / f"v{release}"
        folder.mkdir(parents=True, exist_ok=True)
        head = f'release = "{release}"\n' + (head or 'torch = "2"\ngeneration = "toy"\n')
        register = {"why": "a test", "upstream": "nothing", "retire_when": "never"}
        (folder / "series.toml").write_text(head + toml_tables("edit", self.edits, **register))
        (folder / "contract.toml").write_text(toml_tables("name", self.names, why="a test"))

    def set_release(self, release: str) -> None:
        (self.package / "_version.py").write_text(f"__version__ = version = '{release}'\n")

    def snapshot(self) -> dict[str, tuple[bytes, int, int]]:
        return snapshot(self.site)

    def run(self, command: str, *options: str, tree: Path | None = None) -> Result:
        return run(command, str(tree or self.site), *options)


def run(*arguments: str) -> Result:
    """Call the command in this process."""
    result = CliRunner().invoke(app, arguments)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Result(result.exit_code, result.stdout, result.stderr)


def in_child(function: Callable[[], str]) -> str:
    """Run `function` in a forked process of its own; return what it returned, or "exit N" where it was cut short."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writing, function().encode())
            os._exit(0)
        except BaseException as error:
            os.write(writing, repr(error).encode())
        finally:
            os._exit(1)
    os.close(writing)
    with open(reading, "rb") as pipe:
        said = pipe.read().decode()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return said if said or not status else f"exit {status}"


def snapshot(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    """Return bytes, mode and modification time of every file, folders included by name."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = os.lstat(path)
        is_file = stat.S_ISREG(status.st_mode)
        content = path.read_bytes() if is_file else b""
        found[str(path.relative_to(folder))] = (content, status.st_mode, status.st_mtime_ns if is_file else 0)
    return found


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toy:
    made = Toy(tmp_path / "site-packages", tmp_path / "patches")
    for file, text in {
        "__init__.py": "",
        "srt/worker.py": WORKER,
        "srt/options.py": OPTIONS,
        "srt/nested/values.py": LIST,
        "srt/untouched.py": "x = 1\n",
    }.items():
        path = made.package / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    made.set_release("1.0.0")
    made.write_series()
    (made.site / "sglang_eagle3_patch").mkdir()
    monkeypatch.setenv("SGLANG_EAGLE3_PATCHES", str(made.patches))
    return made
