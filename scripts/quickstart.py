"""Serve one workload with the batch gate and without speculation, compare, and show where the steps went.

Run it through quickstart.sh, which makes the environment.
"""

from __future__ import annotations

import shutil
import time
from collections import defaultdict
from pathlib import Path
from statistics import mean, median
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.cpu_reference import environment, tiny_models
from tests.e2e import trees
from tests.e2e.decode_log import DecodeStep, read_steps
from tests.e2e.engine import Run, answers, server
from tests.e2e.errors import EngineDied
from tests.e2e.host import Host, cpu, gpu
from tests.e2e.workload import IDLE_S, Request, prompt, shrinking_then_growing
from tests.models import prompts

FOLDER = environment.CACHE / "quickstart"
CLIENTS = 8
console = Console()


def main(
    release: Annotated[str, typer.Option(help="SGLang release to run on the CPU.")] = "0.5.20",
    threshold: Annotated[int, typer.Option(help="Batch size above which steps decode plainly.")] = 4,
    gpu_python: Annotated[Path | None, typer.Option(help="Interpreter with an SGLang of its own, for its GPU.")] = None,
) -> None:
    """Patch a copy of SGLang, serve with and without the gate, and compare."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    try:
        host = gpu(gpu_python) if gpu_python else cpu()
        original = trees.installed(gpu_python, FOLDER / "original") if gpu_python else environment.tree(release)
        say(f"SGLang {environment.release_of(original)} on {'the GPU' if gpu_python else 'the CPU reference'}")
        patched = trees.patched(original, FOLDER / "tree")
        say(f"patched copy: {_shown(patched)}")
        trained = tiny_models.trained()
        pair = trained or tiny_models.pair()
        say(f"model pair: {_shown(pair.target)}, {_shown(pair.draft)}")
        requests = shrinking_then_growing(CLIENTS, say=prompts.prompt if trained else prompt)
        model = {"model_path": str(pair.target)}
        gated = {**environment.eagle3_args(pair.draft), "speculative_disable_batch_threshold": threshold}
        plain = serve("no speculation", host, original, model, requests)
        run = serve(f"EAGLE-3, gate at {threshold}", host, patched, model | gated, requests)
    except (EngineDied, RuntimeError, OSError, ValueError) as error:
        fail(str(error))
    console.print(table(read_steps(run.log), read_steps(plain.log)))
    if not gpu_python:
        console.print("(On a CPU and a tiny model, Python's own costs decide the speeds; docs/benchmarks has a GPU's.)")
    judge(run, plain)


def serve(name: str, host: Host, tree: Path, server_args: dict[str, Any], requests: list[Request]) -> Run:
    """Start a real HTTP server, send it the requests, and stop it. Its log stays under .cache/quickstart."""
    folder = FOLDER / name.replace(" ", "-").replace(",", "")
    folder.mkdir()
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(f"{name}: server starts", total=len(requests))
        with server(tree, server_args, folder, host=host) as running:
            progress.update(task, description=f"{name}: requests")
            replies = running.generate(requests, on_reply=lambda: progress.advance(task))
            time.sleep(IDLE_S)  # idle, SGLang counts its KV slots and ends if one is missing
            return Run(answers(replies), running.get("/server_info"), running.log)


def table(gated: list[DecodeStep], plain: list[DecodeStep]) -> Table:
    """Steps of the gated server by mode and batch, beside the server without speculation at the same batch."""
    groups: dict[tuple[str, int], list[DecodeStep]] = defaultdict(list)
    for step in gated:
        groups[step.mode or "?", step.batch].append(step)
    shown = Table(title="Decode steps of the gated server, from its log")
    for column in ("mode", "batch", "steps", "tokens/step and request", "tokens/s", "tokens/s without speculation"):
        shown.add_column(column, justify="left" if column == "mode" else "right")
    for (mode, batch), steps in sorted(groups.items(), key=lambda item: -item[0][1]):
        beside = [step.throughput for step in plain if step.batch == batch]
        shown.add_row(
            mode,
            str(batch),
            str(len(steps)),
            f"{mean(step.accept_len or 1.0 for step in steps):.2f}",  # a plain step counts as no verify: 0.0
            f"{median(step.throughput for step in steps):.0f}",
            f"{median(beside):.0f}" if beside else "-",
        )
    return shown


def judge(run: Run, plain: Run) -> None:
    """Say whether the promise held; exit with status 1 if not."""
    gate = run.gate
    same = sum(a == b for a, b in zip(run.outputs, plain.outputs, strict=True))
    counts = f"{gate['plain_steps']} plain and {gate['speculative_steps']} speculative steps, {gate['resumes']} resumes"
    console.print(f"gate: {counts}")
    if not (gate["plain_steps"] and gate["speculative_steps"] and gate["resumes"]):
        fail("The batch did not cross the threshold both ways; choose --threshold between 1 and 7.")
    if same < len(plain.outputs):
        fail(f"Only {same} of {len(plain.outputs)} outputs equal those without speculation: please report this.")
    console.print(f"[green]outputs: all {same} equal those without speculation; every KV slot is back[/green]")


def _shown(path: Path) -> str:
    return str(path.relative_to(environment.ROOT))


def say(text: str) -> None:
    """A line of progress."""
    console.print(f"[cyan]\\[quickstart][/cyan] {text}", highlight=False)


def fail(text: str) -> None:
    """Print what went wrong and exit with status 1."""
    console.print(f"[red]\\[quickstart] {text}[/red]", highlight=False, markup=True)
    console.print(f"The servers' logs are in {_shown(FOLDER)}.", highlight=False)
    raise SystemExit(1)


if __name__ == "__main__":
    typer.run(main)
