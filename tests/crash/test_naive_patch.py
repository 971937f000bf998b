"""The report: an attribute assigned in ``EagleDraftWorker.__init__`` and read in ``EAGLEWorkerV2``, on SGLang 0.5.9."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cpu_reference import environment, tiny_models
from tests.e2e import trees
from tests.e2e.decode_log import read_steps
from tests.e2e.engine import Run, run_engine
from tests.e2e.errors import EngineDied
from tests.e2e.workload import Request, greedy, prompt

pytestmark = [pytest.mark.crash, pytest.mark.e2e]
RELEASE = "0.5.9"
N = 2
LENGTHS = [6, 14, 22, 30]

# What the report's patch did, at the places where it did it: the line before, and the lines added after it.
NAIVE = [
    (  # the last line of the draft worker's constructor
        "        self.plan_stream, self.plan_stream_ctx = _get_plan_stream(self.device)\n\n    def init_token_map",
        "        self.plan_stream, self.plan_stream_ctx = _get_plan_stream(self.device)\n"
        '        self.spec_disable_batch_threshold = getattr(server_args, "speculative_disable_batch_threshold", 0)\n'
        "        if self.spec_disable_batch_threshold > 0:\n"
        '            logger.info("Dynamic speculation disable")\n\n    def init_token_map',
    ),
    (  # a decode step of the other class
        "        else:\n            if model_worker_batch.spec_info is None:\n",
        "        else:\n"
        "            if 0 < self.spec_disable_batch_threshold < len(model_worker_batch.seq_lens):\n"
        "                pass  # would decode without speculation\n"
        "            if model_worker_batch.spec_info is None:\n",
    ),
]


def serve(tree: Path, **over: object) -> Run:
    pair = tiny_models.pair()
    args = {"model_path": str(pair.target), **environment.eagle3_args(pair.draft), **over}
    return run_engine(tree, args, [Request(prompt(5, seed=length), greedy(length)) for length in LENGTHS])


def test_the_naive_patch_dies_on_the_first_decode(tmp_path: Path) -> None:
    tree = trees.copy(environment.tree(RELEASE), tmp_path / "tree")
    file = tree / "sglang" / "srt" / "speculative" / "eagle_worker_v2.py"
    source = file.read_text()
    for before, after in NAIVE:
        assert source.count(before) == 1
        source = source.replace(before, after)
    file.write_text(source)

    with pytest.raises(EngineDied) as death:
        serve(tree)

    cause = "AttributeError: 'EAGLEWorkerV2' object has no attribute 'spec_disable_batch_threshold'"
    assert death.value.cause == cause
    log = death.value.log
    assert "max_total_num_tokens=" in log  # construction ended well: the scheduler was up and took the requests,
    assert "forward_batch_generation" in log  # the prefill ran in the same method's other branch,
    assert not read_steps(log)  # and no decode step ever ended
    assert "Dynamic speculation disable" not in log  # silent, for the threshold was 0: off looks like absent


def test_our_patch_on_the_same_release_serves(patched: Callable[[str], Path]) -> None:
    run = serve(patched(RELEASE), speculative_disable_batch_threshold=N)
    assert [len(tokens) for tokens in run.outputs] == LENGTHS
    assert {step.mode for step in read_steps(run.log)} == {"plain", "speculative"}
    assert f"EAGLE-3 batch gate: threshold={N} (on" in run.log


def test_off_is_said_too(patched: Callable[[str], Path]) -> None:
    run = serve(patched(RELEASE))
    assert [len(tokens) for tokens in run.outputs] == LENGTHS
    assert {step.mode for step in read_steps(run.log)} == {None}
    assert "EAGLE-3 batch gate: threshold=0 (off)" in run.log
