"""Figures from records that were made by hand."""

import pytest
from bench.figures import (
    Spread,
    crossover,
    decode_rows,
    fallback_cost,
    level_rates,
    prefill_cost,
    ramp_rate,
    ramp_switches,
    resume_cost,
    speculating,
    subtracted_rate,
    summary,
    switch_summary,
    switches,
    tokens_between,
)
from bench.records import CrossingRecord, DecodeRecord, RampRecord, Results, Run
from bench.settings import Mode


def decode(mode: Mode, batch: int, index: int, rate: float, run: str = "a", prefill: float = 0.5) -> DecodeRecord:
    seconds = 100 * batch / rate
    return DecodeRecord(
        run,
        mode,
        batch,
        index,
        seconds + prefill,
        prefill,
        seconds,
        101 * batch,
        100 * batch,
        [seconds / 100] * 100,
        [1] * 100,
    )


def results(*records: DecodeRecord, side_by_side: bool = True) -> Results:
    return Results(settings={}, runs=[Run("a", "", {}, side_by_side)], decode=list(records))


def test_spread_is_the_median_and_the_range() -> None:
    spread = Spread.of([1.0, 4.0, 2.0])
    assert (spread.median, spread.low, spread.high, spread.count) == (2.0, 1.0, 4.0, 3)
    assert spread.half_width == pytest.approx(0.75)


def test_the_better_baseline_changes_with_the_batch() -> None:
    rows = decode_rows(
        results(
            decode(Mode.NONE, 4, 0, 100),
            decode(Mode.ALWAYS, 4, 0, 200),
            decode(Mode.GATED, 4, 0, 199),
            decode(Mode.NONE, 64, 0, 1000),
            decode(Mode.ALWAYS, 64, 0, 700),
            decode(Mode.GATED, 64, 0, 990),
        )
    )
    assert [(row.batch, row.better) for row in rows] == [(4, Mode.ALWAYS), (64, Mode.NONE)]
    assert rows[0].ratios[Mode.GATED, Mode.ALWAYS].value == pytest.approx(0.995)
    assert rows[1].ratios[Mode.GATED, Mode.NONE].value == pytest.approx(0.99)


@pytest.mark.parametrize(
    ("always", "expected"),
    [
        ((200, 1500, 700), (8, 64)),
        ((90, 1500, 700), (None, 4)),
        ((200, 1500, 1100), (64, None)),
        ((200, 1, 1100), (4, 8)),
    ],
)
def test_the_crossover_is_where_the_better_baseline_changes_first(always: list[float], expected: object) -> None:
    records = [decode(Mode.NONE, batch, 0, rate) for batch, rate in ((4, 100), (8, 800), (64, 1000))]
    records += [decode(Mode.ALWAYS, batch, 0, rate) for batch, rate in zip((4, 8, 64), always, strict=True)]
    assert crossover(decode_rows(results(*records))) == expected


def test_a_ratio_is_of_medians_and_its_range_of_rounds_side_by_side() -> None:
    records = [decode(Mode.NONE, 8, i, rate) for i, rate in enumerate((100, 110, 90))]
    records += [decode(Mode.GATED, 8, i, rate) for i, rate in enumerate((99, 112, 89))]
    ratio = decode_rows(results(*records))[0].ratios[Mode.GATED, Mode.NONE]
    assert ratio.value == pytest.approx(0.99)
    assert (ratio.low, ratio.high) == pytest.approx((89 / 90, 112 / 110))
    assert decode_rows(results(*records, side_by_side=False))[0].ratios[Mode.GATED, Mode.NONE].low is None


def test_rounds_of_different_runs_are_no_pairs() -> None:
    records = [decode(Mode.NONE, 8, 0, 100), decode(Mode.GATED, 8, 0, 99, run="b")]
    row = decode_rows(Results({}, [Run("a", "", {}, True), Run("b", "", {}, True)], decode=records))[0]
    assert row.ratios[Mode.GATED, Mode.NONE].low is None


def test_without_baselines_there_is_no_ratio() -> None:
    row = decode_rows(results(decode(Mode.GATED, 8, 0, 100)))[0]
    assert row.better is None
    assert row.ratios == {}


def test_the_subtracted_rate_checks_the_streamed_one() -> None:
    honest = decode(Mode.NONE, 8, 0, 100)
    assert subtracted_rate([honest]) == pytest.approx(honest.rate)
    assert decode_rows(results(honest))[0].disagreement == pytest.approx(0)
    honest.window_seconds *= 0.9  # a probe that starts its clock too late
    assert decode_rows(results(honest))[0].disagreement == pytest.approx(0.1)
    honest.first_seconds = None
    assert subtracted_rate([honest]) is None


def test_tokens_spread_evenly_over_a_request() -> None:
    assert tokens_between([(0.0, 4.0, 40), (3.0, 5.0, 10)], [0.0, 1.0, 4.0]) == pytest.approx([10, 35])


def test_level_rates_and_the_whole_ramp() -> None:
    record = RampRecord("a", Mode.NONE, 4.0, [(0.0, 1), (2.0, 2)], [(0.0, 4.0, 40), (2.0, 6.0, 40)], [], {}, {})
    assert level_rates(record) == pytest.approx([10, 20])
    assert ramp_rate(record) == pytest.approx(15)


def test_one_odd_chunk_is_no_switch() -> None:
    plain, fast = [1] * 20, [2, 3] * 10
    assert switches(speculating(fast + plain + fast)) == 2
    assert switches(speculating([*plain, 2, *plain])) == 0
    assert switches(speculating([*fast, 1, *fast])) == 0


def test_the_gates_own_counter_beats_what_the_probe_saw() -> None:
    steps = [(0.1, 0.1, tokens) for tokens in [2] * 20 + [1] * 20]
    record = RampRecord("a", Mode.GATED, 1.0, [(0.0, 1)], [], steps, {}, {})
    assert ramp_switches(record) == 1
    record.state_before = {"speculative_gate": {"threshold": 8, "switches": 3}}
    record.state_after = {"speculative_gate": {"threshold": 8, "switches": 7}}
    assert ramp_switches(record) == 4
    off = {"speculative_gate": {"threshold": 0, "switches": 0}}  # a patched server in SGLang's own adaptive mode
    record.state_before = record.state_after = off
    assert ramp_switches(record) == 1


def crossing(
    mode: Mode = Mode.GATED, up: float = 0.0, down: float = 0.0, prefill: float = 0.0, plain_tokens: int = 1
) -> CrossingRecord:
    """40 speculative steps of 10 ms, 40 plain ones of 5 ms, 40 speculative ones; each first one takes extra ms."""
    after = 5 if plain_tokens == 1 else 10
    steps = [(0.010, 3)] * 40 + [(after / 1000, plain_tokens)] * 40 + [(0.010, 2)] * 40
    steps[40] = (steps[40][0] + (up + prefill) / 1000, plain_tokens)
    steps[80] = (steps[80][0] + down / 1000, 2)
    return CrossingRecord("a", mode, 0, 4, 16, 39, steps)


def test_resume_cost_is_what_exceeds_the_steady_steps() -> None:
    cost = resume_cost(crossing(down=4))
    assert cost is not None
    assert cost.seconds == pytest.approx(0.004)
    assert cost.steps == pytest.approx(0.4)
    free = resume_cost(crossing())
    assert free is not None
    assert free.seconds == pytest.approx(0)


def test_fallback_cost_holds_the_prefill_until_a_control_takes_it_off() -> None:
    cost = fallback_cost(crossing(up=2, prefill=30))
    assert cost is not None
    assert cost.seconds == pytest.approx(0.032)
    control = crossing(Mode.ALWAYS, prefill=30, plain_tokens=3)
    assert prefill_cost(control) == pytest.approx(0.030)
    whole = Results({}, crossing=[crossing(up=2, prefill=30), control])
    entry = switch_summary(whole, Mode.GATED)
    assert entry.fallback is not None
    assert entry.fallback.median == pytest.approx(0.002 / 0.005)


def test_a_crossing_without_a_plain_phase_costs_nothing_known() -> None:
    never = crossing(plain_tokens=3)
    assert resume_cost(never) is None
    assert fallback_cost(never) is None
    assert switch_summary(Results({}, crossing=[never]), Mode.GATED).resume is None


def test_the_summary_names_modes_and_figures() -> None:
    record = RampRecord("a", Mode.GATED, 2.0, [(0.0, 1)], [(0.0, 2.0, 40)], [(0.1, 0.1, 1)] * 9, {}, {})
    whole = results(decode(Mode.NONE, 8, 0, 100), decode(Mode.GATED, 8, 0, 99))
    whole.ramp.append(record)
    whole.crossing.append(crossing(down=4))
    figures = summary(whole)
    assert figures["decode"][0]["ratios"]["gated/none"]["value"] == pytest.approx(0.99)
    assert figures["ramp"][0]["tokens_per_second"] == pytest.approx(20)
    assert figures["switch"][0]["resume_extra_steps"]["median"] == pytest.approx(0.4)
