"""SGLang 0.5.11: a bonus token is a verified id, and an EAGLE-3 draft has one layer."""

from __future__ import annotations

from typing import Any

import torch

from sglang_eagle3_patch.runtime.generations.v0_5_12 import WorkerBatchGeneration


class VerifiedIdGeneration(WorkerBatchGeneration):
    """The output's width is the worker's, not the result's: a hook corrects it for plain steps."""

    bonus_field = "verified_id"

    def result_fields(self, target_result: Any, new_seq_lens: torch.Tensor, forward_batch: Any) -> dict[str, Any]:
        """What else the result of a step holds in this generation."""
        return {"routed_experts_output": target_result.routed_experts_output}

    def draft_layers(self, model: Any) -> list[Any]:
        """An EAGLE-3 draft has exactly one layer here, and a name for it."""
        return [model.midlayer]


GENERATION = VerifiedIdGeneration()
