"""The draft's K and V after plain steps are those of a full draft extend, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Setup
from tests.e2e.draft_kv_report import Resumed, report_to, resumes
from tests.e2e.engine import run_engine
from tests.e2e.workload import Request, greedy, prompt, shrinking_then_growing

pytestmark = pytest.mark.e2e
N = 4

# Rows can't be cut out of a quantized projection. The CPU has no kernels for one, so a plain one is made to look so.
QUANTIZED = """
from tests.e2e import draft_kv_probe

def rename(unquant):
    unquant.UnquantizedLinearMethod.__name__ = "QuantizedLinearMethod"
    print("projections look quantized")

HOOKS = {**draft_kv_probe.HOOKS, "sglang.srt.layers.quantization.unquant": rename}
"""


def three_fallbacks(setup: Setup, folder: Path, **over: Any) -> list[Resumed]:
    """Four requests that go through three fallbacks, of about 1, 10 and 100 plain steps."""
    lasting = [Request(prompt(8 + i, seed=800 + i), greedy(420)) for i in range(N)]
    requests = list(lasting)
    for tokens in (2, 11, 101):  # the first token is the prefill's
        last = len(requests) - 1
        after = (last,) if last >= N else ()
        requests.append(Request(prompt(9, seed=810 + tokens), greedy(tokens), after=after, delay_s=0.3))
    run = run_engine(setup.patched, setup.gated_args(N, **over), requests, variables=report_to(folder))
    assert run.gate["resumes"] == 3
    return resumes(folder)


def test_keys_and_values_equal_those_of_a_full_draft_extend(setup: Setup, tmp_path: Path) -> None:
    found = three_fallbacks(setup, tmp_path)
    counts = sorted({resumed.positions for resumed in found})
    assert len(counts) == 3
    for count, wanted in zip(counts, (1, 10, 100), strict=True):
        assert abs(count - wanted) <= 2
    assert {difference for resumed in found for pair in resumed.differences for difference in pair} == {0.0}


def test_without_the_sync_they_differ(setup: Setup, tmp_path: Path) -> None:
    found = three_fallbacks(setup, tmp_path, speculative_fallback_draft_sync="off")
    # The last position is written by the resume itself.
    skipped = [pair for resumed in found for pair in resumed.differences[:-1]]
    assert len(skipped) > 4 * 100
    assert min(max(pair) for pair in skipped) > 1e-3


def test_a_quantized_projection_runs_whole(setup: Setup, tmp_path: Path) -> None:
    hooks = tmp_path / "quantized.py"
    hooks.write_text(QUANTIZED)
    variables = report_to(tmp_path) | {"CPU_REFERENCE_HOOKS": str(hooks)}
    run = run_engine(setup.patched, setup.gated_args(N), shrinking_then_growing(8), variables=variables)
    assert "projections look quantized" in run.log
    assert "full draft extend" not in run.log
    found = resumes(tmp_path)
    assert sum(resumed.positions for resumed in found) >= 20
    assert {difference for resumed in found for pair in resumed.differences for difference in pair} == {0.0}
