"""The loads, on an engine whose every step is known."""

from typing import Any

from bench import traffic
from bench.figures import fallback_cost, resume_cost, speculating, switches
from bench.records import CrossingRecord
from bench.settings import Mode
from fake_engine import Engine


def engine(threshold: int = 0, algorithm: str | None = "EAGLE3") -> Engine:
    return Engine(speculative_algorithm=algorithm, speculative_disable_batch_threshold=threshold)


def run(fake: Engine, load: Any) -> Any:
    try:
        return fake.loop.run_until_complete(load)
    finally:
        fake.loop.close()


def test_prompts_are_distinct_and_clear_of_special_tokens() -> None:
    prompts = traffic.make_prompts(8, 32, vocabulary=256)
    assert len({tuple(prompt) for prompt in prompts}) == 8
    assert all(len(prompt) == 32 and min(prompt) >= 10 and max(prompt) < 256 for prompt in prompts)


def test_decode_counts_all_rows_and_leaves_the_first_tokens_out_of_the_window() -> None:
    fake = engine(algorithm=None)
    seen = run(fake, traffic.decode(fake, traffic.make_prompts(5, 4, 256), 20))
    assert (seen.tokens, seen.window_tokens) == (100, 95)
    assert [tokens for _, tokens in seen.steps] == [1] * 19
    assert 0 < seen.window_seconds < seen.seconds
    assert fake.largest_batch == 5


def test_decode_of_one_row_is_the_probe_alone() -> None:
    fake = engine()
    seen = run(fake, traffic.decode(fake, traffic.make_prompts(1, 4, 256), 20))
    assert (seen.tokens, seen.window_tokens) == (20, 18)


def test_first_tokens_asks_each_row_for_one() -> None:
    fake = engine(algorithm=None)
    assert run(fake, traffic.first_tokens(fake, traffic.make_prompts(3, 4, 256))) > 0
    assert fake.largest_batch == 3


def test_ramp_holds_each_level_and_lets_every_request_finish() -> None:
    fake = engine(threshold=2)
    clients = [1, 2, 4, 2, 1]
    seen = run(fake, traffic.ramp(fake, traffic.make_prompts(4, 4, 256), clients, 0.1, 10))
    assert [count for _, count in seen.levels] == clients
    assert fake.largest_batch == 4
    assert {tokens for *_, tokens in seen.requests} == {10}
    assert seen.seconds >= 0.5
    assert not fake.rows
    assert switches(speculating([tokens for *_, tokens in seen.probe_steps])) == 2


def test_crossing_goes_plain_while_the_joiners_are_there() -> None:
    prompts = traffic.make_prompts(6, 4, 256)
    fake = engine(threshold=3)
    seen = run(fake, traffic.crossing(fake, prompts[:2], prompts[2:], 60))
    tokens = [count for _, count in seen.steps]
    first, last = tokens.index(1), len(tokens) - tokens[::-1].index(1) - 1
    assert set(tokens[first:last]) == {1}
    assert last - first >= 50
    assert first - 2 <= seen.joined <= first
    record = CrossingRecord("r", Mode.GATED, 0, 2, 4, seen.joined, seen.steps)
    assert fallback_cost(record) is not None
    assert resume_cost(record) is not None
