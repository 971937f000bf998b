"""`port`: what of the nearest older series holds on another release, what changed, moved or is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglang_eagle3_patch.contract import schema
from tests.installer.conftest import WORKER, Toy


def findings(toy: Toy) -> dict[str, tuple[str, str, str | None]]:
    document = toy.run("port", "--json").document
    assert document["series"] == "1.0.0"
    return {f["entry"]: (f["verdict"], f["detail"], f["candidate"]) for f in document["findings"]}


def test_all_holds(toy: Toy) -> None:
    toy.set_release("1.4.0")
    before = toy.snapshot()
    assert toy.run("port").out == "series v1.0.0 on SGLang 1.4.0: 6 of 6 hold\n"
    assert {verdict for verdict, _, _ in findings(toy).values()} == {"holds"}
    assert toy.snapshot() == before


@pytest.mark.parametrize(
    ("was", "becomes", "entry", "verdict", "candidate"),
    [
        ("if batch:", "if batches:", "step", "gone", "if batches:"),
        ("def step(", "def steps(", "step", "moved", "Worker.steps"),
        ("return 0", "if batch:\n            pass", "step", "changed", None),
        ("class Worker:", "class Workers:", "step", "moved", "Workers.step"),
        ("batch, on_publish", "batch, publish", "sglang.srt.worker:Worker.step (override)", "changed", None),
        ("def step(", "def stepp(", "sglang.srt.worker:Worker.step (override)", "gone", "step"),
        ("self.size", "self.sizes", "sglang.srt.worker:Worker.size (read)", "gone", "sizes"),
        (
            "class Worker:",
            "class Workers:",
            "sglang.srt.worker:Worker.step (override)",
            "moved",
            "sglang.srt.worker:Workers.step",
        ),
    ],
)
def test_what_differs(toy: Toy, was: str, becomes: str, entry: str, verdict: str, candidate: str | None) -> None:
    toy.set_release("1.4.0")
    assert was in WORKER
    (toy.package / "srt/worker.py").write_text(WORKER.replace(was, becomes))
    found = findings(toy)[entry]
    assert found[0] == verdict, found
    assert (candidate in (found[2] or "")) if candidate else found[2] is None
    assert toy.run("apply").code == 2


def test_a_file_that_moved(toy: Toy) -> None:
    toy.set_release("1.4.0")
    (toy.package / "srt/worker.py").rename(toy.package / "srt/nested/worker.py")
    found = findings(toy)
    assert found["step"][0] == "gone"
    assert "srt/nested/worker.py" in (found["step"][2] or "")
    moved = found["sglang.srt.worker:Worker.step (override)"]
    assert (moved[0], moved[2]) == ("moved", "sglang.srt.nested.worker:Worker.step")


def test_contract_is_written_for_the_tree(toy: Toy, tmp_path: Path) -> None:
    """Nobody types a signature: they are read, and a contract says only what its parent does not."""
    del toy.names[0]["parameters"]
    toy.names.append({"symbol": "sglang.srt.worker:Worker.__init__", "kind": "function", "use": "call"})
    toy.names[2]["parameters"] = ["self", "size", "*", "depth=2"]
    toy.write_series()
    assert toy.run("apply").code == 2
    own = toy.patches / "v1.0.0/contract.toml"
    assert toy.run("port", "--write-contract", str(own)).code == 0
    assert [(name.qualname, name.parameters) for name in schema.load("1.0.0").names] == [
        ("Worker.step", ("self", "batch", "on_publish=None")),
        ("Worker.size", None),
        ("Worker.__init__", ("self", "size", "*", "depth=1")),
    ]
    assert toy.run("check").code == 0

    toy.set_release("1.0.1")
    text = WORKER.replace("on_publish=None", "publish=None").replace("self.size", "self.sizes")
    (toy.package / "srt/worker.py").write_text(text)
    toy.edits, toy.names = [], []
    new = tmp_path / "contract.toml"
    assert toy.run("port", "--write-contract", str(new)).code == 0
    toy.write_series("1.0.1", head='parent = "1.0.0"\n')
    (toy.patches / "v1.0.1/contract.toml").write_text(new.read_text())
    assert new.read_text().count("[[name]]") == 1
    assert [(name.qualname, name.parameters) for name in schema.load("1.0.1").names] == [
        ("Worker.step", ("self", "batch", "publish=None")),
        ("Worker.__init__", ("self", "size", "*", "depth=1")),
    ]
    assert toy.run("check").code == 0
