"""KV slots: what a plain step reserves, and that none is lost when requests are retracted around a flip.

Every run ends idle, and SGLang's own check then ends the engine if a slot is missing.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.cpu_reference import environment
from tests.e2e.conftest import Setup
from tests.e2e.decode_log import read_steps
from tests.e2e.engine import Run, Server, run_engine
from tests.e2e.turns import Reference, take_turn
from tests.e2e.workload import Request, greedy, prompt, shrinking_then_growing

pytestmark = pytest.mark.e2e
N = 4
_RETRACTED = re.compile(r"Retract requests\. #retracted_reqs: (\d+)")


def retracted(run: Run) -> int:
    return sum(map(int, _RETRACTED.findall(run.log)))


def one_by_one(n: int) -> list[Request]:
    """Requests that come apart, each when a short one has ended.

    A server expects the worst of requests that come together, and little of those that run: so it takes on more than
    its pool holds. With ignore_eos it would know better.
    """
    requests: list[Request] = []
    for i in range(n):
        after = (2 * i - 1,) if i else ()
        lasting = greedy(70 + 12 * i) | {"ignore_eos": False}
        requests.append(Request(prompt(12, seed=700 + i), lasting, after=after))
        requests.append(Request(prompt(4, seed=770 + i), greedy(2), after=after))
    return requests


@pytest.mark.parametrize(("page", "topk"), [(16, 1), (1, 4)])
def test_retraction_in_fallback(setup: Setup, reference: Reference, page: int, topk: int) -> None:
    """The pool fills up during a fallback: requests are retracted, others end, and speculation resumes."""
    requests = one_by_one(8)
    pool: dict[str, Any] = {"max_total_tokens": 560, "schedule_conservativeness": 0.1}
    args = setup.gated_args(N, topk=topk, draft_tokens=4 if topk == 1 else 8, page_size=page, **pool)
    run = run_engine(setup.patched, args, requests)
    assert retracted(run) >= 1
    at_once = read_steps(run.log[: run.log.index("Retract requests.")])[-1]
    assert at_once.mode == "plain"
    assert run.gate["resumes"] >= 1
    assert run.gate["plain_steps"] >= 20
    assert run.outputs == reference.outputs(requests)


def test_retraction_at_any_step(setup: Setup, reference: Reference) -> None:
    """SGLang retracts on purpose every few steps: in both modes, on a flip, and on the step after one."""
    requests = shrinking_then_growing(8, first=8, step=6)
    run = run_engine(
        setup.patched,
        setup.gated_args(N),
        requests,
        variables={"SGLANG_TEST_RETRACT": "1", "SGLANG_TEST_RETRACT_INTERVAL": "7"},
    )
    assert run.log.count("Testing retraction.") >= 10
    assert run.gate["resumes"] >= 2
    assert run.outputs == reference.outputs(requests)


def test_fallback_reserves_what_plain_decode_does(setup: Setup) -> None:
    """In a pool that holds eight requests to their last token, plain decode retracts none, and EAGLE-3 does.

    Its reserve is two windows a request: at 5 steps of 4 candidates 40 slots, 320 for eight requests.
    """
    requests = [Request(prompt(8, seed=720 + i), greedy(72)) for i in range(8)]
    pool: dict[str, Any] = {"max_total_tokens": 8 * (8 + 72) + 24, "schedule_conservativeness": 0.1}
    eagle = environment.eagle3_args(setup.draft, steps=5, topk=4, draft_tokens=12)
    gated = setup.gated_args(N, steps=5, topk=4, draft_tokens=12)
    runs = {
        "no speculation": run_engine(setup.upstream, setup.plain_args(**pool), requests),
        "EAGLE-3 always": run_engine(setup.upstream, setup.plain_args(**pool, **eagle), requests),
        "gated": run_engine(setup.patched, gated | pool, requests),
    }
    assert retracted(runs["EAGLE-3 always"]) > 0  # or the pool is no test of the reserve
    assert retracted(runs["no speculation"]) == 0
    assert retracted(runs["gated"]) == 0
    assert runs["gated"].outputs == runs["no speculation"].outputs


def test_prefix_cache_hits_in_fallback_equal_no_speculation(gated: Server, reference: Reference) -> None:
    """Second turns over what the first ones said, on a shared prefix.

    One or two tokens short, as under EAGLE-3 always, and for good reason: the draft's K and V of a position depend on
    the token after it, so upstream's cache keys are pairs; and whether the last token was run once more when the end
    was noticed is the overlap scheduler's luck.
    """
    prefix = prompt(40, seed=740)
    opening = [Request(prefix + prompt(9, seed=741 + i), greedy(30)) for i in range(N + 2)]
    first = [take_turn(server, opening) for server in (gated, reference.server)]
    follow_up = [
        Request(request.input_ids + answer.output_ids + prompt(5, seed=750), greedy(30))
        for request, answer in zip(opening, first[1].answers, strict=True)
    ]
    second = [take_turn(server, follow_up) for server in (gated, reference.server)]
    assert second[0].count("plain_steps") >= 20
    assert second[0].outputs == second[1].outputs
    hits, wanted = ([answer.meta_info["cached_tokens"] for answer in turn.answers] for turn in second)
    assert min(wanted) >= len(prefix) + 30
    assert all(1 <= tokens - hit <= 2 for hit, tokens in zip(hits, wanted, strict=True)), (hits, wanted)
