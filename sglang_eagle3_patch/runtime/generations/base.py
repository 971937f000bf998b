"""The newest shape (0.5.21 to 0.5.23). An older generation overrides what differs there."""

from __future__ import annotations

import contextlib
import copy
import logging
import time
from collections.abc import Iterator
from typing import Any

import torch

from sglang_eagle3_patch.runtime.graphs import PlainGraphs, plain_runner_class

logger = logging.getLogger("sglang.eagle3_batch_gate")


class Generation:
    """How this generation of SGLang is spoken to."""

    decode_runner_attribute = "decode_cuda_graph_runner"
    graph_size_flag = "--cuda-graph-max-bs-decode"
    bonus_field = "bonus_tokens"
    # The worker's property and the runner's attribute by which the scheduler learns that shared buffers were read.
    shared_read_runner: str | None = "last_shared_read_runner"
    shared_read_done = "shared_read_done_event"
    # The worker's methods through which new weights reach the draft.
    weight_updates: tuple[str, ...] = ("weight_update_runners",)

    # -- start-up ----------------------------------------------------------------------------------------------------

    def after_init(self, worker: Any) -> None:
        """Staged releases build pools, backends and graphs later, through methods of the worker."""

    def capture_plain_graphs(self, model_runner: Any, threshold: int) -> PlainGraphs | None:
        """Capture the target's decode graphs, or return None where the server runs without graphs.

        Raises:
            RuntimeError: the capture failed; the message names the flag to change.
        """
        verify_runner = getattr(model_runner, self.decode_runner_attribute)
        if verify_runner is None:
            return None
        if max(verify_runner.capture_bs) <= threshold:
            logger.info("EAGLE-3 batch gate: no decode graph is larger than the threshold, plain steps run eagerly")
            return None
        started, free = time.perf_counter(), self.free_memory()
        workspace = model_runner.init_new_workspace
        algorithm = model_runner.spec_algorithm
        try:
            # Own graph buffers, shared scratch space: a step runs verify or plain, never both.
            backend = self.without_verify(model_runner._get_attention_backend())
            # The runner asks its model runner if it captures for verify: while it captures, there is no speculation.
            model_runner.spec_algorithm = type(algorithm).NONE
            runner_class = plain_runner_class(type(verify_runner), self.plain_runner_settings(), threshold)
            runner = self.plain_runner(runner_class, model_runner, backend)
        except Exception as error:
            raise RuntimeError(
                f"EAGLE-3 batch gate: capturing the plain decode graphs failed ({error}): lower --mem-fraction-static "
                f"or {self.graph_size_flag}, or start with --speculative-disable-batch-threshold 0."
            ) from error
        finally:
            model_runner.spec_algorithm = algorithm
            model_runner.init_new_workspace = workspace
        logger.info(
            "EAGLE-3 batch gate: captured %d plain decode graphs in %.1f s, %.2f GiB",
            len(runner.capture_bs),
            time.perf_counter() - started,
            (free - self.free_memory()) / 2**30,
        )
        return PlainGraphs(runner, backend, self.decode_runner_attribute)

    def without_verify(self, backend: Any) -> Any:
        """The backend of plain graphs, told that nobody speculates over it, so that it keeps no page tables for that.

        fa3 and trtllm_mha would keep three more, each of a decode's size, and fa3 wider ones above topk 1: at page size
        1, 256 requests and a context of 262,144 tokens 0.8 GiB.
        """
        if hasattr(backend, "speculative_num_draft_tokens"):
            backend.speculative_num_draft_tokens = 0
            backend.topk = 0  # fa3 asks each of the two on its own, and divides by the first where topk is above 1
        return backend

    def plain_runner_settings(self) -> dict[str, Any]:
        """Attributes of a decode graph runner that make it capture hidden states."""
        return {"return_hidden_states_mode": self.hidden_full(), "enable_return_hidden_states": True}

    def plain_runner(self, runner_class: type, model_runner: Any, backend: Any) -> Any:
        """Build the plain decode graph runner over its own attention backend; this captures the graphs."""
        return runner_class(model_runner, attn_backend=backend)

    def free_memory(self) -> int:
        """Free device memory in bytes."""
        free: int = torch.cuda.mem_get_info()[0]
        return free

    def hidden_full(self) -> Any:
        """The mode that captures the hidden states of every token."""
        from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode

        return CaptureHiddenMode.FULL

    def copies_kv_to_host(self, worker: Any) -> bool:
        """Whether something copies a finished request's KV away before the next step could flush it."""
        return bool(getattr(worker.server_args, "enable_hierarchical_cache", False))

    # -- reading a batch ---------------------------------------------------------------------------------------------

    def bonus_tokens(self, draft_input: Any) -> torch.Tensor:
        """[batch], the token that each request feeds next."""
        tokens: torch.Tensor = getattr(draft_input, self.bonus_field)
        return tokens

    def pool_rows(self, batch: Any) -> list[int]:
        """Each request's row in the request pool, without a device sync."""
        rows: list[int] = batch.req_pool_indices_cpu.tolist()
        return rows

    def extend_lengths(self, batch: Any) -> list[int]:
        """How many tokens each request of a prefill ran."""
        lengths: list[int] = batch.extend_lens
        return lengths

    def returns_hidden_states(self, batch: Any) -> bool:
        """Whether some request asked for the target's hidden states."""
        return bool(batch.return_hidden_states)

    # -- a plain step ------------------------------------------------------------------------------------------------

    def plain_step(
        self,
        worker: Any,
        batch: Any,
        rows: list[int],
        on_publish: Any = None,
        grammar_barrier: Any = None,
        **_unused: Any,
    ) -> Any:
        """Run one step as plain decoding and return it in the form of a speculative one.

        Args:
            worker: the gated worker.
            batch: the scheduler's batch; ``seq_lens`` [batch] is the length before this step. It is not changed.
            rows: the requests' pool rows, on the CPU.
            on_publish: called with the lengths after this step. They do not depend on what the target says, so that is
                before it runs: as without speculation, the scheduler then prepares the next step beside this one. It
                waits for the lengths on the CPU where the attention backend plans there (flashinfer).
            grammar_barrier: advances the grammars over the previous step's tokens; runs while the target computes.
        """
        target = worker.target_worker
        draft_input, seq_lens = batch.spec_info, batch.seq_lens
        slots = worker.req_to_token_pool.req_to_token[batch.req_pool_indices.to(torch.int64), seq_lens.to(torch.int64)]
        slots = slots.to(torch.int64)
        new_seq_lens = seq_lens + 1
        if on_publish is not None:
            on_publish(new_seq_lens)

        if self.shared_read_runner is not None:
            # A verify may have left its event here, and an eager step publishes none of its own.
            setattr(target.model_runner, self.shared_read_done, None)

        step = self.shifted(batch, new_seq_lens, 1)
        step.input_ids = self.bonus_tokens(draft_input).to(torch.int64)
        step.out_cache_loc = slots
        step.spec_info = None
        forward_batch, target_result = self.decode(worker, step)
        if grammar_barrier is not None and batch.has_grammar:
            grammar_barrier()
        logits = target_result.logits_output
        next_tokens = target.model_runner.sample(logits, forward_batch).to(torch.int64)
        self.shape_logprobs(batch, logits)

        next_input = self.next_draft_input(draft_input, next_tokens, new_seq_lens)
        sync = worker.draft_sync
        if sync.keeps_state_fresh:
            sync.extend_draft(batch, next_input, seq_lens, 0, next_tokens, logits.hidden_states)
        else:
            # Not the forward batch's positions: up to 0.5.16 they stay padded after an eager step of several ranks. A
            # copy, made on the forward stream: the batch's own tensor belongs to the schedule stream.
            positions = seq_lens.to(torch.int64, copy=True)
            sync.after_plain_step(batch, rows, next_tokens, positions, slots, logits.hidden_states)
        if not self.returns_hidden_states(batch):
            logits.hidden_states = None
        return self.plain_result(worker, target_result, next_tokens, next_input, new_seq_lens, forward_batch)

    def shifted(self, batch: Any, seq_lens: torch.Tensor, shift: int) -> Any:
        """A shallow copy of the batch whose lengths are ``seq_lens``, ``shift`` away from the batch's own."""
        moved = copy.copy(batch)
        moved.seq_lens = seq_lens
        if batch.seq_lens_cpu is not None:
            moved.seq_lens_cpu = batch.seq_lens_cpu + shift
            moved.seq_lens_sum = int(moved.seq_lens_cpu.sum())
        return moved

    def decode(self, worker: Any, step: Any) -> tuple[Any, Any]:
        """Run the target over ``step`` in DECODE mode, with its own graphs where there are some; no sampling."""
        from sglang.srt.model_executor.forward_batch_info import ForwardMode

        step.forward_mode = ForwardMode.DECODE
        runner = worker.target_worker.model_runner
        graphs = worker.plain_graphs
        with contextlib.nullcontext() if graphs is None else graphs.installed(runner):
            forward_batch = self.forward_batch(step, runner)
            # "Verify" here only means that the worker leaves sampling to its caller.
            result = worker.target_worker.forward_batch_generation(None, forward_batch=forward_batch, is_verify=True)
        return forward_batch, result

    def forward_batch(self, step: Any, runner: Any) -> Any:
        """The target's forward batch for ``step``, hidden states of every token included."""
        from sglang.srt.model_executor.forward_batch_info import ForwardBatch

        return ForwardBatch.init_new(
            step, runner, capture_hidden_mode=self.hidden_full(), return_hidden_states_before_norm=False
        )

    def shape_logprobs(self, batch: Any, logits: Any) -> None:
        """Give log probabilities the row layout of a speculative step: [batch, 1] instead of [batch]."""
        if batch.return_logprob and logits.next_token_logprobs is not None:
            logits.next_token_logprobs = logits.next_token_logprobs.view(-1, 1)

    def next_draft_input(self, draft_input: Any, next_tokens: torch.Tensor, new_seq_lens: torch.Tensor) -> Any:
        """The next step's draft input. Its draft state is the old one, stale: a resume replaces it before use."""
        following = copy.copy(draft_input)
        setattr(following, self.bonus_field, next_tokens)
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
        """The step's result: one accepted token a request, one column a request."""
        from sglang_eagle3_patch.runtime.plain_result import PlainDecodeResult

        return PlainDecodeResult(
            logits_output=target_result.logits_output,
            next_token_ids=next_tokens,
            can_run_cuda_graph=target_result.can_run_cuda_graph,
            next_draft_input=next_input,
            # On the CPU, where the scheduler wants them: nothing to copy. Nobody reads a plain step's on the device.
            accept_lens=torch.ones(next_tokens.shape, dtype=torch.int32, device="cpu"),
            draft_state_fresh=worker.draft_sync.keeps_state_fresh,
            **self.result_fields(target_result, new_seq_lens, forward_batch),
        )

    def result_fields(self, target_result: Any, new_seq_lens: torch.Tensor, forward_batch: Any) -> dict[str, Any]:
        """What else the result of a step holds in this generation."""
        return {
            "speculative_num_draft_tokens": 1,
            "new_seq_lens": new_seq_lens,
            "routed_experts_output": target_result.routed_experts_output,
            "indexer_topk_output": target_result.indexer_topk_output,
            # Its tensors must outlive what the scheduler rebinds while the forward stream still reads them.
            "extra_keep_alive_refs": [forward_batch],
        }

    # -- the draft ---------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def draft_context(self, worker: Any) -> Iterator[None]:
        """The contexts in which SGLang runs its draft.

        It has a tensor-parallel group of its own only under DP attention, which the gate refuses.
        """
        from sglang.srt.layers.moe.utils import speculative_moe_a2a_backend_context, speculative_moe_backend_context

        with speculative_moe_backend_context(), speculative_moe_a2a_backend_context():
            yield

    def draft_layers(self, model: Any) -> list[Any]:
        """The decoder layers of an EAGLE-3 draft's inner model."""
        return list(model.layers)

    def write_location(self, slots: torch.Tensor) -> Any:
        """``slots`` [rows] int64 as a KV pool's ``set_kv_buffer`` takes them."""
        from sglang.srt.mem_cache.memory_pool import KVWriteLoc

        return KVWriteLoc(slots, None)

    def draft_extend(
        self,
        worker: Any,
        batch: Any,
        draft_input: Any,
        lengths: torch.Tensor,
        lengths_shift: int,
        tokens: torch.Tensor,
        hidden: torch.Tensor,
    ) -> None:
        """SGLang's draft extend, told that each request accepted the first token of its window.

        Args:
            lengths: [batch], tokens of each request before the window.
            tokens: [batch * width] int64.
            hidden: [batch * width, aux * hidden].
        """
        from sglang.srt.layers.logits_processor import LogitsProcessorOutput
        from sglang.srt.managers.utils import GenerationBatchResult
        from sglang.srt.model_executor.forward_batch_info import ForwardMode

        step = self.shifted(batch, lengths, lengths_shift)
        width = tokens.shape[0] // lengths.shape[0]
        window = lengths.to(torch.int64).view(-1, 1) + torch.arange(width, device=lengths.device)
        rows = batch.req_pool_indices.to(torch.int64).view(-1, 1)
        step.out_cache_loc = worker.req_to_token_pool.req_to_token[rows, window].reshape(-1).to(torch.int64)
        step.forward_mode = ForwardMode.TARGET_VERIFY
        accepted = GenerationBatchResult(
            logits_output=LogitsProcessorOutput(next_token_logits=None, hidden_states=hidden),
            next_token_ids=tokens,
            accept_lens=torch.ones(lengths.shape, dtype=torch.int32, device=lengths.device),
            next_draft_input=draft_input,
        )
        accepted.new_seq_lens = lengths + 1  # seeds the draft's own sampling, where that is on
        if (plan_stream := worker.draft_worker.plan_stream) is not None:
            # Upstream plans this extend beside the verify that made its inputs; ours were made just now.
            plan_stream.wait_stream(torch.get_device_module(lengths.device).current_stream())
        worker.draft_worker._draft_extend_for_decode(step, accepted)
