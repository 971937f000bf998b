"""Runs inside the engine (CPU_REFERENCE_HOOKS): says after every plain step which graphs there are, and which are in.

One JSON line a plain step goes to the file that GRAPH_REPORT names: the sizes of the plain graphs, those of the verify
graphs, and whether the model runner has the verify graphs and their attention backend back.
"""

from __future__ import annotations

import functools
import json
import os
from typing import Any


def watch(worker: Any) -> None:
    """Wrap a step of the gated worker in the module that was just imported."""
    mixin = worker.GatedWorkerMixin
    forward = mixin.forward_batch_generation

    @functools.wraps(forward)
    def forward_then_report(self: Any, *args: Any, **kwargs: Any) -> Any:
        model_runner, attribute = self.target_worker.model_runner, self.generation.decode_runner_attribute
        verify = getattr(model_runner, attribute), model_runner.attn_backend
        result = forward(self, *args, **kwargs)
        if self.last_step_plain:
            line = {
                "plain": list(self.plain_graphs.runner.capture_bs),
                "verify": list(verify[0].capture_bs),
                "back": (getattr(model_runner, attribute), model_runner.attn_backend) == verify,
            }
            with open(os.environ["GRAPH_REPORT"], "a") as report:
                report.write(json.dumps(line) + "\n")
        return result

    mixin.forward_batch_generation = forward_then_report


HOOKS = {"sglang_eagle3_patch.runtime.worker": watch}
