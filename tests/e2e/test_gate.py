"""The gate on a real server: it crosses the threshold both ways, and nobody can tell from the output."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from tests.e2e.engine import Server
from tests.e2e.turns import Reference, Turn, take_turn
from tests.e2e.workload import Request, greedy, prompt, shrinking_then_growing

pytestmark = pytest.mark.e2e
N = 4


@pytest.fixture(scope="module")
def there_and_back(gated: Server) -> Turn:
    """A batch that shrinks from 8 to 1, grows to 8 again and shrinks to 1 once more."""
    return take_turn(gated, shrinking_then_growing(8))


def test_output_equals_no_speculation(there_and_back: Turn, reference: Reference) -> None:
    assert there_and_back.outputs == reference.outputs(shrinking_then_growing(8))


def test_both_modes_ran_and_speculation_resumed_twice(there_and_back: Turn) -> None:
    assert there_and_back.count("plain_steps") >= 20
    assert there_and_back.count("speculative_steps") >= 20
    assert there_and_back.count("resumes") >= 2
    assert there_and_back.gate["mode"] == "speculative"


def test_each_step_ran_in_the_mode_of_its_batch(there_and_back: Turn) -> None:
    # The log names the running requests when a result is processed: under overlap the next batch may be smaller.
    modes = {step.batch: set() for step in there_and_back.steps}  # type: dict[int, set[str | None]]
    for step in there_and_back.steps:
        modes[step.batch].add(step.mode)
    assert modes[8] == {"plain"}
    assert modes[1] == {"speculative"}
    assert set(modes) == set(range(1, 9))


def test_random_arrivals_and_aborts(gated: Server, reference: Reference) -> None:
    """Some hundred steps around the threshold: who comes waits for one who has left.

    Aborts go by the clock, so a slow machine aborts requests earlier and crosses the threshold less often.
    """
    chance = random.Random(20)
    requests = [
        Request(
            prompt(chance.randrange(1, 40), seed=1000 + i),
            greedy(chance.randrange(1, 120)),
            after=() if i < N else (i - chance.randrange(2, 2 * N),) if i >= 2 * N else (chance.randrange(i),),
            abort_after_s=chance.uniform(0, 1) if chance.random() < 0.3 else None,
        )
        for i in range(60)
    ]
    turn = take_turn(gated, requests)
    assert turn.count("plain_steps") + turn.count("speculative_steps") >= 200
    assert turn.count("resumes") >= 4
    aborted = 0
    for answer, output, request in zip(turn.answers, reference.outputs(requests), requests, strict=True):
        cut = answer.meta_info["finish_reason"]["type"] == "abort"
        aborted += cut
        assert not cut or request.abort_after_s is not None
        # SGLang keeps all that the last step of an aborted request accepted, past max_new_tokens too.
        given = answer.output_ids[: len(output)] if cut else answer.output_ids
        assert given == output[: len(answer.output_ids)]
        assert cut or len(given) == len(output)
    assert aborted >= 3


def test_a_request_prefilled_in_a_fallback_speculates_after_it(gated: Server, reference: Reference) -> None:
    """It comes while the batch is above N, and lives on when the others have gone."""
    crowd = [Request(prompt(6 + i, seed=400 + i), greedy(80)) for i in range(N + 1)]
    all_run = Request(prompt(6, seed=410), greedy(10))
    late = Request(prompt(30, seed=411), greedy(160), after=(N + 1,))
    requests = [*crowd, all_run, late]
    turn = take_turn(gated, requests)
    assert turn.outputs == reference.outputs(requests)
    assert turn.count("resumes") >= 1
    # It speculated only once the crowd had gone, at the acceptance of one that never fell back.
    late_meta = turn.answers[-1].meta_info
    alone = take_turn(gated, [Request(late.input_ids, late.sampling)]).answers[0].meta_info
    assert 0 < late_meta["spec_verify_ct"] < alone["spec_verify_ct"]
    assert late_meta["spec_accept_length"] > 1.2 < alone["spec_accept_length"]


def test_an_abort_that_flips(gated: Server, reference: Reference) -> None:
    """One request above N comes and is aborted, again and again: each abort is what ends the fallback."""
    lasting = [Request(prompt(7 + i, seed=300 + i), greedy(500)) for i in range(N)]
    times = 4
    requests = list(lasting)
    for i in range(times):
        before = (len(requests) - 1,) if i else ()
        requests.append(Request(prompt(5, seed=310 + i), greedy(900), after=before, delay_s=0.1, abort_after_s=0.3))
    turn = take_turn(gated, requests)
    # Of four, some may come and go without a step of their own where a step takes long, as on a busy machine.
    assert turn.count("resumes") >= times // 2
    assert turn.outputs[:N] == reference.outputs(lasting)


def test_counts_leave_out_plain_steps(there_and_back: Turn) -> None:
    """C6: what a request and the server say of acceptance comes from speculative steps alone."""
    verified = [answer.meta_info.get("spec_verify_ct", 0) for answer in there_and_back.answers]
    assert verified[0] < len(there_and_back.outputs[0]) / 2  # it lived in a batch of 8 and 7
    for answer in there_and_back.answers:
        meta = answer.meta_info
        if not meta.get("spec_verify_ct"):
            continue
        accepted = 1 + meta["spec_num_correct_drafts"] / meta["spec_verify_ct"]
        assert meta["spec_accept_length"] == pytest.approx(accepted)
        assert sum(meta["spec_correct_drafts_histogram"]) == meta["spec_verify_ct"]
    survivor = max(there_and_back.answers, key=lambda answer: len(answer.output_ids)).meta_info
    assert 20 <= survivor["spec_verify_ct"] <= there_and_back.count("speculative_steps")


def test_the_log_counts_no_acceptance_over_plain_steps(there_and_back: Turn) -> None:
    steps = there_and_back.steps
    for before, step in pairwise(steps):
        # The mode is that of the newest step, the figures are those of the step that is done, one earlier.
        if before.mode == step.mode == "plain":
            assert step.accept_len == 0
        if before.mode == step.mode == "speculative":
            assert step.accept_len is not None
            assert step.accept_len >= 1
    assert max(step.accept_len or 0 for step in steps) > 1


def test_the_server_says_what_it_does(gated: Server, there_and_back: Turn) -> None:
    assert "EAGLE-3 batch gate: threshold=4 (on, draft sync auto)" in gated.log
    assert there_and_back.server_info["speculative_disable_batch_threshold"] == N
    assert there_and_back.server_info["speculative_fallback_draft_sync"] == "auto"
    assert there_and_back.gate["threshold"] == N
