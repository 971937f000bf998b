#!/usr/bin/env python3
"""Hold every series against the release it is for, and print the matrix of releases that the README shows.

    scripts/check_releases.py                  every release; fails if the README's matrix is not the one found
    scripts/check_releases.py --write          the same, and writes the matrix into the README
    scripts/check_releases.py --end-to-end     also runs each on the CPU reference (3 minutes each) and records it

Wheels are downloaded once, into .cache/wheels. Run it with .cache/venv/bin/python (scripts/make_env.sh).
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Annotated

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

import typer  # noqa: E402
from releases import matrix, recorded  # noqa: E402
from releases.round_trip import Outcome, round_trip  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: E402
from rich.table import Table  # noqa: E402

from sglang_eagle3_patch.contract.paths import releases as known_releases  # noqa: E402

README = ROOT / "README.md"
console = Console(stderr=True)


def main(
    releases: Annotated[list[str] | None, typer.Argument(help="Releases to check; all when left out.")] = None,
    write: Annotated[bool, typer.Option(help="Write the matrix into the README.")] = False,
    end_to_end: Annotated[bool, typer.Option(help="Run each on the CPU reference and record it.")] = False,
    jobs: Annotated[int, typer.Option(help="Releases to check at a time.")] = 2,
) -> None:
    """Check every release; status 1 when one does not hold."""
    chosen = releases or known_releases()
    started = time.monotonic()
    outcomes = _check(chosen, jobs)
    failures = [f"{outcome.release}: {outcome.problem}" for outcome in outcomes if outcome.problem]
    if end_to_end:
        failures += _run([outcome.release for outcome in outcomes if not outcome.problem])
    table = Table(*matrix.HEAD)
    for row in matrix.rows(outcomes):
        table.add_row(*row)
    Console().print(table)
    if not releases and not failures:
        page = matrix.replaced(README, matrix.markdown(outcomes))
        if write:
            README.write_text(page)
        elif page != README.read_text():
            failures.append("the matrix in README.md is not this one: run scripts/check_releases.py --write")
    for failure in failures:
        console.print(f"[red]{failure}[/]", soft_wrap=True)
    console.print(f"{len(outcomes)} releases in {time.monotonic() - started:.0f} s")
    raise typer.Exit(bool(failures))


def _check(chosen: list[str], jobs: int) -> list[Outcome]:
    columns = SpinnerColumn(), TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console) as progress, ProcessPoolExecutor(jobs) as pool:
        task = progress.add_task("check, apply, compile, diff, revert", total=len(chosen))
        outcomes = []
        for outcome in pool.map(round_trip, chosen):
            outcomes.append(outcome)
            progress.update(task, advance=1, description=f"{outcome.release} done")
        return outcomes


def _run(chosen: list[str]) -> list[str]:
    from tests.e2e.errors import EngineDied
    from tests.releases.crossing import Differs, cross, cross_with_graphs  # brings torch: the checks do without

    failures = []
    for release in chosen:
        started = time.monotonic()
        try:
            recorded.record_cpu_run(release, {**cross(release), "graphs": cross_with_graphs(release)})
            took = time.monotonic() - started
            console.print(f"{release}: crossed the threshold both ways, with graphs and without, in {took:.0f} s")
        except (EngineDied, Differs, RuntimeError) as error:
            failures.append(f"{release}, end to end: {error}")
    return failures


if __name__ == "__main__":
    typer.run(main)
