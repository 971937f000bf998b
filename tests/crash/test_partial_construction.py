"""A failure anywhere in start-up ends the engine as itself (C2), and no attribute of ours is undefined then (C1)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sglang_eagle3_patch.contract import schema
from sglang_eagle3_patch.contract.classes import facts_of
from tests.cpu_reference import environment, tiny_models
from tests.e2e.engine import run_engine
from tests.e2e.errors import EngineDied
from tests.e2e.workload import Request, greedy, prompt

pytestmark = [pytest.mark.crash, pytest.mark.e2e]

PLANT = Path(__file__).with_name("plant.py")
WORKER = Path(schema.__file__).parents[1] / "runtime" / "worker.py"
N = 4

UPSTREAM = "sglang.srt.speculative.eagle_worker_v2:EagleDraftWorker."
OURS = [
    "sglang_eagle3_patch.runtime.worker:DraftSync.build",
    "sglang_eagle3_patch.runtime.worker:Generation.capture_plain_graphs",
]
POINTS = {
    "0.5.9": [
        UPSTREAM + "__init__",
        # One constructor does it all here: its pools are allocated by the model runner that it builds.
        "sglang.srt.model_executor.model_runner:ModelRunner.init_memory_pool",
        UPSTREAM + "init_attention_backend",
        UPSTREAM + "init_cuda_graphs",
        *OURS,
    ],
    "0.5.20": [
        UPSTREAM + "__init__",
        UPSTREAM + "alloc_memory_pool",
        UPSTREAM + "init_attention_backends",
        UPSTREAM + "init_cuda_graphs",
        *OURS,
    ],
}


def attributes_of_ours() -> set[str]:
    """Every attribute that an instance of the gated worker is given by our half of it."""
    (facts,) = (facts for facts in facts_of(WORKER) if facts.name == "GatedWorkerMixin")
    return {*facts.first, *facts.late, *facts.elsewhere}


@pytest.mark.parametrize(
    ("release", "point"),
    [
        pytest.param(release, point, id=f"{release}-{point.partition(':')[2]}")
        for release, points in POINTS.items()
        for point in points
    ],
)
def test_a_failure_at_start_up(release: str, point: str, patched: Callable[[str], Path], tmp_path: Path) -> None:
    pair = tiny_models.pair()
    args = {
        "model_path": str(pair.target),
        **environment.eagle3_args(pair.draft),
        "speculative_disable_batch_threshold": N,
    }
    report = tmp_path / "report.json"
    variables = {
        "CPU_REFERENCE_HOOKS": str(PLANT),
        "PLANT_POINT": point,
        "PLANT_ATTRIBUTES": ",".join(sorted(attributes_of_ours())),
        "PLANT_REPORT": str(report),
    }
    with pytest.raises(EngineDied) as death:
        run_engine(patched(release), args, [Request(prompt(5, seed=1), greedy(8))], variables=variables)

    assert death.value.cause == f"LookupError: planted in {point.partition(':')[2]}"
    assert death.value.status is not None  # it ended by itself
    assert f"EAGLE-3 batch gate: threshold={N} (on" in death.value.log  # said before anything could fail
    assert "Decode batch" not in death.value.log  # nothing went on with what was left

    (worker,) = json.loads(report.read_text())
    assert set(worker) == attributes_of_ours()
    assert [name for name, value in worker.items() if value is None] == []
    assert worker["plain_graphs"] == "None"  # the cut came before the end: this is no finished worker
