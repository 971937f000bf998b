"""SGLang's own CUDA graph runners over the stand-in for CUDA graphs: verify, draft, draft extend, and our plain one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.e2e import graph_probe
from tests.e2e.conftest import Setup
from tests.e2e.decode_log import DecodeStep
from tests.e2e.engine import server
from tests.e2e.host import cpu_with_graphs
from tests.e2e.turns import Reference, Turn, take_turn
from tests.e2e.workload import shrinking_then_growing

pytestmark = pytest.mark.e2e
N = 4
SIZES = [1, 2, 4, 6, 8]  # batches of 3, 5 and 7 are padded
WORK = shrinking_then_growing(10)  # 10 and 9 are larger than any graph

# What the gate must not do: capture the plain graphs over the attention backend whose buffers the verify graphs read.
ONE_BACKEND = """
def share(base):
    build = base.Generation.capture_plain_graphs

    def capture(self, model_runner, threshold):
        model_runner._get_attention_backend = lambda *args, **kwargs: model_runner.attn_backend
        return build(self, model_runner, threshold)

    base.Generation.capture_plain_graphs = capture

HOOKS = {"sglang_eagle3_patch.runtime.generations.base": share}
"""


def serve(setup: Setup, folder: Path, hooks: Path) -> tuple[Turn, str]:
    """The workload on a gated server with graphs; what it did, and all that it printed."""
    variables = {"CPU_REFERENCE_HOOKS": str(hooks), "GRAPH_REPORT": str(folder / "graphs.jsonl")}
    args, host = setup.gated_args(N), cpu_with_graphs(SIZES)
    with server(setup.patched, args, folder, variables=variables, host=host) as running:
        return take_turn(running, WORK), running.log


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("graphs")


@pytest.fixture(scope="module")
def served(setup: Setup, folder: Path) -> tuple[Turn, str]:
    return serve(setup, folder, Path(graph_probe.__file__))


@pytest.fixture(scope="module")
def turn(served: tuple[Turn, str]) -> Turn:
    return served[0]


def test_output_equals_no_speculation_without_graphs(turn: Turn, reference: Reference) -> None:
    assert turn.outputs == reference.outputs(WORK)
    assert turn.count("plain_steps") >= 20
    assert turn.count("speculative_steps") >= 20
    assert turn.count("resumes") >= 2


def in_graphs(steps: Sequence[DecodeStep], mode: str, batch: int) -> set[bool | None]:
    """Whether steps of a mode and a batch size ran in a graph. Only those that the log names without doubt.

    The log has a step's graph and batch on one line and its mode on the line before; at a change of size a line may
    still name the old one.
    """
    return {
        step.graph
        for before, step, after in zip(steps, steps[1:], steps[2:], strict=False)
        if before.mode == step.mode == mode and before.batch == step.batch == after.batch == batch
    }


def test_every_size_that_has_a_graph_runs_in_it_and_larger_ones_run_without(turn: Turn) -> None:
    ran = {size: in_graphs(turn.steps, "plain" if size > N else "speculative", size) for size in range(1, 11)}
    assert ran == {size: {size <= max(SIZES)} for size in range(1, 11)}


def test_every_graph_runner_of_sglang_was_at_work(served: tuple[Turn, str]) -> None:
    for captured in ("target verify", "draft decode", "draft extend"):
        assert f"Capture {captured} CUDA graph begin" in served[1]
    assert f"captured {len([size for size in SIZES if size > N])} plain decode graphs" in served[1]


def test_only_reachable_sizes_are_captured_and_the_verify_graphs_are_back_after_each_plain_step(
    turn: Turn, folder: Path
) -> None:
    lines = [json.loads(line) for line in (folder / "graphs.jsonl").read_text().splitlines()]
    assert len(lines) == turn.count("plain_steps")
    assert all(line == {"plain": [6, 8], "verify": SIZES, "back": True} for line in lines)


def test_the_stand_in_shows_a_capture_over_the_verify_graphs_buffers(
    setup: Setup, reference: Reference, tmp_path: Path
) -> None:
    hooks = tmp_path / "one_backend.py"
    hooks.write_text(ONE_BACKEND)
    turn, _log = serve(setup, tmp_path, hooks)
    assert turn.outputs != reference.outputs(WORK)
