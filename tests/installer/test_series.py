"""The series' schema, and what a series inherits."""

from __future__ import annotations

import pytest

from sglang_eagle3_patch.contract.paths import ContractError, candidates, releases
from sglang_eagle3_patch.installer import series
from tests.installer.conftest import Toy


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("why", None, "edit 'step' lacks why"),
        ("upstream", "  ", "edit 'step' lacks upstream"),
        ("retire_when", None, "edit 'step' lacks retire_when"),
        ("code", "", "edit 'step' lacks code"),
        ("file", "/etc/x.py", "not a Python file inside"),
        ("file", "srt/../../x.py", "not a Python file inside"),
        ("file", "srt/x.cpp", "not a Python file inside"),
        ("action", "insert", "has action 'insert'; known are"),
        ("anchor", None, "insert_before needs an anchor"),
        ("action", "append_to_body", "append_to_body takes no anchor"),
        ("ancor", "x", "unknown key ancor"),
        ("target", None, "lacks target"),
        ("id", "option", "has two edits named 'option'"),
    ],
)
def test_an_edit_is_held_to_its_schema(toy: Toy, key: str, value: str | None, sentence: str) -> None:
    toy.edits[0].pop(key, None)
    if value is not None:
        toy.edits[0][key] = value
    toy.write_series()
    path = toy.patches / "v1.0.0/series.toml"
    if value is None and key in ("why", "upstream", "retire_when"):
        first, *rest = path.read_text().split("\n\n")
        path.write_text("\n\n".join(["\n".join(x for x in first.split("\n") if not x.startswith(key)), *rest]))
    with pytest.raises(ContractError, match=r"v1\.0\.0/series\.toml") as refused:
        series.load("1.0.0")
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("head", "sentence"),
    [
        ('torch = "2"\n', "generation is missing"),
        ('generation = "toy"\n', "torch is missing"),
        ('torch = "2"\ngeneration = "toy"\nparents = "0.9"\n', "unknown key parents"),
        ('torch = "2"\ngeneration = "toy"\nparent = "0.9"\n', "v0.9/series.toml is missing"),
        ('torch = "2"\ngeneration = "toy"\nparent = "1.0.0"\n', "go in a circle"),
        ('torch = "2"\ngeneration = "toy"\ndrop = ["x"]\n', "drops edit 'x', which no parent has"),
        ('torch = "2\n', "is not valid TOML"),
    ],
)
def test_a_series_is_held_to_its_schema(toy: Toy, head: str, sentence: str) -> None:
    toy.write_series(head=head)
    with pytest.raises(ContractError) as refused:
        series.load("1.0.0")
    assert sentence in str(refused.value)
    assert toy.run("apply").code == 2


def test_a_folder_of_another_release(toy: Toy) -> None:
    (toy.patches / "v1.0.0").rename(toy.patches / "v1.0.1")
    with pytest.raises(ContractError, match=r"release is '1.0.0' in the folder v1.0.1"):
        series.load("1.0.1")


def test_inheritance(toy: Toy) -> None:
    toy.edits = [toy.edits[0] | {"code": "changed()"}]
    toy.names = []
    toy.write_series("1.0.1", head='parent = "1.0.0"\ndrop = ["values"]\ntorch = "3"\n')
    toy.edits = []
    toy.write_series("1.0.2", head='parent = "1.0.1"\n')
    loaded = series.load("1.0.2")
    assert [edit.id for edit in loaded.edits] == ["step", "import-hook", "option"]
    assert loaded.edits[0].code == "changed()"
    assert (loaded.parent, loaded.torch, loaded.generation) == ("1.0.1", "3", "toy")
    assert series.load("1.0.0").parent is None


def test_which_series_a_version_gets(toy: Toy) -> None:
    for release in ("0.9.9", "0.10.0", "0.10.0.post1"):
        toy.write_series(release)
    assert releases() == ["0.9.9", "0.10.0", "0.10.0.post1", "1.0.0"]
    assert candidates("0.10.0.post1") == ["0.10.0.post1"]
    assert candidates("0.10.0+cu129") == ["0.10.0"]
    assert candidates("0.10.1.dev123+gabc") == ["0.10.0.post1", "1.0.0"]
    assert candidates("1.0.1rc0") == ["1.0.0"]
    assert candidates("0.9.9.dev5") == ["0.9.9"]
    for version in ("0.10.1", "0.9.9.post1", "0.0.0.dev0", "banana"):
        with pytest.raises(ContractError):
            candidates(version)
