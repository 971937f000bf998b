"""Runs inside SGLang's processes (CPU_REFERENCE_HOOKS): changes classes as a plugin or a later release might."""

from __future__ import annotations

from typing import Any


def rename_a_method(module: Any) -> None:
    """A resume calls it."""
    worker = module.EagleDraftWorker
    worker.draft_extend_for_decode = worker._draft_extend_for_decode
    del worker._draft_extend_for_decode


def demand_a_parameter(module: Any) -> None:
    """A plain step calls it without one."""
    upstream = module.ModelRunner.sample

    def sample(self: Any, logits_output: Any, forward_batch: Any, seed: int) -> Any:
        return upstream(self, logits_output, forward_batch)

    module.ModelRunner.sample = sample


HOOKS = {
    "sglang.srt.speculative.eagle_worker_v2": rename_a_method,
    "sglang.srt.model_executor.model_runner": demand_a_parameter,
}
