"""What a request asks of sampling holds across a flip as it does without speculation."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from tests.e2e.engine import Server
from tests.e2e.tokenizer import text_of
from tests.e2e.turns import Reference, Turn, take_turn
from tests.e2e.workload import Request, greedy, prompt

pytestmark = pytest.mark.e2e
N = 4
# Decode, verify and prefill sum in different orders: float32 rounding, far below a difference of one token.
LOGPROB_TOLERANCE = 1e-4
END = 2  # the token that ends a generation
_NAME = {"type": "string", "pattern": "^[a-z]{80,90}$"}
SCHEMA = {"type": "object", "properties": {"name": _NAME}, "required": ["name"]}


def across_two_flips(gated: Server, tested: list[Request], crowd_asks: dict[str, Any] | None = None) -> Turn:
    """Serve up to N requests that live from speculation through a fallback and into speculation again, twice.

    Short requests raise the batch above N for a while, twice; ``tested`` come first and must outlive them.
    """
    crowd = [Request(prompt(6, seed=500 + i), greedy(12), more=crowd_asks or {}) for i in range(N + 1)]
    second = [replace(r, after=tuple(range(len(tested), len(tested) + len(crowd))), delay_s=0.1) for r in crowd]
    turn = take_turn(gated, [*tested, *crowd, *second])
    assert turn.count("resumes") >= 2
    assert turn.count("plain_steps") >= 10
    return replace(turn, answers=turn.answers[: len(tested)])


def requests(n: int, *, tokens: int = 120, **sampling: Any) -> list[Request]:
    return [Request(prompt(6 + 3 * i, seed=600 + i), greedy(tokens) | sampling) for i in range(n)]


def test_log_probabilities(gated: Server, reference: Reference) -> None:
    asked = {"return_logprob": True, "top_logprobs_num": 3, "token_ids_logprob": [5, 77]}
    tested = [replace(request, more=asked) for request in requests(3)]
    # All ask: upstream crashes on a batch in which only some ask for token_ids_logprob.
    turn = across_two_flips(gated, tested, asked)
    for got, wanted in zip(turn.answers, reference.answers(tested), strict=True):
        assert got.output_ids == wanted.output_ids
        for name in ("output_token_logprobs", "output_top_logprobs", "output_token_ids_logprobs"):
            mine, theirs = flat(got.meta_info[name]), flat(wanted.meta_info[name])
            assert len(mine) >= len(got.output_ids)
            assert [token for _, token in mine] == [token for _, token in theirs], name
            assert [p for p, _ in mine] == pytest.approx([p for p, _ in theirs], abs=LOGPROB_TOLERANCE), name


def flat(logprobs: list[Any]) -> list[tuple[float, int]]:
    """(log probability, token) of every entry, whether a position has one or several."""
    entries = [entry for position in logprobs for entry in (position if isinstance(position[0], list) else [position])]
    return [(entry[0], entry[1]) for entry in entries]


def test_logit_bias(gated: Server, reference: Reference) -> None:
    # Far enough to change what is said, not so far that one token is all that is said.
    tested = requests(3, logit_bias={str(token): 2.0 for token in range(40, 60)})
    assert across_two_flips(gated, tested).outputs == reference.outputs(tested)
    assert reference.outputs(tested) != reference.outputs(requests(3))


def test_stop_tokens_and_stop_strings(gated: Server, reference: Reference) -> None:
    lasting = requests(4)
    tested = lasting[:2]
    for i, (request, said) in enumerate(zip(lasting[2:], reference.outputs(lasting[2:]), strict=True)):
        news = latest_news(said)
        stop = {"stop": [text_of(news)]} if i else {"stop_token_ids": news[-1:], "ignore_eos": False}
        tested.append(replace(request, sampling=request.sampling | stop))
    answers = across_two_flips(gated, tested).answers
    for got, wanted in zip(answers, reference.answers(tested), strict=True):
        assert got.output_ids == wanted.output_ids
        assert got.meta_info["finish_reason"] == wanted.meta_info["finish_reason"]
    assert [answer.meta_info["finish_reason"]["type"] for answer in answers] == ["length"] * 2 + ["stop"] * 2


def latest_news(said: list[int], width: int = 3) -> list[int]:
    """The tokens, printable all, that take longest to be said for the first time: the tiny target repeats itself."""
    first: dict[tuple[int, ...], int] = {}
    for i in range(len(said) - width):
        first.setdefault(tuple(said[i : i + width]), i)
    news, _ = max(((tokens, i) for tokens, i in first.items() if printable(tokens)), key=lambda found: found[1])
    return list(news)


def printable(tokens: tuple[int, ...]) -> bool:
    text = text_of(list(tokens))
    return text.isascii() and text.isprintable()


@pytest.mark.parametrize(
    "constraint",
    [
        {"regex": "([a-z]{5} ){20}"},
        {"json_schema": json.dumps(SCHEMA)},
    ],
    ids=["regex", "json"],
)
def test_grammar(gated: Server, reference: Reference, constraint: dict[str, str]) -> None:
    tested = requests(3, **constraint, ignore_eos=False, tokens=140)
    turn = across_two_flips(gated, tested)
    assert turn.outputs == reference.outputs(tested)
    for output in turn.outputs:
        assert len(output) >= 100
        *said, end = output
        assert end == END
        if "regex" in constraint:
            assert re.fullmatch(constraint["regex"], text_of(said))
        else:
            assert 80 <= len(json.loads(text_of(said))["name"]) <= 90


def test_penalties_across_flips_are_upstreams_and_end_in_time(gated: Server) -> None:
    """Across a flip penalties are upstream's relaxed ones (test_plain_steps.py), so no equality; the rest must hold."""
    sampling = [{"frequency_penalty": 0.5}, {"presence_penalty": 0.5}, {"repetition_penalty": 1.2}]
    plain = requests(3)
    penalised = [replace(r, sampling=r.sampling | more) for r, more in zip(plain, sampling, strict=True)]
    held_off = {"min_new_tokens": 60, "stop_token_ids": list(range(40, 200)), "ignore_eos": False}
    tested = [*penalised, Request(prompt(9, seed=640), greedy(120) | held_off)]
    outputs = across_two_flips(gated, tested).outputs
    for unpenalised, output in zip(across_two_flips(gated, plain).outputs, outputs, strict=False):
        assert len(output) == len(unpenalised) == 120
        assert repeats(output) < repeats(unpenalised)
    assert 60 <= len(outputs[-1]) <= 120


def repeats(tokens: list[int]) -> int:
    return len(tokens) - len(set(tokens))
