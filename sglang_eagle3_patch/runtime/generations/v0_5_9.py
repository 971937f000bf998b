"""SGLang 0.5.9 and 0.5.10: spec v2 is opt-in, and the graph runner takes its attention backend from its model."""

from __future__ import annotations

from typing import Any

import torch

from sglang_eagle3_patch.runtime.generations.v0_5_11 import VerifiedIdGeneration


class OptInGeneration(VerifiedIdGeneration):
    """The oldest shape."""

    weight_updates = ("update_weights_from_tensor",)

    def plain_runner(self, runner_class: type, model_runner: Any, backend: Any) -> Any:
        """The runner captures over whatever backend its model runner has."""
        own = model_runner.attn_backend
        model_runner.attn_backend = backend
        try:
            return runner_class(model_runner)
        finally:
            model_runner.attn_backend = own

    def result_fields(self, target_result: Any, new_seq_lens: torch.Tensor, forward_batch: Any) -> dict[str, Any]:
        """What else the result of a step holds in this generation."""
        return {"expert_distribution_metrics": target_result.expert_distribution_metrics}


GENERATION = OptInGeneration()
