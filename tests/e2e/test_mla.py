"""A target with multi-latent attention and Kimi-K2.x's kind of draft, which keeps one latent row a position.

Its K/V-only write is another one than a Llama draft's. With one rank and two: two split the projection of the hidden
states, and each keeps the whole latent.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cpu_reference import environment, tiny_mla
from tests.e2e.conftest import Setup
from tests.e2e.draft_kv_report import report_to, resumes
from tests.e2e.engine import Run, run_engine
from tests.e2e.host import cpu_with_graphs
from tests.e2e.workload import shrinking_then_growing

pytestmark = pytest.mark.e2e
N = 4
WORK = shrinking_then_growing(8)
PAIR = tiny_mla.pair()
TARGET = {"model_path": str(PAIR.target)}
GATED = {**TARGET, **environment.eagle3_args(PAIR.draft), "speculative_disable_batch_threshold": N}


@pytest.fixture(scope="module")
def expected(setup: Setup) -> list[list[int]]:
    """Upstream's own tree without speculation."""
    return run_engine(setup.upstream, TARGET, WORK).outputs


def crossed(run: Run, expected: list[list[int]]) -> None:
    """There and back with the output of no speculation, and a draft that was sometimes right on either side."""
    assert run.outputs == expected
    assert run.gate["plain_steps"] >= 20
    assert run.gate["speculative_steps"] >= 20
    assert run.gate["resumes"] >= 2
    assert run.internal_state["avg_spec_accept_length"] > 1.5
    assert "full draft extend" not in run.log


@pytest.mark.parametrize("ranks", [1, 2])
def test_its_latents_equal_those_of_a_full_draft_extend(
    setup: Setup, expected: list[list[int]], tmp_path: Path, ranks: int
) -> None:
    variables = environment.rank_variables(ranks) | report_to(tmp_path)
    run = run_engine(setup.patched, {**GATED, "tp_size": ranks}, WORK, variables=variables)
    crossed(run, expected)
    found = resumes(tmp_path)
    assert sum(one.positions for one in found) >= 20 * ranks
    assert {difference for one in found for pair in one.differences for difference in pair} == {0.0}


def test_without_the_sync_they_differ(setup: Setup, tmp_path: Path) -> None:
    args = {**GATED, "speculative_fallback_draft_sync": "off"}
    run_engine(setup.patched, args, WORK, variables=report_to(tmp_path))
    skipped = [pair for one in resumes(tmp_path) for pair in one.differences[:-1]]  # the resume writes the last
    assert len(skipped) >= 20
    assert min(max(pair) for pair in skipped) > 1e-3


def test_with_graphs(setup: Setup, expected: list[list[int]]) -> None:
    run = run_engine(setup.patched, GATED, WORK, host=cpu_with_graphs([1, 2, 4, 6, 8]))
    crossed(run, expected)
    assert "captured 2 plain decode graphs" in run.log
