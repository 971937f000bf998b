"""The gate with CUDA graphs and streams that are real: same output, and no step of ours waits for the device.

Half precision rounds a verify's logits and a decode's differently, so two tokens that are as good as tied may swap.
Outputs must be equal up to the first such place; where they part, the server without speculation says how tied it was.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cpu_reference import environment
from tests.e2e.engine import Run, run_engine
from tests.e2e.workload import Answer, Request, shrinking_then_growing
from tests.gpu.conftest import Setup
from tests.models.prompts import prompt

N = 4
OURS = ("plain_step", "after_plain_step", "flush", "resume", "remember_prefill")
PROBE = Path(__file__).parent / "probe"
TIMEOUT_S = 500.0  # a first start compiles kernels
TIED = 0.05  # difference of two log probabilities; float16 keeps 11 bits, which for logits near 16 is 0.008


def requests() -> list[Request]:
    """A batch that shrinks from 8 to 1, grows to 8 again and shrinks to 1 once more."""
    return shrinking_then_growing(8, say=prompt)


@pytest.fixture(scope="module")
def plain(setup: Setup) -> Run:
    args = {"model_path": str(setup.target)}
    asked = [replace(request, more={"return_logprob": True, "top_logprobs_num": 2}) for request in requests()]
    return run_engine(setup.upstream, args, asked, host=setup.host, timeout_s=TIMEOUT_S)


def margin_where_they_part(answer: Answer, output: list[int]) -> float | None:
    """How much likelier the best token was than the next, where ``output`` first differs; None where it never does."""
    assert len(answer.output_ids) == len(output)
    for at, (expected, token) in enumerate(zip(answer.output_ids, output, strict=True)):
        if expected != token:
            best, second = answer.meta_info["output_top_logprobs"][at]
            return float(best[0] - second[0])
    return None


@pytest.mark.parametrize(("topk", "draft_tokens"), [(1, 4), (4, 8)])
def test_same_output_and_no_synchronisation(
    setup: Setup, plain: Run, tmp_path: Path, topk: int, draft_tokens: int
) -> None:
    report = tmp_path / "syncs.json"
    paths = f"{PROBE}:{setup.host.variables(setup.patched)['PYTHONPATH']}"
    args: dict[str, Any] = {
        "model_path": str(setup.target),
        "speculative_disable_batch_threshold": N,
        **environment.eagle3_args(setup.draft, topk=topk, draft_tokens=draft_tokens),
    }
    run = run_engine(
        setup.patched,
        args,
        requests(),
        host=setup.host,
        variables={"PYTHONPATH": paths, "GATE_SYNC_REPORT": str(report)},
        timeout_s=TIMEOUT_S,
    )
    assert "plain decode graphs" in run.log
    assert run.gate["plain_steps"] >= 20
    assert run.gate["speculative_steps"] >= 20
    assert run.gate["resumes"] >= 2
    margins = [margin_where_they_part(*pair) for pair in zip(plain.answers, run.outputs, strict=True)]
    print(f"{margins.count(None)} of {len(margins)} outputs equal; the others part at margins {margins}")
    assert margins.count(None) >= len(margins) // 2
    assert all(margin < TIED for margin in margins if margin is not None)

    counted = json.loads(report.read_text())
    print(json.dumps(counted))  # shown with -s or on failure
    assert counted["syncs"]["control"] >= 1  # or the counter does not count
    assert all(counted["calls"][name] > 0 for name in OURS)
    assert {name: counted["syncs"].get(name, 0) for name in OURS} == dict.fromkeys(OURS, 0), counted["where"]
