"""From records to figures. Pure functions; every ratio says what it divides by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from bench.records import CrossingRecord, DecodeRecord, RampRecord, Results
from bench.settings import BASELINES, Mode


@dataclass(frozen=True)
class Spread:
    """Median, smallest and largest of repeated measurements."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(median(values), min(values), max(values), len(values))

    @property
    def half_width(self) -> float:
        """Half of the range, as a share of the median."""
        return (self.high - self.low) / 2 / self.median


@dataclass(frozen=True)
class Ratio:
    """A mode's median over another's; low and high over rounds that ran side by side, if any did."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class DecodeRow:
    """One batch size: tokens/s of each mode, and every mode against the baselines and the better of them."""

    batch: int
    rates: dict[Mode, Spread]
    better: Mode | None  # the faster baseline; None when neither was measured
    ratios: dict[tuple[Mode, Mode], Ratio]
    disagreement: float  # largest relative difference between the two ways to take the rate


def bases(mode: Mode) -> list[Mode]:
    """What a mode is held against: the other baselines, and the gate also against itself without its draft sync."""
    unsynced = [Mode.UNSYNCED] if mode is Mode.GATED else []
    return [base for base in (*BASELINES, *unsynced) if base is not mode]


def decode_rows(results: Results) -> list[DecodeRow]:
    """One row a batch size, ascending."""
    return [_decode_row(results, batch) for batch in sorted({record.batch for record in results.decode})]


def crossover(rows: Sequence[DecodeRow]) -> tuple[int | None, int | None]:
    """The largest batch up to which EAGLE-3 is the better baseline throughout, and the next measured one.

    None on either side when EAGLE-3 never pays, or always does, in the measured range.
    """
    both = [row for row in rows if all(base in row.rates for base in BASELINES)]
    pays = None
    for row in both:
        if row.better is not Mode.ALWAYS:
            return pays, row.batch
        pays = row.batch
    return pays, None


def _decode_row(results: Results, batch: int) -> DecodeRow:
    by_mode: dict[Mode, list[DecodeRecord]] = {}
    for record in results.decode:
        if record.batch == batch:
            by_mode.setdefault(record.mode, []).append(record)
    rates = {mode: Spread.of([record.rate for record in by_mode[mode]]) for mode in Mode if mode in by_mode}
    better = max((mode for mode in BASELINES if mode in rates), key=lambda mode: rates[mode].median, default=None)
    paired_runs = {run.run for run in results.runs if run.side_by_side}
    ratios = {
        (mode, base): _ratio(by_mode[mode], by_mode[base], paired_runs)
        for mode in rates
        for base in bases(mode)
        if base in rates
    }
    differences = [
        abs(subtracted / rates[mode].median - 1) for mode in rates if (subtracted := subtracted_rate(by_mode[mode]))
    ]
    return DecodeRow(batch, rates, better, ratios, max(differences, default=0.0))


def _ratio(records: list[DecodeRecord], base: list[DecodeRecord], paired_runs: set[str]) -> Ratio:
    value = median(record.rate for record in records) / median(record.rate for record in base)
    rounds = {(record.run, record.round): record.rate for record in base if record.run in paired_runs}
    pairs = [record.rate / rounds[key] for record in records if (key := (record.run, record.round)) in rounds]
    return Ratio(value, min(pairs), max(pairs)) if pairs else Ratio(value)


def subtracted_rate(records: Sequence[DecodeRecord]) -> float | None:
    """The rate without streaming: (tokens - first tokens) / (full run - one-token run), medians of the rounds.

    It knows nothing of the probe, so it checks `DecodeRecord.rate`. None without one-token runs.
    """
    firsts = [record.first_seconds for record in records if record.first_seconds is not None]
    if not firsts:
        return None
    first = median(firsts)
    return median((record.tokens - record.batch) / (record.seconds - first) for record in records)


# -- the ramp


def tokens_between(requests: Sequence[tuple[float, float, int]], edges: Sequence[float]) -> list[float]:
    """Tokens of each interval between neighbouring edges; a request's tokens spread evenly over its life."""
    counts = [0.0] * (len(edges) - 1)
    for start, end, tokens in requests:
        for index in range(len(counts)):
            overlap = min(end, edges[index + 1]) - max(start, edges[index])
            if overlap > 0:
                counts[index] += tokens * overlap / (end - start)
    return counts


def level_rates(record: RampRecord) -> list[float]:
    """Tokens/s in each level of the ramp."""
    edges = [time for time, _ in record.levels] + [record.seconds]
    tokens = tokens_between(record.requests, edges)
    return [count / (end - start) for count, start, end in zip(tokens, edges, edges[1:], strict=False)]


def ramp_rate(record: RampRecord) -> float:
    """Tokens/s over the whole ramp."""
    return tokens_between(record.requests, [0.0, record.seconds])[0] / record.seconds


_WINDOW = 5


def speculating(tokens: Sequence[int]) -> list[bool]:
    """Whether each step speculated, from the tokens it gave one row: a plain step gives exactly one.

    A speculative step may give one too, and two chunks may arrive as one, so the mean of five steps decides. It holds
    for a pinned acceptance length of 2 or more and is an estimate otherwise.
    """
    reach = _WINDOW // 2
    return [
        sum(near := tokens[max(0, index - reach) : index + reach + 1]) >= 1.5 * len(near)
        for index in range(len(tokens))
    ]


def switches(modes: Sequence[bool]) -> int:
    """How often the mode changed."""
    return sum(one is not other for one, other in pairwise(modes))


def ramp_switches(record: RampRecord) -> int:
    """Mode switches during the ramp: the gate's own counter where the gate is on, else what the probe saw."""
    before, after = (state.get("speculative_gate") for state in (record.state_before, record.state_after))
    if before and after and after["threshold"] > 0:
        return int(after["switches"]) - int(before["switches"])
    return switches(speculating([tokens for *_, tokens in record.probe_steps]))


# -- the cost of a switch


@dataclass(frozen=True)
class SwitchCost:
    """Time beyond the steady steps around a switch, and the steady step of the mode that follows, in seconds."""

    seconds: float
    step_seconds: float

    @property
    def steps(self) -> float:
        return self.seconds / self.step_seconds


_AROUND = 3  # steps before and after a switch that may carry its cost; the overlap scheduler reports one step late
_STEADY = 8  # a phase must be longer than twice this to give a steady step time


def resume_cost(record: CrossingRecord) -> SwitchCost | None:
    """From the last plain steps to the first speculative ones; None when this crossing shows no resume."""
    plain = _plain_phase(record)
    if plain is None or len(record.steps) - plain.stop <= 2 * _STEADY:
        return None
    after = median(_seconds(record, plain.stop + _STEADY, plain.stop + 4 * _STEADY))
    return _excess(record, plain.stop, median(_seconds(record, plain.stop - _STEADY, plain.stop - 1)), after)


def fallback_cost(record: CrossingRecord) -> SwitchCost | None:
    """From speculative to plain steps. The joiners' prefill falls between them and is included: see `prefill_cost`."""
    plain = _plain_phase(record)
    if plain is None or plain.start <= _STEADY:
        return None
    after = median(_seconds(record, plain.start + _STEADY, plain.stop - 1))
    return _excess(
        record, plain.start, median(_seconds(record, max(0, plain.start - 4 * _STEADY), plain.start - 2)), after
    )


def prefill_cost(record: CrossingRecord) -> float | None:
    """Seconds that the same joiners' prefill costs a server that never switches; the longest step marks it."""
    window = range(record.joined, min(record.joined + 20, len(record.steps) - 2 * _STEADY))
    if not window or record.joined <= _STEADY:
        return None
    peak = max(window, key=lambda index: record.steps[index][0])
    before = median(_seconds(record, max(0, peak - 4 * _STEADY), peak - 2))
    return _excess(record, peak, before, median(_seconds(record, peak + _STEADY, peak + 2 * _STEADY))).seconds


def _plain_phase(record: CrossingRecord) -> range | None:
    """The longest run of steps with one token each, if it is long enough to be a phase."""
    best, start = range(0), 0
    for index, (_, tokens) in enumerate([*record.steps, (0.0, 0)]):
        if tokens != 1:
            best = max(best, range(start, index), key=len)
            start = index + 1
    return best if len(best) > 2 * _STEADY else None


def _seconds(record: CrossingRecord, start: int, stop: int) -> list[float]:
    return [seconds for seconds, _ in record.steps[start:stop]]


def _excess(record: CrossingRecord, switch: int, before: float, after: float) -> SwitchCost:
    """`switch` is the first step of the new mode."""
    early = _seconds(record, max(0, switch - _AROUND), switch)
    late = _seconds(record, switch, switch + _AROUND)
    seconds = sum(early) - before * len(early) + sum(late) - after * len(late)
    return SwitchCost(seconds, after)


@dataclass(frozen=True)
class SwitchSummary:
    """Both directions, over all crossings of one mode. `prefill` was taken off the fallback when a server gave it."""

    mode: Mode
    crossings: int
    fallback: Spread | None  # extra steps
    resume: Spread | None  # extra steps
    prefill: float | None  # seconds


def switch_summary(results: Results, mode: Mode) -> SwitchSummary:
    records = [record for record in results.crossing if record.mode is mode]
    controls = [record for record in results.crossing if record.mode is Mode.ALWAYS]
    prefills = [seconds for record in controls if (seconds := prefill_cost(record)) is not None]
    prefill = median(prefills) if prefills else None
    falls = [cost for record in records if (cost := fallback_cost(record)) is not None]
    resumes = [cost.steps for record in records if (cost := resume_cost(record)) is not None]
    net = [(cost.seconds - (prefill or 0.0)) / cost.step_seconds for cost in falls]
    return SwitchSummary(
        mode, len(records), Spread.of(net) if net else None, Spread.of(resumes) if resumes else None, prefill
    )


def summary(results: Results) -> dict[str, Any]:
    """The derived figures that go into the JSON."""
    decode = [
        {
            "batch": row.batch,
            "tokens_per_second": {mode: vars(spread) for mode, spread in row.rates.items()},
            "subtracted": {
                mode: subtracted_rate([r for r in results.decode if r.batch == row.batch and r.mode is mode])
                for mode in row.rates
            },
            "better_baseline": row.better,
            "ratios": {f"{mode}/{base}": vars(ratio) for (mode, base), ratio in row.ratios.items()},
        }
        for row in decode_rows(results)
    ]
    ramps = [
        {
            "mode": record.mode,
            "tokens_per_second": ramp_rate(record),
            "levels": [
                {"clients": clients, "tokens_per_second": rate}
                for (_, clients), rate in zip(record.levels, level_rates(record), strict=True)
            ],
            "switches": ramp_switches(record),
        }
        for record in results.ramp
    ]
    crossed = [mode for mode in Mode if mode not in BASELINES and any(r.mode is mode for r in results.crossing)]
    costs = [switch_summary(results, mode) for mode in crossed]
    return {
        "decode": decode,
        "ramp": ramps,
        "switch": [
            {
                "mode": cost.mode,
                "crossings": cost.crossings,
                "fallback_extra_steps": cost.fallback and vars(cost.fallback),
                "resume_extra_steps": cost.resume and vars(cost.resume),
                "prefill_seconds_taken_off": cost.prefill,
            }
            for cost in costs
        ],
    }
