"""SGLang 0.5.13: everything is built in constructors, the worker gets the scheduler's batch."""

from __future__ import annotations

from typing import Any

import torch

from sglang_eagle3_patch.runtime.generations.v0_5_14 import BatchCapturesGeneration


class ConstructorGeneration(BatchCapturesGeneration):
    """The draft worker's constructor builds pools, backends and graphs; a step's shared reads end with the step."""

    decode_runner_attribute = "graph_runner"
    graph_size_flag = "--cuda-graph-max-bs"
    shared_read_runner = None

    def after_init(self, worker: Any) -> None:
        """The target's and the draft's graphs are there: nothing else would call for the plain path."""
        worker.build_plain_path()

    def write_location(self, slots: torch.Tensor) -> Any:
        """The slots themselves."""
        return slots


GENERATION = ConstructorGeneration()
