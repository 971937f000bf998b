"""One release on the CPU reference: the gate is crossed both ways, and the output stays that of no speculation."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.cpu_reference import environment, tiny_models
from tests.cpu_reference.tiny_models import TinyPair
from tests.e2e import trees
from tests.e2e.decode_log import read_steps
from tests.e2e.engine import Run, run_engine
from tests.e2e.host import Host, cpu, cpu_with_graphs
from tests.e2e.workload import Request, shrinking_then_growing
from tests.models.prompts import KEYS, continuation, text

THRESHOLD = 4
LEAST_STEPS = 20  # of each kind
LEAST_RESUMES = 2
LEAST_ACCEPT_LENGTH = 3.0  # of the trained pair, at most 4; 1.6 if plain steps gave its draft no hidden states
# Of the batches from 8 to 1, two are larger than any size and run without a graph; two lie between and are padded.
GRAPH_SIZES = (1, 2, 4, 6)


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
    expected = run_engine(environment.tree(release), {"model_path": str(pair.target)}, work).outputs
    return _counted(_gated(release, pair, work, cpu()), expected)


def cross_with_graphs(release: str) -> dict[str, Any]:
    """As ``cross``, with SGLang's graph runners over the stand-in for CUDA graphs, and with the trained pair.

    That pair's draft needs the hidden states that a plain graph captures, and its target says what the language's rule
    says, so there is nothing to compare with.

    Returns:
        What ``cross`` returns, accept_length, and how many steps ran in a graph: plain_graphs, speculative_graphs.

    Raises:
        Differs, EngineDied: as ``cross``; also where speculation is not worth what the pair makes it.
    """
    pair = tiny_models.trained()
    assert pair is not None, "the trained pair of tests/models is missing"
    work = shrinking_then_growing(8, say=lambda length, seed: text(random.Random(seed), 2 * KEYS + length))
    expected = [continuation(request.input_ids, request.sampling["max_new_tokens"]) for request in work]
    run = _gated(release, pair, work, cpu_with_graphs(GRAPH_SIZES))
    counted = _counted(run, expected)
    steps = read_steps(run.log)
    found = Counter((before.mode, step.graph) for before, step in pairwise(steps))  # a mode is one line early
    in_graphs = {f"{mode}_graphs": found[mode, True] for mode in ("plain", "speculative")}
    if min(in_graphs.values()) < LEAST_STEPS or not found["plain", False]:
        raise Differs(f"too few steps in graphs, or none that is too large for one: {dict(found)}")
    accept_length = round(run.internal_state["avg_spec_accept_length"], 2)
    if accept_length < LEAST_ACCEPT_LENGTH:
        raise Differs(f"an acceptance length of {accept_length}, less than {LEAST_ACCEPT_LENGTH}")
    return {**counted, **in_graphs, "accept_length": accept_length}


def _gated(release: str, pair: TinyPair, work: Sequence[Request], host: Host) -> Run:
    with tempfile.TemporaryDirectory(prefix=f"sglang-{release}-") as folder:
        tree = trees.patched(environment.tree(release), Path(folder) / release)
        args = {"model_path": str(pair.target), **environment.eagle3_args(pair.draft)}
        return run_engine(tree, {**args, "speculative_disable_batch_threshold": THRESHOLD}, work, host=host)


def _counted(run: Run, expected: list[list[int]]) -> dict[str, int]:
    if run.outputs != expected:
        wrong = sum(ours != theirs for ours, theirs in zip(run.outputs, expected, strict=True))
        raise Differs(f"{wrong} of {len(expected)} outputs differ from no speculation")
    counted = {name: run.gate[name] for name in ("plain_steps", "speculative_steps", "switches", "resumes")}
    steps = min(counted["plain_steps"], counted["speculative_steps"])
    if steps < LEAST_STEPS or counted["resumes"] < LEAST_RESUMES:
        raise Differs(f"too few steps of a kind, or resumes: {counted}")
    return counted
