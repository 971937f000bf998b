"""Unpatched SGLang on the CPU reference: EAGLE-3 says what the target alone says, with the overlap scheduler on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.cpu_reference import environment, tiny_models
from tests.e2e.engine import Run, run_engine
from tests.e2e.workload import Request, greedy, prompt

pytestmark = pytest.mark.e2e

LOGPROBS = {"return_logprob": True, "top_logprobs_num": 2}
NO_LOGPROBS_UNDER_EAGLE3 = ("0.5.9",)  # upstream dies of a logprob request there: torch.cat of no aux hidden states


def requests_for(release: str) -> list[Request]:
    more = {} if release in NO_LOGPROBS_UNDER_EAGLE3 else LOGPROBS
    return [Request(prompt(4 + 3 * i, seed=i), greedy(12 + 4 * i), more=more) for i in range(6)]


def serve(release: str, requests: list[Request], *, draft: Path | None, **more: Any) -> Run:
    args: dict[str, Any] = {"model_path": str(tiny_models.pair().target), **more}
    if draft:
        args |= environment.eagle3_args(draft)
    return run_engine(environment.tree(release), args, requests)


# topk 4 and page size 16 are met in tests/e2e/test_features.py.
@pytest.mark.parametrize("release", ["0.5.9", "0.5.20"])
def test_greedy_output_equals_the_targets(release: str) -> None:
    alone = serve(release, requests_for(release), draft=None)
    drafted = serve(release, requests_for(release), draft=tiny_models.pair().draft)
    assert drafted.outputs == alone.outputs
    assert drafted.server_info["disable_overlap_schedule"] is False
    assert drafted.internal_state["avg_spec_accept_length"] > 1.5  # drafts are accepted at all
    if release in NO_LOGPROBS_UNDER_EAGLE3:
        return
    for ours, theirs in zip(drafted.answers, alone.answers, strict=True):
        for kind in ("output_token_logprobs", "output_top_logprobs"):
            assert logprobs(ours.meta_info[kind]) == pytest.approx(logprobs(theirs.meta_info[kind]), abs=1e-4)


def test_sampled_output_is_distributed_as_the_targets() -> None:
    """Upstream's CPU branch would take the argmax of every verified position: a distance of 0.3 and more."""
    samples, positions = 400, 3  # with top_k 2 there are at most 2, 4 and 8 tokens: few enough for so few samples
    sampling = {"temperature": 1.0, "top_k": 2, "max_new_tokens": positions, "ignore_eos": True}
    requests = [Request([5, 9, 77, 30], sampling) for _ in range(samples)]
    alone = serve("0.5.20", requests, draft=None, max_running_requests=32)
    drafted = serve("0.5.20", requests, draft=tiny_models.pair().draft, max_running_requests=32)
    for position in range(positions):
        seen, expected = (Counter(output[position] for output in run.outputs) for run in (drafted, alone))
        distance = sum(abs(seen[token] - expected[token]) for token in seen | expected) / (2 * samples)
        assert distance < 0.15, (position, seen, expected)


def logprobs(entries: list[Any]) -> list[float]:
    """All logprobs of SGLang's (logprob, token id, text) entries, flat; top logprobs are lists of entries."""
    if entries and isinstance(entries[0][0], list):
        return [value for best in entries for value in logprobs(best)]
    return [float(entry[0]) for entry in entries]
