"""The contract's schema, what a contract inherits, and that this room stays light."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sglang_eagle3_patch.contract import paths
from sglang_eagle3_patch.contract.paths import ContractError
from sglang_eagle3_patch.contract.schema import load

ENTRY = {"symbol": "sglang.a:B.c", "kind": "function", "use": "call", "parameters": ["self"], "why": "a test"}


class Patches:
    """A patches folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, release: str, *entries: dict[str, Any], parent: str | None = None, head: str = "") -> None:
        folder = self.folder / f"v{release}"
        folder.mkdir()
        series = f'release = "{release}"\n' + (f'parent = "{parent}"\n' if parent else "")
        (folder / "series.toml").write_text(series)
        tables = ["[[name]]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in entry.items()) for entry in entries]
        (folder / "contract.toml").write_text("\n".join([head, *tables]))


@pytest.fixture
def patches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Patches:
    monkeypatch.setenv(paths.PATCHES_VARIABLE, str(tmp_path))
    return Patches(tmp_path)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"symbol": ""}, "an entry lacks symbol"),
        ({"symbol": "sglang.a"}, "not written as module:Qualified.name"),
        ({"kind": "method"}, "has kind 'method'; known are"),
        ({"use": "write"}, "has use 'write'; known are"),
        ({"why": " "}, "sglang.a:B.c lacks why"),
        ({"wy": "x"}, "has an unknown key wy"),
        ({"kind": "class"}, "parameters of sglang.a:B.c must be a list of strings, and it a function"),
        ({"parameters": [1]}, "must be a list of strings"),
        ({"kind": "attribute", "symbol": "sglang.a:b"}, "written as module:Class.attribute"),
    ],
)
def test_an_entry_is_held_to_its_schema(patches: Patches, changes: dict[str, Any], sentence: str) -> None:
    patches.write("1.0.0", ENTRY | changes)
    with pytest.raises(ContractError, match=r"v1\.0\.0/contract\.toml") as refused:
        load("1.0.0")
    assert sentence in str(refused.value)


def test_parameters_may_be_left_to_port(patches: Patches) -> None:
    patches.write("1.0.0", {key: value for key, value in ENTRY.items() if key != "parameters"})
    assert load("1.0.0", complete=False).names[0].parameters is None
    with pytest.raises(ContractError, match="--write-contract"):
        load("1.0.0")


@pytest.mark.parametrize(
    ("head", "entries", "sentence"),
    [
        ('drop = ["sglang.a:B.c"]', [], "drops sglang.a:B.c, which no parent lists"),
        ("names = []", [], "unknown key names"),
        ("", [ENTRY, ENTRY], "lists sglang.a:B.c (call) twice"),
    ],
)
def test_a_contract_is_held_to_its_schema(
    patches: Patches, head: str, entries: list[dict[str, Any]], sentence: str
) -> None:
    patches.write("1.0.0", *entries, head=head)
    with pytest.raises(ContractError) as refused:
        load("1.0.0")
    assert sentence in str(refused.value)


def test_inheritance(patches: Patches) -> None:
    other = ENTRY | {"use": "override"}
    patches.write("1.0.0", ENTRY, other, ENTRY | {"symbol": "sglang.a:gone"})
    changed = ENTRY | {"parameters": ["self", "x"]}
    patches.write("1.0.1", changed, parent="1.0.0", head='drop = ["sglang.a:gone"]')
    patches.write("1.0.2", parent="1.0.1")
    (patches.folder / "v1.0.2/contract.toml").unlink()
    assert [(name.use, name.parameters) for name in load("1.0.2").names] == [
        ("call", ("self", "x")),
        ("override", ("self",)),
    ]


def test_the_folder_is_found_beside_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(paths.PATCHES_VARIABLE, raising=False)
    assert (paths.patches_root() / "v0.5.20" / "series.toml").is_file()


def test_the_contract_is_light() -> None:
    """A server imports it: nothing of the installer's tools, and no torch before SGLang has it."""
    code = (
        "import sys, pkgutil, importlib, sglang_eagle3_patch.contract as c\n"
        "for m in pkgutil.iter_modules(c.__path__): importlib.import_module(f'{c.__name__}.{m.name}')\n"
        "print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "sglang_eagle3_patch" in loaded
    assert not {"libcst", "typer", "rich", "torch", "sglang"} & set(loaded)


def test_the_halves_know_nothing_of_each_other() -> None:
    package = Path(paths.__file__).parents[1]
    rules = {"runtime": ["installer"], "installer": ["runtime"], "contract": ["runtime", "installer"]}
    for room, others in rules.items():
        files = list((package / room).rglob("*.py"))
        assert files
        for file in files:
            for other in others:
                assert f"sglang_eagle3_patch.{other}" not in file.read_text(), file
