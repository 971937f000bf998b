"""The draft's K and V after plain steps are those of a full draft extend, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.e2e import draft_kv_probe
from tests.e2e.conftest import Setup
from tests.e2e.engine import run_engine
from tests.e2e.workload import Request, greedy, prompt

pytestmark = pytest.mark.e2e
N = 4


class Resumed(NamedTuple):
    """One request at a resume.

    Attributes:
        positions: how many positions plain steps had committed since its last speculative step.
        differences: for each, the largest difference of K and of V from a full draft extend.
    """

    positions: int
    differences: list[list[float]]


def resumes(setup: Setup, folder: Path, **over: Any) -> list[Resumed]:
    """Four requests that go through three fallbacks, of about 1, 10 and 100 plain steps."""
    lasting = [Request(prompt(8 + i, seed=800 + i), greedy(420)) for i in range(N)]
    requests = list(lasting)
    for tokens in (2, 11, 101):  # the first token is the prefill's
        last = len(requests) - 1
        after = (last,) if last >= N else ()
        requests.append(Request(prompt(9, seed=810 + tokens), greedy(tokens), after=after, delay_s=0.3))
    report = folder / "report.jsonl"
    variables = {"CPU_REFERENCE_HOOKS": str(draft_kv_probe.__file__), "DRAFT_KV_REPORT": str(report)}
    run = run_engine(setup.patched, setup.gated_args(N, **over), requests, variables=variables)
    assert run.gate["resumes"] == 3
    return [Resumed(**json.loads(line)) for line in report.read_text().splitlines()]


def test_keys_and_values_equal_those_of_a_full_draft_extend(setup: Setup, tmp_path: Path) -> None:
    found = resumes(setup, tmp_path)
    counts = sorted({resumed.positions for resumed in found})
    assert len(counts) == 3
    for count, wanted in zip(counts, (1, 10, 100), strict=True):
        assert abs(count - wanted) <= 2
    assert {difference for resumed in found for pair in resumed.differences for difference in pair} == {0.0}


def test_without_the_sync_they_differ(setup: Setup, tmp_path: Path) -> None:
    found = resumes(setup, tmp_path, speculative_fallback_draft_sync="off")
    # The last position is written by the resume itself.
    skipped = [pair for resumed in found for pair in resumed.differences[:-1]]
    assert len(skipped) > 4 * 100
    assert min(max(pair) for pair in skipped) > 1e-3
