"""Runs inside the engine (CPU_REFERENCE_HOOKS): compares the draft's KV pool with what full draft extends leave in it.

At each plain step SGLang's own draft extend, one token a request, runs first; its K and V are noted, and the pool is
put back as it was. When speculation resumes, K and V of every position that plain steps committed are compared with
the notes, bit by bit. Each request of a resume is a JSON line; every rank has a file of its own in the folder that
DRAFT_KV_REPORT names.
"""

from __future__ import annotations

import copy
import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # this file runs before the stand-ins are in place: torch must not be imported yet
    from torch import Tensor


def watch(draft_sync: Any) -> None:
    """Wrap ``DraftSync`` in the module that was just imported."""
    from sglang_eagle3_patch.runtime.gate import GATE

    cls = draft_sync.DraftSync
    after_plain_step, remember_prefill, resume = cls.after_plain_step, cls.remember_prefill, cls.resume
    # {pool row: {position: (K and V as a full draft extend leaves them)}}
    notes: dict[int, dict[int, tuple[Tensor, Tensor]]] = {}

    def buffers(sync: Any) -> tuple[Tensor, Tensor]:
        pool = sync._worker.draft_worker.draft_runner.token_to_kv_pool
        found: tuple[Tensor, Tensor] = pool.get_kv_buffer(pool.start_layer)
        return found

    def note_then_keep(self: Any, batch: Any, rows: Any, tokens: Any, positions: Any, slots: Any, hidden: Any) -> None:
        GATE.plain_step_writes_window = True  # the extend below is a window wide: let the step reserve one
        keys, values = buffers(self)
        was = keys.clone(), values.clone()
        self.extend_draft(batch, copy.copy(batch.spec_info), batch.seq_lens, 0, tokens, hidden)
        full = keys[slots].clone(), values[slots].clone()
        keys.copy_(was[0])
        values.copy_(was[1])
        for i, (row, position) in enumerate(zip(rows, positions.tolist(), strict=True)):
            notes.setdefault(row, {})[position] = full[0][i], full[1][i]
        after_plain_step(self, batch, rows, tokens, positions, slots, hidden)

    def forget_rows_of_others(self: Any, batch: Any, result: Any) -> None:
        remember_prefill(self, batch, result)
        for row in batch.req_pool_indices.tolist():
            notes.pop(row, None)

    def resume_then_compare(self: Any, batch: Any) -> None:
        resume(self, batch)
        keys, values = buffers(self)
        table = self._worker.req_to_token_pool.req_to_token
        with open(f"{os.environ['DRAFT_KV_REPORT']}/{os.getpid()}.jsonl", "a") as report:
            for row in batch.req_pool_indices.tolist():
                noted = notes.pop(row, {})
                found = [(keys[s], values[s]) for s in table[row, list(noted)].tolist()]
                differences = [
                    (float((k - full_k).abs().max()), float((v - full_v).abs().max()))
                    for (k, v), (full_k, full_v) in zip(found, noted.values(), strict=True)
                ]
                line = {"positions": len(noted), "differences": differences}
                report.write(json.dumps(line) + "\n")

    cls.after_plain_step = note_then_keep
    cls.remember_prefill = forget_rows_of_others
    cls.resume = resume_then_compare


HOOKS = {"sglang_eagle3_patch.runtime.draft_sync": watch}
