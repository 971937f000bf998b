"""What `doctor` answers: the questions of somebody whose server does not do what the patch says."""

from __future__ import annotations

import py_compile
from pathlib import Path
from typing import Any

import pytest

from tests.installer.conftest import EDITS, Toy, run

START = "[2026-01-01 00:00:00 TP0] EAGLE-3 batch gate: threshold=0 (off)\n"


@pytest.fixture
def served(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> Toy:
    """The toy is the SGLang that this Python imports."""
    monkeypatch.syspath_prepend(str(toy.site))
    monkeypatch.chdir(toy.site.parent)
    monkeypatch.delenv("SGLANG_ENABLE_SPEC_V2", raising=False)
    return toy


def examined(toy: Toy, *options: str) -> dict[str, Any]:
    result = toy.run("doctor", "--json", *options)
    assert result.code == (1 if result.document["findings"] else 0)
    return result.document


def test_nothing_wrong(served: Toy) -> None:
    served.run("apply")
    report = examined(served)
    assert report["findings"] == []
    assert report["tree"]["state"] == "applied"
    assert report["tree"]["fits"] == "yes"
    assert report["imports"]["same_tree"] is True
    assert report["files"] == {str(served.package / edit["file"]): "patched" for edit in EDITS}
    assert report["spec_v2"] == "on: the only path in this release"
    assert "gate" in report["attributes"]["worker.GatedWorkerMixin"]
    assert set(report["machine"]["packages"]) >= {"torch", "sglang"}
    text = served.run("doctor").out
    assert "nothing wrong found" in text
    assert "srt/worker.py" in text


def test_not_patched(served: Toy) -> None:
    assert "the tree is not patched: run `apply`" in examined(served)["findings"]


def test_does_not_fit(served: Toy) -> None:
    served.set_release("9.9.9")
    assert any("SGLang 9.9.9 has no patch series" in finding for finding in examined(served)["findings"])


def test_another_sglang_is_imported(toy: Toy, served: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served.run("apply")
    shadow = tmp_path / "shadow"
    (shadow / "sglang").mkdir(parents=True)
    (shadow / "sglang/__init__.py").touch()
    monkeypatch.syspath_prepend(str(shadow))
    report = examined(served)
    assert report["imports"]["same_tree"] is False
    assert f"this Python imports {shadow / 'sglang'}, not {served.package}" in report["findings"]
    assert report["imports"]["other_sglang_on_path"] == [str(shadow / "sglang")]


def test_the_working_directory_comes_first(served: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served.run("apply")
    (tmp_path / "here/sglang").mkdir(parents=True)
    (tmp_path / "here/sglang/__init__.py").touch()
    monkeypatch.chdir(tmp_path / "here")
    (finding,) = examined(served)["findings"]
    assert f"`python -m sglang.launch_server` in {tmp_path / 'here'} imports {tmp_path / 'here/sglang'}" in finding


def test_bytecode_that_hides_the_patch(served: Toy) -> None:
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compiled = py_compile.compile(str(served.package / "srt/worker.py"), invalidation_mode=mode)
    fresh = py_compile.compile(str(served.package / "srt/options.py"))
    served.run("apply")
    report = examined(served)
    assert report["findings"] == [f"{compiled} hides the patched source from Python: delete it"]
    assert f"; {Path(str(compiled)).name} is unchecked" in report["files"][str(served.package / "srt/worker.py")]
    assert f"; {Path(str(fresh)).name} is stale" in report["files"][str(served.package / "srt/options.py")]


def test_a_compiled_module_that_hides_the_patch(served: Toy) -> None:
    shadow = served.package / "srt/worker.cpython-311-x86_64-linux-gnu.so"
    shadow.touch()
    served.run("apply")
    assert examined(served)["findings"] == [
        f"Python imports {shadow} instead of {served.package}/srt/worker.py: delete it"
    ]


@pytest.mark.parametrize(
    ("default", "given", "on"),
    [("False", None, False), ("False", "1", True), ("True", None, True), ("True", "0", False)],
)
def test_spec_v2(served: Toy, monkeypatch: pytest.MonkeyPatch, default: str, given: str | None, on: bool) -> None:
    (served.package / "srt/environ.py").write_text(f"class Envs:\n    SGLANG_ENABLE_SPEC_V2 = EnvBool({default})\n")
    served.run("apply")
    if given is not None:
        monkeypatch.setenv("SGLANG_ENABLE_SPEC_V2", given)
    report = examined(served)
    assert report["spec_v2"].startswith("on" if on else "off")
    advice = "spec v2 is off in this environment: start the server with SGLANG_ENABLE_SPEC_V2=1"
    assert report["findings"] == ([] if on else [advice])


def explained(toy: Toy, tmp_path: Path, log: str) -> dict[str, Any]:
    file = tmp_path / "server.log"
    file.write_text(log)
    report = examined(toy, "--log", str(file))
    assert isinstance(report["log"], dict)
    return report["log"]


def test_log_with_the_line(served: Toy, tmp_path: Path) -> None:
    served.run("apply")
    found = explained(served, tmp_path, f"INFO\n{START}INFO\n")
    assert found["start_line"] == "EAGLE-3 batch gate: threshold=0 (off)"
    assert examined(served, "--log", str(tmp_path / "server.log"))["findings"] == []


def test_log_without_the_line(served: Toy, tmp_path: Path) -> None:
    meaning = explained(served, tmp_path, "INFO\n")["meaning"]
    assert "no start-up line" in meaning[0]
    assert "is not patched: run `apply` on it" in meaning[1]
    served.run("apply")
    meaning = explained(served, tmp_path, "INFO\n")["meaning"]
    assert not any("not patched" in sentence for sentence in meaning)
    assert "the server imported another SGLang" in meaning[-1]


def test_log_of_a_server_that_died_before(served: Toy, tmp_path: Path) -> None:
    served.run("apply")
    log = "Traceback (most recent call last):\n  File x\ntorch.OutOfMemoryError: CUDA out of memory.\n"
    found = explained(served, tmp_path, log)
    assert found["first_error"] == "torch.OutOfMemoryError: CUDA out of memory."
    assert any(
        sentence.startswith("or the server died before that line, of: torch.OutOf") for sentence in found["meaning"]
    )


def test_log_of_the_crash(served: Toy, tmp_path: Path) -> None:
    """The log that started the project, and an attribute of ours."""
    served.run("apply")
    lost = "AttributeError: 'EAGLEWorkerV2' object has no attribute '{}'\n"
    meaning = explained(served, tmp_path, START + lost.format("spec_disable_batch_threshold") + lost.format("gate"))[
        "meaning"
    ]
    assert any("no class of sglang_eagle3_patch defines it" in sentence for sentence in meaning)
    assert any("has no attribute gate: worker.GatedWorkerMixin defines it" in sentence for sentence in meaning)


def test_no_sglang_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("doctor", str(tmp_path), "--json")
    assert result.code == 1
    assert "no SGLang in" in result.document["findings"][0]
    assert result.document["machine"]["python"]
