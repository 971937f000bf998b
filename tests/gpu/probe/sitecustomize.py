"""Counts the CPU-GPU synchronisations of the gate's own code in a running server.

Put this folder on PYTHONPATH and name a file in GATE_SYNC_REPORT. Every call of the functions below runs with torch's
sync debug mode on; each warning it raises is a synchronisation. One that must be seen is counted first, as `control`.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import sys
import warnings
from collections import Counter
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

WORKER = "sglang_eagle3_patch.runtime.worker"
calls: Counter[str] = Counter()
syncs: Counter[str] = Counter()
where: dict[str, list[str]] = {}


def counted(name: str, function: Any) -> Any:
    """``function``, with the synchronisations of each call added to ``syncs[name]``."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        import torch

        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("warn")
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                return function(*args, **kwargs)
        finally:
            torch.cuda.set_sync_debug_mode(before)
            found = [w for w in caught if "synchroniz" in str(w.message)]
            calls[name] += 1
            syncs[name] += len(found)
            where.setdefault(name, []).extend(f"{os.path.basename(w.filename)}:{w.lineno}" for w in found[:3])

    return call


def install(worker: ModuleType) -> None:
    """Wrap our own functions, and one that must synchronise. The report is written every few steps."""
    from sglang_eagle3_patch.runtime.draft_sync import DraftSync
    from sglang_eagle3_patch.runtime.generations.base import Generation

    for owner, names in (
        (DraftSync, ("after_plain_step", "flush", "resume", "remember_prefill")),
        (Generation, ("plain_step",)),
    ):
        for name in names:
            setattr(owner, name, counted(name, getattr(owner, name)))
    control = counted("control", lambda: __import__("torch").zeros(1, device="cuda").item())
    init = worker.GatedWorkerMixin.build_plain_path

    def build(self: Any) -> None:
        init(self)
        control()

    worker.GatedWorkerMixin.build_plain_path = build
    step = worker.GatedWorkerMixin.forward_batch_generation
    steps = itertools.count()

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return step(self, *args, **kwargs)
        finally:
            if next(steps) % 8 == 0:
                report()

    worker.GatedWorkerMixin.forward_batch_generation = forward


def report() -> None:
    """Write what was counted so far; the scheduler is killed rather than ended."""
    with open(os.environ["GATE_SYNC_REPORT"], "w") as file:
        json.dump({"calls": calls, "syncs": syncs, "where": {k: sorted(set(v))[:8] for k, v in where.items()}}, file)


class AfterWorkerImport(MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname != WORKER:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is None or spec.loader is None:
            return None
        run_body = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run_body(module)
            install(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if os.environ.get("GATE_SYNC_REPORT"):
    sys.meta_path.insert(0, AfterWorkerImport())
