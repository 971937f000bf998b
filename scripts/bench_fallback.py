#!/usr/bin/env python3
"""Where does speculation stop paying, and does the gate follow the better side? Measured on your GPU and your model.

Starts SGLang without speculation, with EAGLE-3 always, with its own adaptive mode (where the release has it) and with
the batch gate, loads each with fixed batches and an arrival ramp, and writes a table, results.json and two plots.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
from bench import records
from bench.engine_process import EngineFailed, EngineProcess
from bench.figures import summary
from bench.records import CrossingRecord, DecodeRecord, EngineRecord, RampRecord, Results, Run
from bench.report import print_report
from bench.settings import BASELINES, DEFAULT_MODES, Mode, Settings, UnsupportedMode
from bench.shapes import SHAPES, write_shape
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

console = Console(width=None if sys.stdout.isatty() else 220)  # a log file gets whole tables
MEASURES = ("decode", "ramp", "switch")


class Benchmark:
    """Drives the engines through one plan and keeps the records."""

    def __init__(self, settings: Settings, run: Run, folder: Path, progress: Progress) -> None:
        self.settings = settings
        self.run = run
        self.folder = folder
        self.work = folder / "work"
        self.results = Results(settings=asdict(settings), runs=[run])
        self._progress = progress
        self._task = progress.add_task("", total=0)

    def start(self, modes: list[Mode], stack: ExitStack, together: bool, pin_cores: bool) -> list[EngineProcess]:
        """Start an engine for each mode, one after the other or all at once, each on cores of its own if asked.

        A mode that this SGLang cannot run is left out, with a note in the results.
        """
        launched, engines = [], []
        available = sorted(os.sched_getaffinity(0)) if pin_cores else []
        share = len(available) // len(modes)
        for index, mode in enumerate(modes):
            cores = available[index * share : (index + 1) * share]
            launched.append(stack.enter_context(EngineProcess(mode, self.settings, self.work, cores)))
            if not together:
                engines += self._wait(launched[-1])
        return [engine for one in launched for engine in self._wait(one)] if together else engines

    def _wait(self, engine: EngineProcess) -> list[EngineProcess]:
        self._show(f"starting {engine.mode.label} (log: {engine.log})")
        try:
            report = engine.wait()
        except UnsupportedMode as reason:
            self.results.skipped[engine.mode] = str(reason)
            return []
        self.results.engines.append(EngineRecord(self.run.run, engine.mode, report))
        return [engine]

    def decode(self, engines: list[EngineProcess], batches: list[int], rounds: range, cross_check: bool) -> None:
        """Every batch, every round; with several engines they take turns, and another one begins each round."""
        # Up to the threshold there are no plain steps, and so no draft sync to leave out.
        synced = [engine for engine in engines if engine.mode is not Mode.UNSYNCED]
        taking = [engines if batch > self.settings.threshold else synced for batch in batches]
        self._expect(len(rounds) * sum(map(len, taking)))
        for batch, group in zip(batches, taking, strict=True):
            for index in rounds:
                for engine in rotated(group, index):
                    self._show(f"{engine.mode.label}: batch {batch}, round {index + 1}")
                    answer = engine.ask("decode", batch=batch, cross_check=cross_check)
                    steps = answer.pop("steps")
                    self.results.decode.append(
                        DecodeRecord(
                            run=self.run.run,
                            mode=engine.mode,
                            batch=batch,
                            round=index,
                            step_seconds=[seconds for seconds, _ in steps],
                            step_tokens=[tokens for _, tokens in steps],
                            **answer,
                        )
                    )
                    self._advance()
            self.save()

    def ramp(self, engines: list[EngineProcess]) -> None:
        hold = self.settings.ramp_hold
        clients = ramp_levels(self.settings.ramp_clients)
        self._expect(len(engines))
        for engine in engines:
            self._show(f"{engine.mode.label}: ramp to {max(clients)} clients and back, {hold * len(clients):.0f} s")
            answer = engine.ask("ramp", clients=clients, hold=hold)
            self.results.ramp.append(RampRecord(run=self.run.run, mode=engine.mode, **answer))
            self._advance()
            self.save()

    def switch(self, engines: list[EngineProcess], rounds: range) -> None:
        """Half the threshold runs throughout; twice the threshold joins and leaves."""
        resident, joiners = max(1, self.settings.threshold // 2), 2 * self.settings.threshold
        crossers = [engine for engine in engines if engine.mode is not Mode.NONE]
        self._expect(len(crossers) * len(rounds))
        for index in rounds:
            for engine in rotated(crossers, index):
                self._show(f"{engine.mode.label}: crossing {index + 1}")
                answer = engine.ask("crossing", resident=resident, joiners=joiners, settle_tokens=96)
                self.results.crossing.append(
                    CrossingRecord(self.run.run, engine.mode, index, resident, joiners, **answer)
                )
                self._advance()
        self.save()

    def save(self) -> None:
        """Write what there is: a run that is cut short keeps what it measured."""
        self.results.write(self.folder / "results.json", summary(self.results))

    def _expect(self, steps: int) -> None:
        self._progress.update(self._task, total=(self._progress.tasks[0].total or 0) + steps)

    def _advance(self) -> None:
        self._progress.advance(self._task)

    def _show(self, text: str) -> None:
        self._progress.update(self._task, description=text)
        if not console.is_terminal:  # a log file shows no live bar
            console.print(f"{datetime.now():%H:%M:%S} {text}", markup=False, highlight=False)


def rotated(engines: list[EngineProcess], index: int) -> Iterator[EngineProcess]:
    """The engines in order, each round beginning with the next one, so that drift favours none."""
    for offset in range(len(engines)):
        yield engines[(index + offset) % len(engines)]


def ramp_levels(largest: int) -> list[int]:
    """1, 2, 4 ... largest ... 4, 2, 1."""
    up = [1 << power for power in range(largest.bit_length()) if 1 << power < largest]
    return [*up, largest, *reversed(up)]


def numbers(text: str) -> list[int]:
    """Comma-separated positive numbers."""
    try:
        values = [int(part) for part in text.split(",")]
    except ValueError:
        values = []
    if not values or min(values) < 1:
        raise typer.BadParameter(f"'{text}' is not a list of positive numbers; write for example 1,8,32")
    return values


def choices(text: str, allowed: tuple[str, ...]) -> list[str]:
    """Comma-separated names, in the order of `allowed`."""
    chosen = text.split(",")
    unknown = [name for name in chosen if name not in allowed]
    if unknown:
        raise typer.BadParameter(f"'{', '.join(unknown)}' is unknown; choose from {','.join(allowed)}")
    return [name for name in allowed if name in chosen]


def engine_arguments(pairs: list[str]) -> dict[str, Any]:
    """NAME=VALUE pairs; a value is JSON where it parses as JSON, and text otherwise."""
    arguments: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise typer.BadParameter(f"'{pair}' has no '='; write for example page_size=16")
        try:
            arguments[name.replace("-", "_")] = json.loads(text)
        except json.JSONDecodeError:
            arguments[name.replace("-", "_")] = text
    return arguments


def machine() -> dict[str, Any]:
    """GPU name and driver as nvidia-smi gives them, and the number of CPU cores."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        gpus = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip().splitlines()
    except (OSError, subprocess.CalledProcessError):
        gpus = []
    first = gpus[0].split(", ") if gpus else ["CPU only", "-", "-"]
    return {"gpu": first[0], "driver": first[1], "gpu_memory": first[2], "gpus": len(gpus), "cores": os.cpu_count()}


def finish(results: Results, folder: Path) -> None:
    """Tables, results.json, plots."""
    from bench.plot import plot_crossover, plot_ramp

    folder.mkdir(parents=True, exist_ok=True)
    results.write(folder / "results.json", summary(results))
    print_report(results, console)
    written = [folder / "results.json"]
    try:
        if results.decode:
            plot_crossover(results, folder / "crossover.png")
            written.append(folder / "crossover.png")
        if results.ramp:
            plot_ramp(results, folder / "ramp.png")
            written.append(folder / "ramp.png")
    except RuntimeError as reason:
        console.print(f"No plots: {reason}.", markup=False)
    console.print("Wrote " + ", ".join(map(str, written)), markup=False)


def fail(message: str) -> typer.Exit:
    Console(stderr=True).print(f"error: {message}", markup=False, highlight=False, soft_wrap=True)
    return typer.Exit(1)


def main(
    out: Annotated[Path, typer.Option(help="Folder for results.json and plots; engine logs go to its work/.")],
    model: Annotated[str | None, typer.Option(help="Target model. Needs --draft.")] = None,
    draft: Annotated[str | None, typer.Option(help="EAGLE-3 draft model.")] = None,
    load_format: Annotated[str, typer.Option(help="How SGLang loads --model; 'dummy' for random weights.")] = "auto",
    shape: Annotated[str, typer.Option(help=f"Random weights of this shape: {', '.join(SHAPES)}.")] = "8b",
    backend: Annotated[str | None, typer.Option(help="Attention backend: triton, fa3, flashinfer ...")] = None,
    modes: Annotated[str, typer.Option(help=f"Servers to compare, of {','.join(Mode)}.")] = ",".join(DEFAULT_MODES),
    measure: Annotated[str, typer.Option(help=f"Any of {','.join(MEASURES)}.")] = "decode,ramp",
    batches: Annotated[str, typer.Option(help="Batch sizes of the decode runs.")] = "1,2,4,8,16,32,64,128,256",
    repeats: Annotated[int, typer.Option(min=1, help="Rounds of each batch; the median counts.")] = 5,
    passes: Annotated[int, typer.Option(min=1, help="Start every engine this often and split the rounds.")] = 1,
    side_by_side: Annotated[
        bool, typer.Option(help="Keep all engines on the GPU and let them take turns: drift cancels, memory is shared.")
    ] = False,
    start_together: Annotated[
        bool,
        typer.Option(help="With --side-by-side: load the engines at the same time. Faster, needs the memory to spare."),
    ] = False,
    pin_cores: Annotated[
        bool,
        typer.Option(help="With --side-by-side: an equal share of the cores for each engine, so none takes another's."),
    ] = False,
    prompt_tokens: Annotated[int, typer.Option(min=1)] = 256,
    new_tokens: Annotated[int, typer.Option(min=2)] = 256,
    ramp_tokens: Annotated[int, typer.Option(min=2, help="New tokens of a request in the ramp.")] = 128,
    ramp_clients: Annotated[int, typer.Option(min=1, help="Clients at the ramp's top.")] = 256,
    ramp_hold: Annotated[float, typer.Option(min=0.1, help="Seconds of each level of the ramp.")] = 4.0,
    steps: Annotated[int, typer.Option(min=1, help="Draft steps.")] = 3,
    topk: Annotated[int, typer.Option(min=1, help="Draft branches a step.")] = 1,
    draft_tokens: Annotated[int | None, typer.Option(help="Tokens verified at once; default steps x topk + 1.")] = None,
    threshold: Annotated[int, typer.Option(min=1, help="Largest batch that still speculates.")] = 8,
    accept_length: Annotated[
        float | None,
        typer.Option(help="Pin the acceptance length (simulated). Random weights accept nothing: 2.5 unless set."),
    ] = None,
    mem_fraction: Annotated[float, typer.Option(min=0.05, max=0.95, help="Of the memory free at start.")] = 0.85,
    cross_check: Annotated[bool, typer.Option(help="Also time one-token runs and derive the rate from them.")] = True,
    engine_arg: Annotated[list[str] | None, typer.Option(help="Any server argument, NAME=VALUE; repeatable.")] = None,
    from_json: Annotated[
        list[Path] | None, typer.Option(help="Measure nothing: merge these results and draw again; repeatable.")
    ] = None,
) -> None:
    """Compare decode throughput without speculation, with EAGLE-3 always, with SGLang adaptive, and gated."""
    if from_json:
        try:
            merged = records.merge([records.read(path) for path in from_json])
        except ValueError as reason:
            raise fail(str(reason)) from None
        finish(merged, out)
        return

    chosen = [Mode(name) for name in choices(modes, tuple(Mode))]
    measures = choices(measure, MEASURES)
    sizes = numbers(batches)
    (out / "work").mkdir(parents=True, exist_ok=True)
    if (model is None) != (draft is None):
        raise fail("--model and --draft go together; give both, or neither for random weights of --shape")
    if model is None or draft is None:
        try:
            model, draft = map(str, write_shape(shape, out / "work"))
        except ValueError as reason:
            raise fail(str(reason)) from None
        load_format = "dummy"
    if load_format == "dummy" and accept_length is None:
        accept_length = 2.5
    needed = sizes if "decode" in measures else [1]
    if "ramp" in measures:
        needed = [*needed, ramp_clients]
    if "switch" in measures:
        needed = [*needed, threshold // 2 + 1 + 2 * threshold]
    settings = Settings(
        model=model,
        draft=draft,
        load_format=load_format,
        backend=backend,
        prompt_tokens=prompt_tokens,
        new_tokens=new_tokens,
        ramp_tokens=ramp_tokens,
        ramp_clients=ramp_clients,
        ramp_hold=ramp_hold,
        steps=steps,
        topk=topk,
        draft_tokens=draft_tokens or steps * topk + 1,
        accept_length=accept_length,
        threshold=threshold,
        max_batch=max(needed),
        mem_fraction=mem_fraction,
        engine_args=engine_arguments(engine_arg or []),
    )
    now = datetime.now(UTC).isoformat(timespec="seconds")
    run = Run(run=now, command=shlex.join(sys.argv), machine=machine(), side_by_side=side_by_side)
    columns = SpinnerColumn(), TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bench = Benchmark(settings, run, out, progress)

        def load(engines: list[EngineProcess], rounds: range) -> None:
            if "decode" in measures:
                bench.decode(engines, sizes, rounds, cross_check)
            if "ramp" in measures and rounds.start == 0:
                bench.ramp(engines)
            if "switch" in measures:
                bench.switch(engines, rounds)

        try:
            for rounds in split(repeats, passes):
                groups = [chosen] if side_by_side else [[mode] for mode in chosen]
                for group in groups:
                    with ExitStack() as stack:
                        load(bench.start(group, stack, start_together, pin_cores and side_by_side), rounds)
        except EngineFailed as reason:
            bench.save()
            raise fail(f"{reason}; what was measured before is in {out / 'results.json'}") from None
    finish(bench.results, out)
    if not all(any(record.mode is mode for record in bench.results.engines) for mode in BASELINES):
        console.print("Ratios need both baselines: measure modes none and always, or merge with --from-json.")


def split(repeats: int, passes: int) -> list[range]:
    """`repeats` rounds over `passes` starts, as evenly as they go."""
    bounds = [repeats * index // passes for index in range(passes + 1)]
    return [range(start, end) for start, end in pairwise(bounds) if end > start]


if __name__ == "__main__":
    typer.run(main)
