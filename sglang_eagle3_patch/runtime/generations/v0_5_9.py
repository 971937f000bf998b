"""SGLang 0.5.9: everything is built in constructors, the worker gets a ``ModelWorkerBatch``, spec v2 is opt-in."""

from __future__ import annotations

import copy
from typing import Any

import torch

from sglang_eagle3_patch.runtime.generations.base import Generation


class ConstructorGeneration(Generation):
    """The draft worker's constructor builds pools, backends and graphs, and the scheduler waits for the lengths."""

    decode_runner_attribute = "graph_runner"
    shared_read_runner = None
    publishes_before_decode = True

    # -- start-up ----------------------------------------------------------------------------------------------------

    def after_init(self, worker: Any) -> None:
        """The target's and the draft's graphs are there: nothing else would call for the plain path."""
        worker.build_plain_path()

    def plain_runner_settings(self) -> dict[str, Any]:
        """One attribute says what is captured; the constructor and every captured size assign to it."""
        return {"capture_hidden_mode": self.hidden_full()}

    def plain_runner(self, runner_class: type, model_runner: Any, backend: Any) -> Any:
        """The runner captures over whatever backend its model runner has."""
        own = model_runner.attn_backend
        model_runner.attn_backend = backend
        try:
            return runner_class(model_runner)
        finally:
            model_runner.attn_backend = own

    # -- reading a batch ---------------------------------------------------------------------------------------------

    def bonus_tokens(self, draft_input: Any) -> torch.Tensor:
        """[batch], the token that each request feeds next."""
        tokens: torch.Tensor = draft_input.verified_id
        return tokens

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
        """As upstream's verify, leave an event for the scheduler, which waits for it before it reads the lengths.

        The lengths do not depend on what the target says, so the event precedes it: as without speculation, the
        scheduler then prepares the next step while this one runs.
        """
        lengths_done = torch.get_device_module(worker.device).Event()
        result = super().plain_step(worker, batch, rows, on_publish=lambda _lengths: lengths_done.record())
        result.next_draft_input.verify_done = lengths_done
        return result

    def forward_batch(self, step: Any, runner: Any) -> Any:
        """The target's forward batch for ``step``, hidden states of every token included."""
        from sglang.srt.model_executor.forward_batch_info import ForwardBatch

        step.capture_hidden_mode = self.hidden_full()
        step.return_hidden_states_before_norm = False
        return ForwardBatch.init_new(step, runner)

    def next_draft_input(self, draft_input: Any, next_tokens: torch.Tensor, new_seq_lens: torch.Tensor) -> Any:
        """The next step's draft input. Its draft state is the old one, stale: a resume replaces it before use."""
        following = copy.copy(draft_input)
        following.verified_id = next_tokens
        following.new_seq_lens = new_seq_lens
        following.future_indices = None
        return following

    def plain_result(
        self,
        worker: Any,
        target_result: Any,
        next_tokens: torch.Tensor,
        next_input: Any,
        new_seq_lens: torch.Tensor,
        forward_batch: Any,
    ) -> Any:
        """The step's result: one accepted token a request. The lengths travel with the next draft input."""
        from sglang_eagle3_patch.runtime.plain_result import PlainDecodeResult

        return PlainDecodeResult(
            logits_output=target_result.logits_output,
            next_token_ids=next_tokens,
            can_run_cuda_graph=target_result.can_run_cuda_graph,
            next_draft_input=next_input,
            accept_lens=self.one_accepted(worker, next_tokens),
            draft_state_fresh=worker.draft_sync.keeps_state_fresh,
            expert_distribution_metrics=target_result.expert_distribution_metrics,
        )

    # -- the draft ---------------------------------------------------------------------------------------------------

    def draft_layers(self, model: Any) -> list[Any]:
        """An EAGLE-3 draft has exactly one layer here, and a name for it."""
        return [model.midlayer]

    def set_kv(self, pool: Any, radix: Any, slots: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        """Write K and V [rows, heads, head_dim] of the draft's layer into ``slots`` [rows]."""
        scales = () if radix.k_scale is None else (radix.k_scale, radix.v_scale)
        pool.set_kv_buffer(radix, slots, k, v, *scales)


GENERATION = ConstructorGeneration()
