"""SGLang 0.5.14 and 0.5.15: what a forward captures is an attribute of the scheduler's batch."""

from __future__ import annotations

from typing import Any

from sglang_eagle3_patch.runtime.generations.v0_5_16 import FastpathGeneration


class BatchCapturesGeneration(FastpathGeneration):
    """Staged start-up, but the batch and the graph runner say in one attribute each what is captured."""

    def plain_runner_settings(self) -> dict[str, Any]:
        """One attribute says what is captured; the constructor and every captured size assign to it."""
        return {"capture_hidden_mode": self.hidden_full()}

    def forward_batch(self, step: Any, runner: Any) -> Any:
        """The target's forward batch for ``step``, hidden states of every token included."""
        from sglang.srt.model_executor.forward_batch_info import ForwardBatch

        step.capture_hidden_mode = self.hidden_full()
        step.return_hidden_states_before_norm = False
        return ForwardBatch.init_new(step, runner)


GENERATION = BatchCapturesGeneration()
