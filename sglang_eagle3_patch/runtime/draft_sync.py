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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from sglang_eagle3_patch.runtime.draft_kv.base import DraftKV, NotExact
from sglang_eagle3_patch.runtime.draft_kv.choose import draft_kv_for

if TYPE_CHECKING:
    from sglang_eagle3_patch.runtime.generations.base import Generation

logger = logging.getLogger("sglang.eagle3_batch_gate")

# Steps whose rows are written together, and rows beyond which waiting gains nothing. Reading the draft's weights every
# step costs 0.6 % of a step at batch 32 for an 8B target, an eighth of it is lost in the noise; from some hundred rows
# on the write is bound by arithmetic, which gathering does not save, while the gathered hidden states take memory.
GATHER_STEPS = 8
GATHER_ROWS = 1024


@dataclass
class _Window:
    """Consecutive plain steps of the same requests. No slot is in it twice: every step of a request has its own.

    rows and index: the requests' pool rows, on the CPU and as [batch] int64. hidden: [steps, batch, aux * hidden].
    """

    rows: list[int]
    index: torch.Tensor
    hidden: torch.Tensor
    next_tokens: list[torch.Tensor] = field(default_factory=list)
    positions: list[torch.Tensor] = field(default_factory=list)
    slots: list[torch.Tensor] = field(default_factory=list)

    def add(
        self, hidden: torch.Tensor, next_tokens: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor
    ) -> bool:
        """Take in one step; true when the window is full."""
        self.hidden[len(self.slots)] = hidden
        self.next_tokens.append(next_tokens)
        self.positions.append(positions)
        self.slots.append(slots)
        return len(self.slots) == len(self.hidden)


class DraftSync:
    """What a plain step leaves behind for the draft, and how a speculative step picks it up."""

    def __init__(self, worker: Any, generation: Generation, draft_kv: DraftKV | None, *, full: bool) -> None:
        self._worker = worker
        self._generation = generation
        self._draft_kv = draft_kv
        self._full = full
        self._last_hidden: torch.Tensor | None = None
        self._window: _Window | None = None
        self._gathers = False  # first, for what follows may raise, and then this still reads as an object (C1)
        self._gathers = not generation.copies_kv_to_host(worker)

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
        try:
            if choice == "full":
                raise NotExact("--speculative-fallback-draft-sync is full")
            return cls(worker, generation, draft_kv_for(runner, generation), full=False)
        except NotExact as reason:
            logger.warning("EAGLE-3 batch gate: plain steps run a full draft extend, because %s.", reason)
            return cls(worker, generation, None, full=True)

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
        if self._window is not None and self._window.rows != rows:
            self.flush()
        if self._window is None:
            steps = max(1, min(GATHER_STEPS, GATHER_ROWS // len(rows))) if self._gathers else 1
            # A copy on the forward stream: the batch's own tensor belongs to the schedule stream.
            index = batch.req_pool_indices.to(torch.int64, copy=True)
            self._window = _Window(rows, index, hidden.new_empty((steps, *hidden.shape)))
        if self._window.add(hidden, next_tokens, positions, slots):
            self.flush()

    def flush(self) -> None:
        """Write the gathered rows. Costs nothing when there are none."""
        window, self._window = self._window, None
        if window is None:
            return
        steps = len(window.slots)
        self._remember(window.index, window.hidden[steps - 1])
        if self._draft_kv is not None:
            with self._generation.draft_context(self._worker):
                self._draft_kv.write(
                    window.hidden[:steps].flatten(0, 1),
                    torch.cat(window.next_tokens),
                    torch.cat(window.positions),
                    torch.cat(window.slots),
                )

    def settle(self) -> None:
        """Write the gathered rows from the scheduler's stream, and see it done.

        A step in flight on the forward stream may still be filling them, and what comes next changes the weights.
        """
        if self._window is None:
            return
        device = torch.get_device_module(self._window.index.device)
        device.synchronize()
        self.flush()
        device.synchronize()

    # -- resume ------------------------------------------------------------------------------------------------------

    def remember_prefill(self, batch: Any, result: Any) -> None:
        """Remember each request's last aux hidden state: it may sit beside stale rows when speculation resumes."""
        hidden = result.logits_output.hidden_states
        if hidden is None:
            return
        lengths = torch.tensor(self._generation.extend_lengths(batch), dtype=torch.int64)
        last = torch.cumsum(lengths, dim=0) - 1
        if hidden.device.type != "cpu":
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
