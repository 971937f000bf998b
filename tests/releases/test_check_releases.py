"""scripts/check_releases.py: it fails when a release does not hold, and writes the matrix where it belongs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trees import REPOSITORY, TREES_VARIABLE, unpacked

sys.path.insert(0, str(REPOSITORY / "scripts"))
from releases import matrix, recorded
from releases.round_trip import Outcome

RELEASE = "0.5.23"


def check(release: str, trees: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(REPOSITORY / "scripts/check_releases.py"), release]
    variables = os.environ | {TREES_VARIABLE: str(trees), "COLUMNS": "200"}
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


@pytest.fixture
def trees(tmp_path: Path) -> Path:
    """A folder with a copy of the release, whose files may be written to."""
    shutil.copytree(unpacked(RELEASE), tmp_path / RELEASE)
    return tmp_path


def test_a_release_that_holds(trees: Path) -> None:
    done = check(RELEASE, trees)
    assert done.returncode == 0, done.stderr
    assert "18 edits, 10 files" in done.stdout


def test_a_renamed_method_fails_and_is_named(trees: Path) -> None:
    worker = trees / RELEASE / "sglang/srt/speculative/base_spec_worker.py"
    worker.write_text(worker.read_text().replace("def weight_update_runners", "def runners_to_update"))
    done = check(RELEASE, trees)
    assert done.returncode == 1
    assert "sglang.srt.speculative.base_spec_worker:BaseSpecWorker.weight_update_runners" in done.stderr
    assert "gone" in done.stderr


def test_another_torch_pin_fails(trees: Path) -> None:
    (metadata,) = (trees / RELEASE).glob("sglang-*.dist-info/METADATA")
    metadata.write_text(metadata.read_text().replace("torch==2.14.1", "torch==2.15.0"))
    done = check(RELEASE, trees)
    assert done.returncode == 1
    assert "the series says torch 2.14.1, the wheel pins 2.15.0" in done.stderr


def test_the_matrix_goes_between_its_markers(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text(f"before\n{matrix.BEGIN}\nold\n{matrix.END}\nafter\n")
    page.write_text(matrix.replaced(page, "new\n"))
    assert page.read_text() == f"before\n{matrix.BEGIN}\nnew\n{matrix.END}\nafter\n"
    assert matrix.replaced(page, "new\n") == page.read_text()
    page.write_text("no markers\n")
    with pytest.raises(ValueError, match="lacks the markers"):
        matrix.replaced(page, "new\n")


def test_a_row_claims_what_was_run_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = {"plain_graphs": 25, "speculative_graphs": 35, "accept_length": 3.9}
    runs = {
        "1.0": {"plain_steps": 30, "speculative_steps": 40, "graphs": graphs},
        "1.2": {"plain_steps": 31, "speculative_steps": 41},
    }
    monkeypatch.setattr(recorded, "cpu_runs", lambda: runs)
    monkeypatch.setattr(recorded, "gpu_runs", lambda: {"1.1": {"H200 (triton)"}})
    good = Outcome("1.0", "2.0", names=3, edits=2, files=1)
    failed_one = Outcome("1.1", "2.0", problem="an anchor is gone")
    run, failed, eager = matrix.rows([good, failed_one, Outcome("1.2", "2.0", names=3, edits=2, files=1)])
    assert run == (
        "1.0",
        "2.0",
        "2 edits, 1 files",
        "3 names",
        "30 plain, 40 speculative steps, same output",
        "25 plain, 35 speculative steps in graphs, same output, accept length 3.9",
        "not run",
    )
    assert failed == ("1.1", "2.0", "no", "no", "not run", "not run", "H200 (triton)")
    assert eager[4:] == ("31 plain, 41 speculative steps, same output", "not run", "not run")


def test_a_recorded_run_is_kept_beside_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(recorded, "CPU_RUNS", tmp_path / "releases.json")
    recorded.record_cpu_run("1.0", {"plain_steps": 30})
    recorded.record_cpu_run("1.1", {"plain_steps": 31})
    recorded.record_cpu_run("1.0", {"plain_steps": 32})
    assert recorded.cpu_runs() == {"1.0": {"plain_steps": 32}, "1.1": {"plain_steps": 31}}
