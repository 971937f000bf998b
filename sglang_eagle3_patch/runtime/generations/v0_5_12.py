"""SGLang 0.5.12: the worker gets a ``ModelWorkerBatch``, and the scheduler waits for the lengths."""

from __future__ import annotations

from typing import Any

import torch

from sglang_eagle3_patch.runtime.generations.v0_5_13 import ConstructorGeneration


class WorkerBatchGeneration(ConstructorGeneration):
    """The next draft input carries the lengths, and an event that says when they are there."""

    # -- reading a batch ---------------------------------------------------------------------------------------------

    def pool_rows(self, batch: Any) -> list[int]:
        """Each request's row; -1 for one that ended after this batch was put together, whose row is free already."""
        return [-1 if req.req_pool_idx is None else req.req_pool_idx for req in batch.reqs]

    def extend_lengths(self, batch: Any) -> list[int]:
        """How many tokens each request of a prefill ran."""
        lengths: list[int] = batch.extend_seq_lens
        return lengths

    def returns_hidden_states(self, batch: Any) -> bool:
        """The worker's batch does not say; its requests do."""
        return any(req.return_hidden_states for req in batch.reqs)

    # -- a plain step ------------------------------------------------------------------------------------------------

    def plain_step(self, worker: Any, batch: Any, rows: list[int], *_args: Any, **_unused: Any) -> Any:
        """As upstream's verify, leave an event for the scheduler, which waits for it before it reads the lengths."""
        lengths_done = torch.get_device_module(worker.device).Event()
        result = super().plain_step(worker, batch, rows, on_publish=lambda _lengths: lengths_done.record())
        result.next_draft_input.verify_done = lengths_done
        return result

    def next_draft_input(self, draft_input: Any, next_tokens: torch.Tensor, new_seq_lens: torch.Tensor) -> Any:
        """The next step's draft input, with the lengths after this one."""
        following = super().next_draft_input(draft_input, next_tokens, new_seq_lens)
        following.new_seq_lens = new_seq_lens
        return following

    def result_fields(self, target_result: Any, new_seq_lens: torch.Tensor, forward_batch: Any) -> dict[str, Any]:
        """What else the result of a step holds in this generation."""
        return {
            "speculative_num_draft_tokens": 1,
            "routed_experts_output": target_result.routed_experts_output,
            "indexer_topk_output": target_result.indexer_topk_output,
        }


GENERATION = WorkerBatchGeneration()
