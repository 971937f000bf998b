"""The contract on the classes that a server really runs: it does not start where they differ (C2, C3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglang_eagle3_patch.contract.paths import generation_of, releases
from sglang_eagle3_patch.installer import series
from tests.cpu_reference import environment, tiny_models
from tests.e2e import trees
from tests.e2e.engine import run_engine
from tests.e2e.errors import EngineDied
from tests.e2e.workload import Request, greedy, prompt

RELEASE = "0.5.20"


@pytest.mark.e2e
def test_a_server_whose_classes_differ_does_not_start(tmp_path: Path) -> None:
    """The tree itself is as it was when the patch was applied; a plugin could have done this."""
    pair = tiny_models.pair()
    args = {
        "model_path": str(pair.target),
        **environment.eagle3_args(pair.draft),
        "speculative_disable_batch_threshold": 4,
    }
    tree = trees.patched(environment.tree(RELEASE), tmp_path / RELEASE)
    plant = {"CPU_REFERENCE_HOOKS": str(Path(__file__).with_name("plant_mismatches.py"))}
    with pytest.raises(EngineDied) as death:
        run_engine(tree, args, [Request(prompt(5, seed=1), greedy(8))], variables=plant)
    cause = death.value.cause
    assert f"EAGLE-3 batch gate: this SGLang is not what series v{RELEASE} was made for" in cause
    assert "eagle_worker_v2:EagleDraftWorker._draft_extend_for_decode" in cause
    assert "nearest: draft_extend_for_decode" in cause
    assert "model_runner:ModelRunner.sample" in cause
    assert "a further required parameter seed" in cause
    assert cause.count("expected") == 2  # nothing else is held to differ
    assert "start with --speculative-disable-batch-threshold 0" in cause
    assert "Decode batch" not in death.value.log


@pytest.mark.parametrize("release", releases())
def test_the_patched_worker_names_its_series(release: str) -> None:
    (edit,) = (edit for edit in series.load(release).edits if edit.id == "create-worker")
    assert f'worker_class(EAGLEWorkerV2, "{release}")' in edit.code
    assert generation_of(release) == series.load(release).generation
