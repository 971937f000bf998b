"""The policy: modes, counts and reserves."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sglang_eagle3_patch.runtime.gate import BatchGate, Mode

batches = st.lists(st.integers(1, 300), max_size=60)
thresholds = st.integers(0, 300)


@given(thresholds, st.integers(0, 10**6), batches)
def test_the_mode_depends_on_threshold_and_batch_alone(threshold: int, batch: int, history: list[int]) -> None:
    fresh, used = BatchGate(threshold), BatchGate(threshold)
    for size in history:
        used.enter(size)
    assert used.mode(batch) is fresh.mode(batch) is (Mode.PLAIN if 0 < threshold < batch else Mode.SPECULATIVE)


@given(thresholds, batches)
def test_counts_add_up(threshold: int, sizes: list[int]) -> None:
    gate = BatchGate(threshold)
    modes = [gate.enter(size) for size in sizes]
    assert gate.plain_steps == modes.count(Mode.PLAIN)
    assert gate.speculative_steps == modes.count(Mode.SPECULATIVE)
    assert gate.switches == sum(one is not other for one, other in pairwise(modes))
    assert gate.last_mode is (modes[-1] if modes else None)


def test_off_never_decodes_plainly() -> None:
    gate = BatchGate()
    assert not gate.enabled
    assert gate.mode(10**9) is Mode.SPECULATIVE


@given(thresholds, batches, st.integers(1, 40), st.booleans())
def test_reserve_covers_what_the_steps_in_flight_write(
    threshold: int, sizes: list[int], window: int, writes_window: bool
) -> None:
    """Play the overlap scheduler: a step is prepared while the one before it runs and its result is not yet known.

    A speculative step moves its requests on by up to ``window`` tokens and writes as many slots; upstream reserves
    two windows. A plain step moves on by one, and writes one slot, or a window if its draft sync does.
    """
    gate, in_flight = BatchGate(threshold, plain_step_writes_window=writes_window), 0
    for size in sizes:
        reserve = gate.kv_reserve(size, 2 * window)
        plain = gate.enter(size) is Mode.PLAIN
        assert in_flight + (1 if plain and not writes_window else window) <= reserve
        in_flight = 1 if plain else window


@given(thresholds, batches, st.integers(1, 40))
def test_reserve_is_never_more_than_upstreams_and_in_a_fallback_plain_decodes(
    threshold: int, sizes: list[int], window: int
) -> None:
    gate = BatchGate(threshold)
    for size in sizes:
        falling_back = gate.last_mode is Mode.PLAIN and gate.mode(size) is Mode.PLAIN
        assert gate.kv_reserve(size, 2 * window) == (2 if falling_back else 2 * window)
        gate.enter(size)


def test_state_names_the_mode_and_every_count() -> None:
    gate = BatchGate(threshold=4)
    assert gate.state()["mode"] is None
    for size in (8, 3):
        gate.enter(size)
    gate.resumes += 1
    assert gate.state() == {
        "threshold": 4,
        "mode": "speculative",
        "plain_steps": 1,
        "speculative_steps": 1,
        "switches": 1,
        "resumes": 1,
    }
