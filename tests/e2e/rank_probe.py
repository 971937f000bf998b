"""Runs inside every rank of a server (CPU_REFERENCE_HOOKS): writes down what each rank did.

Each step is a JSON line in RANK_REPORT/RANK.jsonl: how it ran, over which requests, and what it left behind. Where
plain steps run a full draft extend, each is a line in RANK_REPORT/shards.jsonl too: the largest difference between the
K and V that it wrote and those of the K/V-only write, over this rank's heads.
"""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import IO, Any


@functools.cache
def file(name: str) -> IO[str]:
    """A file of the report, written line by line."""
    return (Path(os.environ["RANK_REPORT"]) / f"{name}.jsonl").open("a", buffering=1)


def rank() -> int:
    """The rank that this process is."""
    from torch import distributed

    return int(distributed.get_rank())


def watch_steps(worker: Any) -> None:
    """Wrap the worker's step in the module that was just imported."""
    cls = worker.GatedWorkerMixin
    run = cls.forward_batch_generation

    def forward_batch_generation(self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        rows = self.generation.pool_rows(batch)
        mode = "prefill" if batch.forward_mode.is_extend() else "speculative"
        result = run(self, batch, *args, **kwargs)
        window = self.draft_sync._window
        line = {
            "mode": "plain" if self.last_step_plain else mode,
            "rows": rows,
            "stale": sorted(self.stale_rows),
            "window": None if window is None else [window.rows, len(window.slots)],
            "resumes": self.gate.resumes,
            "tokens": result.next_token_ids.tolist(),
            "accepted": None if result.accept_lens is None else result.accept_lens.tolist(),
        }
        file(str(rank())).write(json.dumps(line) + "\n")
        return result

    cls.forward_batch_generation = forward_batch_generation


def compare_writes(draft_sync: Any) -> None:
    """Wrap ``DraftSync.extend_draft``: after the full extend of a plain step, the K/V-only write of the same rows."""
    cls = draft_sync.DraftSync
    extend = cls.extend_draft

    def extend_then_write(
        self: Any, batch: Any, draft_input: Any, lengths: Any, shift: int, tokens: Any, hidden: Any
    ) -> None:
        extend(self, batch, draft_input, lengths, shift, tokens, hidden)
        if not self.keeps_state_fresh:
            return  # a resume: the K/V-only write is what runs anyway
        runner = self._worker.draft_worker.draft_runner
        slots = self._worker.req_to_token_pool.req_to_token[batch.req_pool_indices, lengths]
        buffers = runner.token_to_kv_pool.k_buffer[0], runner.token_to_kv_pool.v_buffer[0]
        full = [buffer[slots] for buffer in buffers]
        for buffer in buffers:
            buffer[slots] = float("nan")  # or a write that does nothing would pass
        draft_sync.draft_kv_for(runner, self._generation).write(hidden, tokens, lengths, slots)
        differences = [float((buffer[slots] - kv).abs().max()) for buffer, kv in zip(buffers, full, strict=True)]
        line = {"rank": rank(), "heads": full[0].shape[1], "differences": differences}
        file("shards").write(json.dumps(line) + "\n")

    cls.extend_draft = extend_then_write


HOOKS = {
    "sglang_eagle3_patch.runtime.worker": watch_steps,
    "sglang_eagle3_patch.runtime.draft_sync": compare_writes,
}
