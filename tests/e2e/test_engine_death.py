"""An engine that dies says why; an engine that hangs leaves no process behind."""

from __future__ import annotations

import os
from pathlib import Path
from textwrap import dedent

import pytest

from tests.cpu_reference import environment, tiny_models
from tests.e2e.engine import run_engine, run_server
from tests.e2e.errors import EngineDied
from tests.e2e.workload import Request, greedy, prompt

pytestmark = pytest.mark.e2e
RELEASE = "0.5.20"
HOOKS_VARIABLE = "CPU_REFERENCE_HOOKS"


def break_with(folder: Path, hook: str, module: str) -> dict[str, str]:
    """Variables that make every process run ``hook``, the body of ``def hook(module)``, once ``module`` is imported."""
    file = folder / "hooks.py"
    body = dedent(hook).strip().replace("\n", "\n    ")
    file.write_text(f"def hook(module):\n    {body}\n\nHOOKS = {{{module!r}: hook}}\n")
    return {HOOKS_VARIABLE: str(file)}


def serve(variables: dict[str, str], *, over_http: bool = False, timeout_s: float = 300.0) -> None:
    pair = tiny_models.pair()
    args = {"model_path": str(pair.target), **environment.eagle3_args(pair.draft)}
    run = run_server if over_http else run_engine
    run(
        environment.tree(RELEASE),
        args,
        [Request(prompt(5, seed=1), greedy(8))],
        variables=variables,
        timeout_s=timeout_s,
    )


def test_a_lost_kv_slot_ends_the_run(tmp_path: Path) -> None:
    lose_one = """
        original = module.Scheduler.process_batch_result
        lost = []
        def process(self, *args, **kwargs):
            if not lost:
                lost.append(self.token_to_kv_pool_allocator.alloc(1))
            return original(self, *args, **kwargs)
        module.Scheduler.process_batch_result = process
    """
    with pytest.raises(EngineDied, match="leak"):
        serve(break_with(tmp_path, lose_one, "sglang.srt.managers.scheduler"))


@pytest.mark.parametrize("over_http", [False, True], ids=["engine", "http"])
def test_an_error_in_a_step_is_the_error_reported(tmp_path: Path, over_http: bool) -> None:
    fail = """
        def forward(self, *args, **kwargs):
            raise LookupError("planted in the step")
        module.EAGLEWorkerV2.forward_batch_generation = forward
    """
    variables = break_with(tmp_path, fail, "sglang.srt.speculative.eagle_worker_v2")
    with pytest.raises(EngineDied) as death:
        serve(variables, over_http=over_http)
    assert death.value.cause == "LookupError: planted in the step"


def test_a_hanging_engine_is_ended_with_all_its_processes(tmp_path: Path) -> None:
    hang = """
        import time
        def forward(self, *args, **kwargs):
            print("planted hang", flush=True)
            time.sleep(10**6)
        module.EAGLEWorkerV2.forward_batch_generation = forward
    """
    variables = break_with(tmp_path, hang, "sglang.srt.speculative.eagle_worker_v2")
    with pytest.raises(EngineDied, match="not done after 90 s") as death:
        serve(variables, timeout_s=90.0)
    assert "planted hang" in death.value.log  # it was up, and hung
    assert not processes_with(variables[HOOKS_VARIABLE])


def processes_with(text: str) -> list[int]:
    """Ids of the processes whose environment has ``text``."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if text.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found
