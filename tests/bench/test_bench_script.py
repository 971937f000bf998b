"""The whole script with its worker processes, on a package named `sglang` that is the fake engine."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Bench = Callable[..., subprocess.CompletedProcess[str]]
HERE = Path(__file__).resolve().parent
SCRIPT = HERE.parents[1] / "scripts" / "bench_fallback.py"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    package = tmp_path / "site" / "sglang"
    (package / "srt").mkdir(parents=True)
    (package / "__init__.py").write_text("from fake_engine import Engine, __version__\n")
    (package / "srt" / "__init__.py").touch()
    (package / "srt" / "server_args.py").write_text("from fake_engine import ServerArgs\n")

    def run(*options: str, **variables: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(tmp_path / "site"), str(HERE)])
        return subprocess.run(
            [sys.executable, str(SCRIPT), "--out", str(tmp_path / "out"), "--shape", "tiny", *options],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200", **variables},
        )

    return run


QUICK = ("--batches", "1,4", "--repeats", "2", "--threshold", "2", "--new-tokens", "20", "--prompt-tokens", "4")


@pytest.mark.parametrize("arrangement", [["--side-by-side", "--start-together"], ["--side-by-side"], ["--passes", "2"]])
def test_a_run_measures_all_modes_it_can(bench: Bench, tmp_path: Path, arrangement: list[str]) -> None:
    ramp = ("--measure", "decode,ramp,switch", "--ramp-clients", "4", "--ramp-hold", "0.1", "--ramp-tokens", "8")
    done = bench(*QUICK, *ramp, *arrangement)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["skipped"] == {"adaptive": "this SGLang release has no --speculative-adaptive"}
    rounds = {(record["mode"], record["batch"], record["round"]) for record in results["decode"]}
    assert rounds == {(m, b, r) for m in ("none", "always", "gated") for b in (1, 4) for r in (0, 1)}
    seen = {(record["mode"], record["batch"]): set(record["step_tokens"]) for record in results["decode"]}
    assert seen == {
        ("none", 1): {1},
        ("none", 4): {1},
        ("always", 1): {2},
        ("always", 4): {2},
        ("gated", 1): {2},
        ("gated", 4): {1},
    }
    assert [record["mode"] for record in results["ramp"]] == ["none", "always", "gated"]
    assert results["ramp"][2]["state_after"]["largest_batch"] == 4
    assert {record["mode"] for record in results["crossing"]} == {"always", "gated"}
    assert "SIMULATED, pinned at 2.5" in done.stdout
    assert "gated / better" in done.stdout


def test_unsynced_is_measured_where_steps_are_plain(bench: Bench, tmp_path: Path) -> None:
    done = bench(*QUICK, "--measure", "decode", "--modes", "gated,unsynced", "--side-by-side")
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    rounds = [(record["mode"], record["batch"]) for record in results["decode"]]
    assert sorted(rounds) == [("gated", 1)] * 2 + [("gated", 4)] * 2 + [("unsynced", 4)] * 2


def test_single_modes_measured_apart_merge_into_ratios(bench: Bench, tmp_path: Path) -> None:
    parts = []
    for mode in ("none", "gated"):
        assert bench(*QUICK, "--measure", "decode", "--modes", mode).returncode == 0
        parts.append(tmp_path / f"{mode}.json")
        (tmp_path / "out" / "results.json").rename(parts[-1])
    done = bench("--from-json", str(parts[0]), "--from-json", str(parts[1]))
    assert done.returncode == 0, done.stderr
    merged = json.loads((tmp_path / "out" / "results.json").read_text())
    assert len(merged["runs"]) == 2
    assert "gated/none" in merged["summary"]["decode"][0]["ratios"]


def test_an_engine_that_dies_ends_the_run_with_its_log_named(bench: Bench, tmp_path: Path) -> None:
    done = bench(*QUICK, "--modes", "none", FAKE_ENGINE_DIES="1")
    assert done.returncode == 1
    assert "'no speculation' ended with code 3" in done.stderr
    assert str(tmp_path / "out" / "work" / "none.log") in done.stderr
    assert "Traceback" not in done.stderr


def test_a_pin_left_over_in_the_shell_does_not_reach_the_engines(bench: Bench, tmp_path: Path) -> None:
    options = [*QUICK, "--measure", "decode", "--modes", "always", "--model", "t", "--draft", "d"]
    assert bench(*options, SGLANG_SIMULATE_ACC_LEN="4").returncode == 0
    first = json.loads((tmp_path / "out" / "results.json").read_text())
    assert first["engines"][0]["report"]["state"]["accept_length"] is None
    assert bench(*options, "--accept-length", "3").returncode == 0
    second = json.loads((tmp_path / "out" / "results.json").read_text())
    assert second["engines"][0]["report"]["state"]["accept_length"] == "3.0"


def test_a_pool_that_is_too_small_is_refused(bench: Bench) -> None:
    done = bench(*QUICK, "--modes", "none", "--engine-arg", "max_total_tokens=50")
    assert done.returncode == 1
    assert "4 requests need 96 KV slots and this engine has 50" in done.stderr


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--model", "x"], "--model and --draft go together"),
        (["--shape", "9z"], "choose one of"),
        (["--batches", "1,x"], "not a list of positive numbers"),
        (["--modes", "none,fast"], "'fast' is unknown"),
        (["--engine-arg", "page_size"], "has no '='"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_starts(
    bench: Bench, tmp_path: Path, options: list[str], why: str
) -> None:
    done = bench(*options)
    assert done.returncode in (1, 2)
    assert why in done.stderr
    assert not list((tmp_path / "out").glob("**/*.log"))
