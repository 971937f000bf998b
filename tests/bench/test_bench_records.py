"""Writing, reading and merging results, and the pictures drawn from them."""

import json
from pathlib import Path
from typing import Any

import pytest
from bench.figures import summary
from bench.records import CrossingRecord, DecodeRecord, EngineRecord, RampRecord, Results, Run, merge, read
from bench.settings import Mode

SETTINGS = {
    "model": "/here/models/8b-target",
    "draft": "/here/models/8b-draft",
    "load_format": "dummy",
    "backend": "triton",
    "prompt_tokens": 256,
    "new_tokens": 256,
    "steps": 3,
    "topk": 1,
    "accept_length": 2.5,
    "threshold": 8,
    "mem_fraction": 0.8,
}


def one(mode: Mode, run: str = "r", **settings: object) -> Results:
    record = DecodeRecord(run, mode, 8, 0, 2.123456789, None, 1.0, 808, 800, [0.01, 0.01], [1, 1])
    return Results(
        settings={**SETTINGS, **settings},
        runs=[Run(run, "bench_fallback.py", {"gpu": "a GPU"}, True)],
        engines=[EngineRecord(run, mode, {"startup_seconds": 1.0})],
        decode=[record],
        ramp=[RampRecord(run, mode, 3.0, [(0.0, 1), (1.5, 2)], [(0.0, 3.0, 30)], [(0.1, 0.1, 1)] * 9, {}, {})],
        crossing=[CrossingRecord(run, mode, 0, 4, 16, 5, [(0.01, 1)] * 20)],
    )


def test_what_was_written_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    before = one(Mode.GATED)
    before.write(path, summary(before))
    after = read(path)
    assert after.decode[0].mode is Mode.GATED
    assert after.decode[0].seconds == pytest.approx(2.123457, abs=1e-9)
    assert (after.settings, after.runs, after.engines) == (before.settings, before.runs, before.engines)
    assert [tuple(level) for level in after.ramp[0].levels] == before.ramp[0].levels
    assert summary(after) == summary(before)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 0}', '{"other": 1}'])
def test_a_file_that_is_not_ours_is_refused_in_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"results\.json .*; (pass its|measure again)"):
        read(path)


def test_merging_appends_and_forgets_what_was_skipped_elsewhere() -> None:
    first, second = one(Mode.NONE), one(Mode.GATED, run="s", model="/there/8b-target", mem_fraction=0.4)
    first.skipped = {"gated": "not applied", "adaptive": "no such flag"}
    whole = merge([first, second])
    assert [record.mode for record in whole.decode] == [Mode.NONE, Mode.GATED]
    assert [run.run for run in whole.runs] == ["r", "s"]
    assert whole.skipped == {"adaptive": "no such flag"}


@pytest.mark.parametrize(("name", "value"), [("backend", "fa3"), ("accept_length", None), ("model", "/here/1b-target")])
def test_results_of_different_settings_do_not_merge(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"differ in '{name}'"):
        merge([one(Mode.NONE), one(Mode.GATED, **{name: value})])


def test_the_file_has_a_line_for_each_record(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    merge([one(Mode.NONE), one(Mode.GATED)]).write(path, {})
    assert sum('"step_tokens"' in line for line in path.read_text().splitlines()) == 2
    assert json.loads(path.read_text())["schema"] == 1


def test_the_plots_are_pictures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from bench.plot import plot_crossover, plot_ramp

    whole = merge([one(mode) for mode in Mode])
    plot_crossover(whole, tmp_path / "crossover.png")
    plot_ramp(whole, tmp_path / "ramp.png")
    for name in ("crossover.png", "ramp.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_plain_spans_are_where_the_probe_saw_one_token_a_step() -> None:
    from bench.plot import plain_spans

    tokens = [2] * 10 + [1] * 10 + [2] * 10
    steps = [(index + 1.0, 1.0, count) for index, count in enumerate(tokens)]
    record = RampRecord("r", Mode.GATED, 30.0, [(0.0, 1)], [], steps, {}, {})
    ((start, end),) = plain_spans(record)
    assert start == pytest.approx(10, abs=1)
    assert end == pytest.approx(20, abs=1)
