"""A plain step on a stand-in for the target: what it hands to the draft's sync."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from sglang_eagle3_patch.runtime.generations.base import Generation

BATCH, PADDED, HIDDEN = 3, 4, 2


class PaddedTarget(Generation):
    """An eager step of several ranks whose MoE gathers: padded to a multiple of the ranks, its positions stay so."""

    def decode(self, worker: Any, step: Any) -> tuple[Any, Any]:
        logits = SimpleNamespace(hidden_states=torch.zeros(BATCH, HIDDEN))
        positions = torch.cat([step.seq_lens - 1, torch.zeros(PADDED - BATCH, dtype=torch.int64)])
        return SimpleNamespace(positions=positions), SimpleNamespace(logits_output=logits)

    def plain_result(self, *args: Any, **kwargs: Any) -> None:
        """The result's class is SGLang's."""


class Sync:
    """Keeps what it is given."""

    keeps_state_fresh = False

    def after_plain_step(self, batch: Any, rows: list[int], *tensors: torch.Tensor) -> None:
        self.next_tokens, self.positions, self.slots, self.hidden = tensors


def test_the_draft_gets_one_position_a_request() -> None:
    seq_lens = torch.tensor([5, 7, 11])
    table = torch.arange(8 * 16).view(8, 16)
    runner = SimpleNamespace(sample=lambda logits, forward_batch: torch.arange(BATCH))
    sync = Sync()
    worker: Any = SimpleNamespace(
        target_worker=SimpleNamespace(model_runner=runner),
        req_to_token_pool=SimpleNamespace(req_to_token=table),
        draft_sync=sync,
    )
    batch = SimpleNamespace(
        spec_info=SimpleNamespace(bonus_tokens=torch.arange(BATCH), future_indices=None),
        seq_lens=seq_lens,
        seq_lens_cpu=None,
        req_pool_indices=torch.tensor([2, 0, 4]),
        has_grammar=False,
        return_logprob=False,
        return_hidden_states=False,
    )
    PaddedTarget().plain_step(worker, batch, [2, 0, 4])
    assert sync.positions.tolist() == [5, 7, 11]
    assert sync.slots.tolist() == [2 * 16 + 5, 7, 4 * 16 + 11]
    assert {len(kept) for kept in (sync.next_tokens, sync.positions, sync.slots, sync.hidden)} == {BATCH}
    seq_lens += 1  # the scheduler's tensor goes on while the rows wait to be written
    assert sync.positions.tolist() == [5, 7, 11]
