"""Who may write which KV slot when, over any traffic: the gated worker with its draft sync, on a stand-in for SGLang.

The stand-in keeps what matters here: a pool of slots that are handed on at once when a request ends, and a log of
every write into the draft's pool. Model and kernels play no part.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_eagle3_patch.runtime import draft_sync
from sglang_eagle3_patch.runtime.draft_sync import DraftSync
from sglang_eagle3_patch.runtime.gate import BatchGate
from sglang_eagle3_patch.runtime.generations.base import Generation
from sglang_eagle3_patch.runtime.worker import GatedWorkerMixin, gated_worker

N = 2
ROWS = 5  # of the request pool
WIDTH = 3  # slots that a speculative step writes a request
HIDDEN = 2


@dataclass
class Slots:
    """The draft's KV pool: who owns a slot, and whose value is in it. A value is (owner, position)."""

    owner: dict[int, tuple[int, int]] = field(default_factory=dict)
    value: dict[int, tuple[int, int]] = field(default_factory=dict)

    def write(self, slots: list[int], values: list[tuple[int, int]]) -> None:
        assert len(set(slots)) == len(slots), "a slot is twice in one write: which row wins is not defined"
        self.value |= zip(slots, values, strict=True)


@dataclass
class Request:
    """A running request: its pool row, its length, and the slots of its positions."""

    name: int
    row: int
    slots: list[int]

    @property
    def length(self) -> int:
        return len(self.slots)


class PlainOnly(Generation):
    """A plain step that has nothing to compute: it hands on which request wrote which position."""

    def plain_step(self, worker: Any, batch: Any, rows: list[int], *args: Any, **kwargs: Any) -> str:
        worker.draft_sync.after_plain_step(
            batch,
            rows,
            next_tokens=torch.tensor([request.name for request in batch.requests]),
            positions=torch.tensor([request.length - 1 for request in batch.requests]),
            slots=torch.tensor([request.slots[-1] for request in batch.requests]),
            hidden=torch.tensor([[request.name, request.length - 1.0] for request in batch.requests]),
        )
        return "plain"

    def pool_rows(self, batch: Any) -> list[int]:
        return [request.row for request in batch.requests]

    def copies_kv_to_host(self, worker: Any) -> bool:
        return False

    def draft_context(self, worker: Any) -> Any:
        return torch.no_grad()


class Upstream:
    """SGLang's own steps: a prefill and a speculative step write the slots they were given, there and then."""

    def __init__(self, pool: Slots) -> None:
        self.pool = pool
        self.req_to_token_pool = SimpleNamespace(req_to_token=torch.zeros(ROWS, 1))

    def forward_batch_generation(self, batch: Any) -> Any:
        for request, count in zip(batch.requests, batch.counts, strict=True):
            new = range(request.length - count, request.length)
            self.pool.write(request.slots[-count:] if count else [], [(request.name, i) for i in new])
        hidden = [[r.name, i + 0.0] for r, n in zip(batch.requests, batch.counts, strict=True) for i in range(-n, 0)]
        return SimpleNamespace(logits_output=SimpleNamespace(hidden_states=torch.tensor(hidden)))


class Worker(GatedWorkerMixin, Upstream):
    generation = PlainOnly()


class RecordedKV:
    """In DraftKV's place: what it is told to write."""

    def __init__(self, pool: Slots) -> None:
        self.pool = pool

    def write(self, hidden: torch.Tensor, names: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor) -> None:
        assert hidden.tolist() == [
            [float(n), float(p)] for n, p in zip(names.tolist(), positions.tolist(), strict=True)
        ]
        self.pool.write(slots.tolist(), list(zip(names.tolist(), positions.tolist(), strict=True)))


class Play:
    """A scheduler at its least careful: a freed slot and a freed row go to the next one who asks."""

    def __init__(self) -> None:
        self.pool = Slots()
        self.worker = Worker(self.pool)
        self.worker.gate = BatchGate(N)
        self.sync = DraftSync(self.worker, PlainOnly(), RecordedKV(self.pool), full=False)  # type: ignore[arg-type]
        self.worker.draft_sync = self.sync
        self.resumed: list[set[int]] = []
        self.sync.resume = lambda batch: self.resumed.append({r.row for r in batch.requests})  # type: ignore[method-assign]
        self.running: list[Request] = []
        self.free_rows, self.free_slots = list(range(ROWS)), list(range(400))
        self.names = 0

    def step(self, requests: list[Request], count: int, *, extend: bool) -> None:
        for request in requests:
            request.slots += [self.free_slots.pop() for _ in range(count)]
        mode = SimpleNamespace(is_extend=lambda: extend, is_idle=lambda: False)
        self.worker.forward_batch_generation(
            SimpleNamespace(
                requests=requests,
                counts=[count] * len(requests),
                extend_lens=[count] * len(requests),
                forward_mode=mode,
                is_extend_in_batch=extend,
                spec_info=object(),
                req_pool_indices=torch.tensor([request.row for request in requests]),
            )
        )

    def prefill(self, length: int) -> None:
        if self.free_rows and len(self.free_slots) > 100:
            self.names += 1
            request = Request(self.names, self.free_rows.pop(), [])
            self.running.append(request)
            self.step([request], length, extend=True)

    def decode(self, times: int) -> None:
        for _ in range(times):
            if self.running and len(self.free_slots) > 100:
                self.step(self.running, 1 if len(self.running) > N else WIDTH, extend=False)

    def end(self, which: int) -> None:
        """A finish, an abort or a retraction: the row and the slots are anybody's at once."""
        if self.running:
            request = self.running.pop(which % len(self.running))
            self.free_rows.append(request.row)
            self.free_slots += request.slots

    def check(self) -> None:
        """Every position of a running request holds its own value, or waits in the window for the next flush."""
        self.sync.flush()
        for request in self.running:
            for position, slot in enumerate(request.slots):
                assert self.pool.value[slot] == (request.name, position)


moves = st.one_of(
    st.tuples(st.just("prefill"), st.integers(1, 6)),
    st.tuples(st.just("decode"), st.integers(1, 12)),
    st.tuples(st.just("end"), st.integers(0, ROWS)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(moves, max_size=40))
def test_every_slot_holds_what_its_owner_wrote(traffic: list[tuple[str, int]]) -> None:
    play = Play()
    for name, argument in traffic:
        getattr(play, name)(argument)
    play.check()


@settings(max_examples=200, deadline=None)
@given(st.lists(moves, max_size=40))
def test_a_request_is_resumed_before_it_speculates_and_only_if_it_is_stale(traffic: list[tuple[str, int]]) -> None:
    play = Play()
    lived_through_plain: set[int] = set()
    for name, argument in traffic:
        for _ in range(argument if name == "decode" else 1):
            resumes = len(play.resumed)
            getattr(play, name)(1 if name == "decode" else argument)
            if name != "decode" or not play.running:
                continue
            now = {request.name for request in play.running}
            if len(now) > N:
                lived_through_plain |= now
            else:
                assert (len(play.resumed) > resumes) == bool(lived_through_plain & now)
                lived_through_plain -= now


def test_a_play_that_never_flushes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    play = Play()
    monkeypatch.setattr(play.sync, "flush", lambda: None)
    for length in (3, 3, 3):
        play.prefill(length)
    play.decode(2)
    with pytest.raises(KeyError):
        play.check()


def test_new_weights_wait_until_the_rows_are_written_with_the_old_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    class WithWeights(Upstream):
        def __init__(self, pool: Slots) -> None:
            super().__init__(pool)
            self.written_before: list[int] = []

        @property
        def last_shared_read_runner(self) -> None: ...

        def weight_update_runners(self) -> None:
            self.written_before.append(len(self.pool.value))

    monkeypatch.setattr(Generation, "after_init", lambda self, worker: None)
    play = Play()
    worker = gated_worker(WithWeights, "v0_5_21")(play.pool)
    worker.weight_update_runners()  # before there is a draft sync
    worker.draft_sync = play.sync
    for length in (2, 2, 2):
        play.prefill(length)
    play.decode(1)
    before = len(play.pool.value)
    worker.weight_update_runners()
    assert worker.written_before == [0, before + N + 1]


def test_rows_of_several_steps_are_written_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft_sync, "GATHER_STEPS", 4)
    play = Play()
    for length in (2, 2, 2):
        play.prefill(length)
    slots = [request.slots for request in play.running]
    play.decode(3)
    assert not any(slot in play.pool.value for own in slots for slot in own[2:])
    play.decode(1)
    assert all(slot in play.pool.value for own in slots for slot in own)
