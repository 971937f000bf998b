"""The gated EAGLE-3 worker: decide, then speculate or decode."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sglang_eagle3_patch.runtime.draft_sync import DraftSync
from sglang_eagle3_patch.runtime.gate import GATE, BatchGate, Mode
from sglang_eagle3_patch.runtime.generations.base import Generation
from sglang_eagle3_patch.runtime.graphs import PlainGraphs


class GatedWorkerMixin:
    """Goes in front of SGLang's ``EAGLEWorkerV2``; ``gated_worker`` joins the two for the tree's release.

    The scheduler keeps to the spec-v2 protocol throughout: a plain step is a speculative step that accepted nothing
    but its bonus token, except that it ran as ``ForwardMode.DECODE`` and is not counted (C6).
    """

    generation: Generation
    # What upstream's half brings.
    if TYPE_CHECKING:
        target_worker: Any
        req_to_token_pool: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Before anything that can raise (C1): a half-built worker still reads as one.
        self.gate: BatchGate = GATE
        self.plain_graphs: PlainGraphs | None = None
        self.draft_sync: DraftSync | None = None
        # Pool rows whose draft state is older than their last token: a plain step makes its rows stale, a prefill or
        # a resume makes them fresh. On the CPU, so that a speculative step knows without a sync if it must resume.
        self.stale_rows: set[int] = set()
        self.last_step_plain: bool = False
        super().__init__(*args, **kwargs)
        self.generation.after_init(self)

    # -- start-up --------------------------------------------------------------------------------------------------

    def init_cuda_graphs(self, *args: Any, **kwargs: Any) -> None:
        """Capture upstream's graphs, then the target's plain decode graphs beside them (staged releases)."""
        super().init_cuda_graphs(*args, **kwargs)  # type: ignore[misc]
        self.build_plain_path()

    def build_plain_path(self) -> None:
        """Build what a plain step needs. Any failure here ends the server with its own error (C2).

        Raises:
            ValueError: the target keeps state beside its KV cache, which a plain step would not roll forward.
        """
        pool = type(self.req_to_token_pool).__name__
        if pool != "ReqToTokenPool":
            raise ValueError(
                f"EAGLE-3 batch gate: this target keeps its requests in a {pool} (a hybrid or unified memory model), "
                "which plain steps can't serve: start with --speculative-disable-batch-threshold 0."
            )
        generation = self.generation
        self.draft_sync = DraftSync.build(self, generation)
        self.gate.plain_step_writes_window = self.draft_sync.writes_window
        self.plain_graphs = generation.capture_plain_graphs(self.target_worker.model_runner, self.gate.threshold)

    # -- a step ----------------------------------------------------------------------------------------------------

    def forward_batch_generation(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        """Run one step; see the design's table for who may be in ``batch``.

        Args:
            batch: the scheduler's batch; ``seq_lens`` [batch] is the length before this step.
        """
        generation, sync, stale = self.generation, self.draft_sync, self.stale_rows
        assert sync is not None, "a step ran before the plain path was built"
        rows = generation.pool_rows(batch)
        self.last_step_plain = False

        if batch.forward_mode.is_extend() or batch.is_extend_in_batch:
            sync.flush()
            result = super().forward_batch_generation(batch, *args, **kwargs)  # type: ignore[misc]
            if not batch.forward_mode.is_idle():
                sync.remember_prefill(batch, result)
                stale.difference_update(rows)
            return result

        if not rows or batch.forward_mode.is_idle() or batch.spec_info is None:
            sync.flush()
            return super().forward_batch_generation(batch, *args, **kwargs)  # type: ignore[misc]

        if self.gate.enter(len(rows)) is Mode.PLAIN:
            self.last_step_plain = True
            result = generation.plain_step(self, batch, rows, *args, **kwargs)
            if sync.keeps_state_fresh:
                stale.difference_update(rows)
            else:
                stale.update(rows)
            return result

        sync.flush()
        if not stale.isdisjoint(rows):
            sync.resume(batch)
            stale.difference_update(rows)
            self.gate.resumes += 1
        return super().forward_batch_generation(batch, *args, **kwargs)  # type: ignore[misc]

    # -- what the scheduler asks about the latest step ---------------------------------------------------------------

    @property
    def spec_v2_attn_backends(self) -> tuple[Any, ...]:
        """Every attention backend that a step may use; the scheduler asks each what it needs on the CPU."""
        backends: tuple[Any, ...] = super().spec_v2_attn_backends  # type: ignore[misc]
        return backends if self.plain_graphs is None else (*backends, self.plain_graphs.attn_backend)


@functools.cache
def gated_worker(upstream: type, generation: str) -> type:
    """Join the gate with SGLang's worker class.

    Args:
        upstream: ``EAGLEWorkerV2`` of the running tree.
        generation: module name in ``generations``, as the tree's patch series gives it.
    """
    room = importlib.import_module(f"sglang_eagle3_patch.runtime.generations.{generation}").GENERATION
    members: dict[str, Any] = {"generation": room}
    for name in room.weight_updates:
        members[name] = _flushed(getattr(upstream, name))
    if room.shared_read_runner is not None:
        members[room.shared_read_runner] = _shared_read_runner(getattr(upstream, room.shared_read_runner))
    return type("GatedEAGLEWorkerV2", (GatedWorkerMixin, upstream), members)


def _flushed(upstream: Callable[..., Any]) -> Callable[..., Any]:
    """An update of the draft's weights. Rows still to be written belong to the old ones: they are written first."""

    @functools.wraps(upstream)
    def update(worker: Any, *args: Any, **kwargs: Any) -> Any:
        if worker.draft_sync is not None:
            worker.draft_sync.settle()
        return upstream(worker, *args, **kwargs)

    return update


def _shared_read_runner(upstream: property) -> property:
    """The runner whose event tells the scheduler that a step has read the shared buffers.

    After a speculative step that is the draft's; after a plain step in which the draft reads none, the target's.
    Upstream's answer would make the scheduler wait for the whole plain step.
    """

    def runner(worker: Any) -> Any:
        if worker.last_step_plain and not worker.draft_sync.keeps_state_fresh:
            return worker.target_worker.model_runner
        return upstream.fget(worker)  # type: ignore[misc]

    return property(runner)
