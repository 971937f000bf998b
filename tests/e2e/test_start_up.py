"""Servers on which the gate does nothing: off, never reached, or not there at all."""

from __future__ import annotations

import subprocess

import pytest

from tests.cpu_reference import environment
from tests.e2e.conftest import Setup
from tests.e2e.engine import Run, run_engine
from tests.e2e.turns import Reference
from tests.e2e.workload import Request, greedy, prompt

pytestmark = pytest.mark.e2e
REQUESTS = [Request(prompt(5 + 3 * i, seed=200 + i), greedy(30)) for i in range(6)]
MARK = "EAGLE-3 batch gate"


def gate_lines(run: Run) -> list[str]:
    return [line.split(MARK, 1)[1] for line in run.log.splitlines() if MARK in line]


def test_off(setup: Setup, reference: Reference) -> None:
    run = run_engine(setup.patched, setup.gated_args(0), REQUESTS)
    assert gate_lines(run) == [": threshold=0 (off)"]
    assert "gate: " not in run.log.replace(MARK, "")
    assert (run.gate["threshold"], run.gate["plain_steps"], run.gate["mode"]) == (0, 0, None)
    assert run.server_info["speculative_disable_batch_threshold"] == 0
    assert run.outputs == reference.outputs(REQUESTS)


def test_a_threshold_that_can_never_fire(setup: Setup, reference: Reference) -> None:
    run = run_engine(setup.patched, setup.gated_args(6, max_running_requests=6), REQUESTS)
    assert "--speculative-disable-batch-threshold 6 can never fire: at most 6 requests run at once" in run.log
    assert run.gate["plain_steps"] == run.gate["switches"] == 0 < run.gate["speculative_steps"]
    assert run.outputs == reference.outputs(REQUESTS)


def test_an_unpatched_tree_beside_the_package_is_upstream(setup: Setup, reference: Reference) -> None:
    args = setup.plain_args(**environment.eagle3_args(setup.draft))
    run = run_engine(setup.upstream, args, REQUESTS)
    assert MARK not in run.log
    assert "gate: " not in run.log
    assert "speculative_gate" not in run.internal_state
    assert "speculative_disable_batch_threshold" not in run.server_info
    assert run.outputs == reference.outputs(REQUESTS)
    # The package is there for that interpreter all the same.
    look = "import sglang_eagle3_patch.runtime.hooks, sglang.srt.server_args as s; print(sorted(vars(s.ServerArgs)))"
    done = subprocess.run(
        [environment.python(), "-c", look],
        env=environment.variables(setup.upstream),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "speculative_disable_batch_threshold" not in done.stdout
