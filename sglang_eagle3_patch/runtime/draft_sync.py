"""Keeps the draft in step with a target that decodes without it, so that speculation resumes as if it never stopped.

Rows of several plain steps are gathered and written in one go, so that the draft's weights are read once for all of
them. Who owns what, and until when:

| data                        | owner                      | valid until                                          |
|-----------------------------|----------------------------|------------------------------------------------------|
| gathered rows               | this object                | flush: before a prefill, a speculative step, another |
|                             |                            | set of requests, or new weights                      |
| KV slots named by the rows  | the window's requests      | flush runs on the forward stream ahead of the first  |
|                             |                            | step of whoever gets a freed slot, so that one wins  |
| last aux hidden of each row | this object, by pool row   | the row's next plain step or prefill                 |
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch

from sglang_eagle3_patch.runtime.draft_kv import DraftKV, why_not_exact

if TYPE_CHECKING:
    from sglang_eagle3_patch.runtime.generations.base import Generation

logger = logging.getLogger("sglang.eagle3_batch_gate")

# Steps whose rows are written together. Reading the draft's weights once a step costs 0.6 % of a step at batch 32 for
# an 8B target; an eighth of that is lost in the noise, and an eight-step window still flushes in well under a step.
GATHER_STEPS = 8


class DraftSync:
    """What a plain step leaves behind for the draft, and how a speculative step picks it up."""

    def __init__(self, worker: Any, generation: Generation, draft_kv: DraftKV | None, *, full: bool) -> None:
        self._worker = worker
        self._generation = generation
        self._draft_kv = draft_kv
        self._full = full
        self._gather_steps = 1 if generation.copies_kv_to_host(worker) else GATHER_STEPS
        self._last_hidden: torch.Tensor | None = None
        self._window: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]] = []
        self._window_rows: list[int] = []
        self._window_index: torch.Tensor | None = None

    @classmethod
    def build(cls, worker: Any, generation: Generation) -> DraftSync:
        """Choose how to sync from ``--speculative-fallback-draft-sync`` and from what is exact for this draft."""
        choice = worker.server_args.speculative_fallback_draft_sync
        runner = worker.draft_worker.draft_runner
        if choice == "off":
            logger.warning(
                "EAGLE-3 batch gate: draft sync is off, so a request that lived through plain steps loses nearly all "
                "acceptance when speculation resumes."
            )
            return cls(worker, generation, None, full=False)
        reason = (
            why_not_exact(runner, generation)
            if choice in ("auto", "kv")
            else "--speculative-fallback-draft-sync is full"
        )
        if reason is not None:
            logger.warning("EAGLE-3 batch gate: plain steps run a full draft extend, because %s.", reason)
            return cls(worker, generation, None, full=True)
        return cls(worker, generation, DraftKV(runner, generation), full=False)

    @property
    def writes_window(self) -> bool:
        """Whether a plain step writes a whole speculative window of KV slots."""
        return self._full

    @property
    def keeps_state_fresh(self) -> bool:
        """Whether a plain step leaves draft state that a speculative step can start from."""
        return self._full

    # -- plain steps -------------------------------------------------------------------------------------------------

    def after_plain_step(
        self,
        batch: Any,
        rows: list[int],
        next_tokens: torch.Tensor,
        positions: torch.Tensor,
        slots: torch.Tensor,
        hidden: torch.Tensor,
    ) -> None:
        """Take in one plain step.

        Args:
            batch: the scheduler's batch as it was before the step.
            rows: the requests' pool rows, on the CPU.
            next_tokens: [batch] int64, what the step sampled.
            positions: [batch] int64, where the step's input token sits.
            slots: [batch] int64, the KV slot of that position.
            hidden: [batch, aux * hidden], the target's aux hidden states there; a graph's buffer, copied here.
        """
        if rows != self._window_rows:
            self.flush()
        if not self._window:
            self._window_rows = rows
            # A copy on the forward stream: the batch's own tensor belongs to the schedule stream.
            self._window_index = batch.req_pool_indices.to(torch.int64, copy=True)
        self._window.append((hidden.clone(), next_tokens, positions, slots))
        if len(self._window) >= self._gather_steps:
            self.flush()

    def flush(self) -> None:
        """Write the gathered rows. Costs nothing when there are none."""
        if not self._window:
            return
        hidden, next_tokens, positions, slots = zip(*self._window, strict=True)
        self._remember(self._window_index, hidden[-1])
        if self._draft_kv is not None:
            with self._generation.draft_context(self._worker):
                self._draft_kv.write(torch.cat(hidden), torch.cat(next_tokens), torch.cat(positions), torch.cat(slots))
        self._window = []
        self._window_rows = []
        self._window_index = None

    # -- resume ------------------------------------------------------------------------------------------------------

    def remember_prefill(self, batch: Any, result: Any) -> None:
        """Remember each request's last aux hidden state: it may sit beside stale rows when speculation resumes."""
        hidden = result.logits_output.hidden_states
        if hidden is None:
            return
        lengths = torch.tensor(self._generation.extend_lengths(batch), dtype=torch.int64)
        last = torch.cumsum(lengths, dim=0) - 1
        if hidden.is_cuda:
            last = last.pin_memory().to(hidden.device, non_blocking=True)
        self._remember(batch.req_pool_indices.to(torch.int64), hidden[last])

    def resume(self, batch: Any) -> None:
        """Give every row fresh draft state: one draft extend over each request's last position.

        Recomputing a fresh row is harmless: the same position, token and hidden state give the same K, V and state.
        """
        assert self._last_hidden is not None, "a stale row was never remembered"
        hidden = self._last_hidden[batch.req_pool_indices.to(torch.int64)]
        draft_input = batch.spec_info
        tokens = self._generation.bonus_tokens(draft_input).to(torch.int64)
        self.extend_draft(batch, draft_input, batch.seq_lens - 1, -1, tokens, hidden)

    def extend_draft(
        self,
        batch: Any,
        draft_input: Any,
        lengths: torch.Tensor,
        lengths_shift: int,
        tokens: torch.Tensor,
        hidden: torch.Tensor,
    ) -> None:
        """Run SGLang's own draft extend over one position of each request; its outputs land in ``draft_input``.

        The draft-extend graph is as wide as a speculative window, so the one token is followed by padding whose K and
        V fall into slots that the next step writes anyway.

        Args:
            batch: the scheduler's batch; a copy of it is used, it is not changed.
            lengths: [batch], tokens before the position; ``lengths_shift`` is the same on the CPU, relative to
                ``batch.seq_lens``.
            tokens: [batch] int64, the token that follows the position.
            hidden: [batch, aux * hidden], the target's aux hidden state at the position.
        """
        width = self._worker.speculative_num_draft_tokens
        size = tokens.shape[0]
        wide_tokens = tokens.new_zeros((size, width))
        wide_tokens[:, 0] = tokens
        wide_hidden = hidden.new_zeros((size, width, hidden.shape[1]))
        wide_hidden[:, 0] = hidden
        with self._generation.draft_context(self._worker):
            self._generation.draft_extend(
                self._worker,
                batch,
                draft_input,
                lengths,
                lengths_shift,
                wide_tokens.view(-1),
                wide_hidden.view(size * width, -1),
            )

    def _remember(self, rows: torch.Tensor | None, hidden: torch.Tensor) -> None:
        if self._last_hidden is None:
            pool_rows = self._worker.req_to_token_pool.req_to_token.shape[0]
            self._last_hidden = hidden.new_zeros((pool_rows, hidden.shape[1]))
        self._last_hidden[rows] = hidden
