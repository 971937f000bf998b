"""SGLang 0.5.9 with the gate: it crosses the threshold both ways, and the output is that of no speculation."""

from __future__ import annotations

import pytest

from tests.cpu_reference import environment, tiny_models
from tests.e2e import trees
from tests.e2e.decode_log import read_steps
from tests.e2e.engine import Run, run_engine
from tests.e2e.workload import shrinking_then_growing

pytestmark = pytest.mark.e2e
RELEASE = "0.5.9"
N = 4
STEPS = 3
WORK = shrinking_then_growing(8)
FULL = 10  # steps at the start that surely have all eight requests


@pytest.fixture(scope="module")
def without_speculation() -> Run:
    return run_engine(environment.tree(RELEASE), {"model_path": str(tiny_models.pair().target)}, WORK)


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """An engine that ended well has counted its KV slots when it was idle: none was missing."""
    pair = tiny_models.pair()
    args = {"model_path": str(pair.target), **environment.eagle3_args(pair.draft, steps=STEPS)}
    tree = trees.patched(environment.tree(RELEASE), tmp_path_factory.mktemp("sglang") / RELEASE)
    return run_engine(tree, {**args, "speculative_disable_batch_threshold": N}, WORK)


def test_output_equals_no_speculation(gated: Run, without_speculation: Run) -> None:
    assert gated.outputs == without_speculation.outputs


def test_both_modes_ran_and_speculation_resumed_twice(gated: Run) -> None:
    assert gated.gate["threshold"] == N
    assert gated.gate["plain_steps"] >= 20
    assert gated.gate["speculative_steps"] >= 20
    assert gated.gate["resumes"] >= 2
    assert {step.mode for step in read_steps(gated.log)[:FULL]} == {"plain"}


def test_plain_steps_count_as_no_speculative_steps(gated: Run) -> None:
    """C6, for a request that lived through both modes and for the server."""
    survivor = gated.answers[7].meta_info
    steps, drafted = survivor["spec_verify_ct"], survivor["spec_accept_token_num"]
    assert steps + drafted < survivor["completion_tokens"]  # the rest came from plain steps
    assert survivor["spec_accept_length"] == pytest.approx((steps + drafted) / steps)
    assert sum(survivor["spec_accept_histogram"]) == steps
    assert "spec_verify_ct" not in gated.answers[0].meta_info  # this one knew plain steps only
    assert 1 <= gated.internal_state["avg_spec_accept_length"] <= STEPS + 1
    assert {step.accept_len for step in read_steps(gated.log)[:FULL]} == {0.0}
