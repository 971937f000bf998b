"""What a patched SGLang calls."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from sglang_eagle3_patch.contract.paths import ContractError
from sglang_eagle3_patch.runtime import hooks
from sglang_eagle3_patch.runtime.gate import BatchGate

PLAIN = SimpleNamespace(plain_decode=True, draft_state_fresh=False, next_token_ids=[7, 8])
SPECULATIVE = SimpleNamespace(next_token_ids=[7, 8])


@pytest.fixture(autouse=True)
def gate(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[BatchGate]:
    own = BatchGate()
    monkeypatch.setattr(hooks, "GATE", own)
    with caplog.at_level(logging.INFO, hooks.logger.name):
        yield own


def started(threshold: int, *, hosts: int = 1) -> SimpleNamespace:
    return SimpleNamespace(
        speculative_disable_batch_threshold=threshold,
        speculative_fallback_draft_sync="auto",
        enable_metrics=False,
        tp_size=8,
        nnodes=hosts,
    )


def test_one_start_up_line_off_or_on_on_rank_0(gate: BatchGate, caplog: pytest.LogCaptureFixture) -> None:
    hooks.announce(started(0), rank=0)
    hooks.announce(started(4), rank=0)
    hooks.announce(started(4), rank=1)
    assert caplog.messages == [
        "EAGLE-3 batch gate: threshold=0 (off)",
        "EAGLE-3 batch gate: threshold=4 (on, draft sync auto)",
    ]
    assert gate.threshold == 4


def test_one_start_up_line_in_the_log_of_each_host(gate: BatchGate, caplog: pytest.LogCaptureFixture) -> None:
    for rank in (4, 5, 0, 7):
        hooks.logger.setLevel(logging.INFO)  # each is a process of its own
        hooks.announce(started(4, hosts=2), rank=rank)
    assert len(caplog.messages) == 2


def test_only_rank_0_warns(gate: BatchGate, caplog: pytest.LogCaptureFixture) -> None:
    hooks.announce(started(16), rank=1)
    hooks.warn_if_idle(16)
    assert caplog.records == []


def test_every_rank_gets_the_threshold(gate: BatchGate) -> None:
    hooks.announce(started(4), rank=3)
    assert gate.threshold == 4


def test_off_builds_upstreams_own_worker() -> None:
    class EAGLEWorkerV2:
        pass

    assert hooks.worker_class(EAGLEWorkerV2, "0.0.0") is EAGLEWorkerV2


def test_a_series_that_is_not_there_ends_the_start(gate: BatchGate) -> None:
    gate.threshold = 4
    with pytest.raises(ContractError, match=r"v0\.0\.0"):
        hooks.worker_class(object, "0.0.0")


def test_warns_when_the_threshold_can_never_fire(gate: BatchGate, caplog: pytest.LogCaptureFixture) -> None:
    gate.threshold = 16
    hooks.warn_if_idle(17)
    assert caplog.records == []
    hooks.warn_if_idle(16)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_plain_step_is_counted_as_no_speculative_step() -> None:
    counted: list[Any] = []
    hooks.unless_plain(SPECULATIVE, counted.append)(1)
    hooks.unless_plain(PLAIN, counted.append)(2)
    assert counted == [1]
    assert hooks.is_plain_step(PLAIN)
    assert not hooks.is_plain_step(SPECULATIVE)


def test_a_plain_step_has_one_column() -> None:
    assert hooks.output_stride(PLAIN, 4) == 1
    assert hooks.output_stride(SPECULATIVE, 4) == 4


def test_a_plain_step_relays_its_tokens_only() -> None:
    buffer = SimpleNamespace(output_tokens_buf={})
    assert not hooks.relay_bonus_token(buffer, "rows", SPECULATIVE)
    fresh = SimpleNamespace(plain_decode=True, draft_state_fresh=True, next_token_ids=[1])
    assert not hooks.relay_bonus_token(buffer, "rows", fresh)  # full draft sync: its state is worth relaying
    assert buffer.output_tokens_buf == {}
    assert hooks.relay_bonus_token(buffer, "rows", PLAIN)
    assert buffer.output_tokens_buf == {"rows": [7, 8]}


def test_the_older_relay_carries_the_lengths_too() -> None:
    buffer = SimpleNamespace(verified_id_buf=[0] * 4, new_seq_lens_buf=[0] * 4)
    plain = SimpleNamespace(**vars(PLAIN), next_draft_input=SimpleNamespace(new_seq_lens=[30, 31]))
    assert not hooks.relay_verified_id(buffer, slice(1, 3), SPECULATIVE)
    assert hooks.relay_verified_id(buffer, slice(1, 3), plain)
    assert buffer.verified_id_buf == [0, 7, 8, 0]
    assert buffer.new_seq_lens_buf == [0, 30, 31, 0]
    renamed = SimpleNamespace(bonus_tokens_buf=[0] * 4, new_seq_lens_buf=[0] * 4)
    assert hooks.relay_verified_id(renamed, slice(1, 3), plain, "bonus_tokens_buf")
    assert renamed.bonus_tokens_buf == [0, 7, 8, 0]


def test_the_log_names_the_mode_only_when_on(gate: BatchGate) -> None:
    hooks.unless_plain(PLAIN, print)
    assert hooks.log_suffix() == ""
    gate.threshold = 4
    hooks.unless_plain(PLAIN, print)
    gate.enter(3)  # launched, its result not yet processed: the line still reports the plain step
    assert hooks.log_suffix() == "gate: plain, "
    hooks.unless_plain(SPECULATIVE, print)
    assert hooks.log_suffix() == "gate: speculative, "


def test_acceptance_leaves_out_tokens_of_plain_steps_when_on() -> None:
    # 100 tokens, of which 10 verify steps made 10 + 15
    assert hooks.speculated_tokens(4, completion_tokens=100, verify_ct=10, num_correct_drafts=15) == 25
    assert hooks.speculated_tokens(0, completion_tokens=100, verify_ct=10, num_correct_drafts=15) == 100
