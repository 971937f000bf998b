"""One release on the CPU reference: the gate is crossed both ways, and the output stays that of no speculation."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.cpu_reference import environment, tiny_models
from tests.e2e import trees
from tests.e2e.engine import run_engine
from tests.e2e.workload import shrinking_then_growing

THRESHOLD = 4
LEAST_STEPS = 20  # of each kind
LEAST_RESUMES = 2


class Differs(Exception):
    """The run ended well and was not what it has to be; the sentence says how."""


def cross(release: str) -> dict[str, int]:
    """Serve a batch that shrinks from 8 to 1 and grows again, with and without the gate, overlap scheduler on.

    An engine that ended well has counted its KV slots while it was idle: none was missing.

    Returns:
        What the gate counted: plain_steps, speculative_steps, switches, resumes.

    Raises:
        Differs: other output than without speculation, or too few steps of a kind.
        EngineDied: the engine ended before it had answered; its own error is in it.
    """
    pair, work = tiny_models.pair(), shrinking_then_growing(8)
    upstream = environment.tree(release)
    expected = run_engine(upstream, {"model_path": str(pair.target)}, work).outputs
    with tempfile.TemporaryDirectory(prefix=f"sglang-{release}-") as folder:
        tree = trees.patched(upstream, Path(folder) / release)
        args = {"model_path": str(pair.target), **environment.eagle3_args(pair.draft)}
        run = run_engine(tree, {**args, "speculative_disable_batch_threshold": THRESHOLD}, work)
    if run.outputs != expected:
        wrong = sum(ours != theirs for ours, theirs in zip(run.outputs, expected, strict=True))
        raise Differs(f"{wrong} of {len(expected)} outputs differ from no speculation")
    counted = {name: run.gate[name] for name in ("plain_steps", "speculative_steps", "switches", "resumes")}
    steps = min(counted["plain_steps"], counted["speculative_steps"])
    if steps < LEAST_STEPS or counted["resumes"] < LEAST_RESUMES:
        raise Differs(f"too few steps of a kind, or resumes: {counted}")
    return counted
