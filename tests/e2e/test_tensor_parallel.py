"""Two ranks: each holds half of the heads and of the vocabulary, decides for itself, and must do what the other does.

A rank that decided otherwise would enter another collective than its peer: the server would hang, or exchange the
wrong tensors. rank_probe.py writes down what each rank did. Every turn ends idle, where each rank counts its KV slots
and ends the server if one is missing.
"""

from __future__ import annotations

import json
import random
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import models
from tests.cpu_reference import environment
from tests.e2e import rank_probe
from tests.e2e.conftest import Setup
from tests.e2e.engine import Server, server
from tests.e2e.turns import Reference, Turn, take_turn
from tests.e2e.workload import Answer, Request, greedy, prompt, shrinking_then_growing
from tests.models import prompts

pytestmark = pytest.mark.e2e
N = 4
RANKS = 2
ARGS = {"model_path": str(models.TARGET), "tp_size": RANKS, "sleep_on_idle": True}
GATED = {**ARGS, **environment.eagle3_args(models.DRAFT), "speculative_disable_batch_threshold": N}


def say(length: int, seed: int) -> list[int]:
    """A prompt in the language of the trained pair, long enough for it to know how to go on."""
    return prompts.text(random.Random(seed), prompts.KEYS + length)


CROSSING = shrinking_then_growing(8, say=say)
LASTING = [Request(say(7 + i, seed=300 + i), greedy(250)) for i in range(N)]


@dataclass(frozen=True)
class Watched:
    """A gated server of two ranks, and the folder in which each writes down what it did."""

    server: Server
    folder: Path

    def records(self) -> list[dict[str, Any]]:
        """What both ranks did so far, in order; fails where they did not do the same (C5)."""
        first, *others = [
            [json.loads(line) for line in (self.folder / f"{rank}.jsonl").read_text().splitlines()]
            for rank in range(RANKS)
        ]
        for other in others:
            for mine, theirs in zip(first, other, strict=True):
                assert mine == theirs
        return first

    def take_turn(
        self, requests: list[Request], beside: Callable[[], None] = lambda: None
    ) -> tuple[Turn, list[dict[str, Any]]]:
        """Serve ``requests``, with ``beside`` in a thread of its own; also returns what both ranks did meanwhile."""
        done = len(self.records())
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(beside)
            turn = take_turn(self.server, requests)
            other.result()
        return turn, self.records()[done:]


def watched(setup: Setup, folder: Path, **over: Any) -> Iterator[Watched]:
    (folder / "ranks").mkdir()
    for rank in range(RANKS):
        (folder / "ranks" / f"{rank}.jsonl").touch()
    variables = {
        **environment.rank_variables(RANKS),
        "CPU_REFERENCE_HOOKS": str(rank_probe.__file__),
        "RANK_REPORT": str(folder / "ranks"),
    }
    with server(setup.patched, GATED | over, folder, variables=variables) as running:
        yield Watched(running, folder / "ranks")


@pytest.fixture(scope="module")
def alone(setup: Setup, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """Upstream's own tree with the same two ranks and no speculation: sums over ranks round in their own way."""
    folder = tmp_path_factory.mktemp("alone")
    with server(setup.upstream, ARGS, folder, variables=environment.rank_variables(RANKS)) as running:
        reference = Reference(running)
        reference.answers([*CROSSING, *LASTING])
    return reference


@pytest.fixture(scope="module")
def gated(setup: Setup, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """The patched tree with N = 4."""
    yield from watched(setup, tmp_path_factory.mktemp("gated"))


@pytest.fixture(scope="module")
def full(setup: Setup, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """As ``gated``, with a full draft extend after each plain step."""
    yield from watched(setup, tmp_path_factory.mktemp("full"), speculative_fallback_draft_sync="full")


def test_there_and_back(gated: Watched, alone: Reference) -> None:
    turn, steps = gated.take_turn(CROSSING)
    assert turn.outputs == alone.outputs(CROSSING)
    assert turn.count("plain_steps") >= 20
    assert turn.count("speculative_steps") >= 20
    assert turn.count("resumes") >= 2
    for step in steps:
        if step["mode"] != "prefill":
            assert step["mode"] == ("plain" if len(step["rows"]) > N else "speculative")
    # What the ranks agreed on was more than nothing.
    assert {step["mode"] for step in steps} == {"prefill", "plain", "speculative"}
    assert any(step["stale"] for step in steps)
    assert max(step["window"][1] for step in steps if step["window"]) > 1
    assert max(max(step["accepted"]) for step in steps if step["mode"] == "speculative") > 1


def test_sampled_tokens_are_the_same_on_both_ranks(gated: Watched) -> None:
    sampling = {"temperature": 3.0, "top_k": 20, "ignore_eos": True}
    unlike_the_language = prompt(12, seed=600)  # the target is not sure how this goes on
    requests = [Request(unlike_the_language, sampling | {"max_new_tokens": 16 + 8 * i}) for i in range(2 * N)]
    turn, _ = gated.take_turn(requests)
    assert turn.count("plain_steps") >= 20
    assert turn.count("speculative_steps") >= 5
    assert len({tuple(output[:16]) for output in turn.outputs}) > N  # chance had a say


def test_a_client_that_disconnects_ends_the_fallback(gated: Watched, alone: Reference) -> None:
    """The request above N is dropped by its client: both ranks abort it at the same step, and resume at the next."""
    above = Request(say(5, seed=310), greedy(900))

    def come_and_leave() -> None:
        time.sleep(0.3)  # the others are there by then
        hang_up(gated.server, above, chunks=30)

    turn, steps = gated.take_turn(LASTING, come_and_leave)
    assert turn.outputs == alone.outputs(LASTING)
    assert turn.count("plain_steps") >= 20
    assert turn.count("resumes") >= 1
    assert len([step for step in steps if step["mode"] == "plain"]) < 800  # or it lived to its last token


def hang_up(running: Server, request: Request, chunks: int) -> None:
    """Stream a request's answer, and close the connection after some chunks."""
    body = {"input_ids": request.input_ids, "sampling_params": request.sampling, "stream": True}
    asked = urllib.request.Request(
        f"{running.url}/generate", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(asked, timeout=60) as stream:
        while chunks:
            chunks -= stream.readline().startswith(b"data:")


def test_acceptance_after_a_resume_is_that_of_never_falling_back(gated: Watched) -> None:
    """Four requests live through 60 plain steps; then the same stretch of text again, by four that never do."""
    crowd = [Request(say(30 + i, seed=500 + i), greedy(60)) for i in range(N)]
    measured = [Request(say(20 + i, seed=510 + i), greedy(160)) for i in range(N)]
    turn, _ = gated.take_turn([*crowd, *measured])
    assert turn.count("resumes") >= 1
    resumed = turn.answers[N:]
    # The first token is the prefill's; the rest came from a plain step where no verify says otherwise.
    plain = [len(answer.output_ids) - sum(speculated(answer)) for answer in resumed]
    assert min(plain) >= 40
    uncached = {"extra_key": "again"}  # of the prefix cache, or the draft's K and V would be those of the fallback
    again = [
        Request(request.input_ids + answer.output_ids[:count], greedy(160 - count), more=uncached)
        for request, answer, count in zip(measured, resumed, plain, strict=True)
    ]
    never, _ = gated.take_turn(again)
    assert never.count("plain_steps") == 0
    assert {answer.meta_info["cached_tokens"] for answer in never.answers} == {0}
    assert [answer.output_ids[count:] for answer, count in zip(resumed, plain, strict=True)] == never.outputs
    assert accept_length(never.answers) > 2.5
    assert accept_length(resumed) >= 0.98 * accept_length(never.answers)


def speculated(answer: Answer) -> tuple[int, int]:
    """An answer's verify steps and correct drafts."""
    return answer.meta_info["spec_verify_ct"], answer.meta_info["spec_num_correct_drafts"]


def accept_length(found: list[Answer]) -> float:
    """Tokens that a verify step yields, over several answers."""
    counts = [speculated(answer) for answer in found]
    return 1 + sum(correct for _, correct in counts) / sum(verified for verified, _ in counts)


def test_full_draft_extend_and_keys_and_values_of_every_shard(full: Watched, alone: Reference) -> None:
    """A K/V-only write sums the embedding over the ranks, and slices each rank's own rows of ``qkv_proj``."""
    turn, _ = full.take_turn(CROSSING)
    assert turn.outputs == alone.outputs(CROSSING)
    assert turn.count("plain_steps") >= 20
    assert turn.count("speculative_steps") >= 20
    assert full.server.log.count("EAGLE-3 batch gate: plain steps run a full draft extend") == 1  # not once a rank
    shards = [json.loads(line) for line in (full.folder / "shards.jsonl").read_text().splitlines()]
    for rank in range(RANKS):
        assert len([shard for shard in shards if shard["rank"] == rank]) == turn.count("plain_steps")
    for shard in shards:
        assert shard["heads"] == 1  # of the draft's two
        # A product of fewer rows rounds in its own way; K or V of other heads or tokens would be wrong by ones.
        assert all(difference < 1e-4 for difference in shard["differences"]), shard
