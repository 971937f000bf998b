"""A resume is worth what speculation was: acceptance after plain steps, on the trained pair (bench_resume.py)."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import models
from tests.cpu_reference import environment
from tests.e2e.conftest import Setup

pytestmark = pytest.mark.e2e

REPOSITORY = Path(__file__).resolve().parents[2]
PLAIN_STEPS = (1, 10, 100, 500)
LATE = 20  # steps


@pytest.fixture(scope="module")
def record(setup: Setup, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One run of the script on the CPU reference."""
    out = tmp_path_factory.mktemp("resume")
    args = environment.server_args(setup.patched, context_length=1024)
    command = [
        *(str(environment.python()), "scripts/bench_resume.py", "--out", str(out)),
        *("--model", str(models.TARGET), "--draft", str(models.DRAFT)),
        *("--count", "8", "--threshold", "8", "--plain-steps", ",".join(map(str, PLAIN_STEPS))),
    ]
    for name, value in {**args, "max_total_tokens": 16384, "max_running_requests": 17}.items():
        command += ["--engine-arg", f"{name}={json.dumps(value)}"]
    variables = {**environment.variables(setup.patched), "PATH": os.environ["PATH"]}
    done = subprocess.run(command, cwd=REPOSITORY, env=variables, capture_output=True, text=True, timeout=900)
    logs = "".join(log.read_text()[-2000:] for log in out.glob("*.log"))
    assert done.returncode == 0, done.stdout + done.stderr + logs
    found: dict[str, Any] = json.loads((out / "resume.json").read_text())
    return found


def accept_length(record: dict[str, Any], server: str, plain_steps: int) -> float:
    (length,) = [
        float(sample["accept_length"])
        for sample in record["samples"]
        if sample["server"] == server and sample["plain_steps"] == plain_steps
    ]
    return length


def test_every_request_went_through_the_plain_steps(record: dict[str, Any]) -> None:
    # Requests arrive one by one: on a busy machine some join the plain steps a few late. A truncated last verify counts
    # as a plain step or two more.
    seen = {s["plain_steps"]: s["plain_seen"] for s in record["samples"] if s["server"] == "gated"}
    assert list(seen) == list(PLAIN_STEPS)
    for steps, (fewest, most) in seen.items():
        assert steps - LATE <= fewest <= most <= steps + 4
    assert record["same_outputs"]["gated"] == "32 of 32"


@pytest.mark.parametrize("plain_steps", PLAIN_STEPS)
def test_acceptance_is_that_of_a_server_that_never_fell_back(record: dict[str, Any], plain_steps: int) -> None:
    always = accept_length(record, "always", plain_steps)
    assert always > 2.5
    assert accept_length(record, "gated", plain_steps) >= 0.98 * always


@pytest.mark.parametrize("plain_steps", [100, 500])
def test_without_the_sync_it_is_lost(record: dict[str, Any], plain_steps: int) -> None:
    # The language looks 48 tokens back: a gap of 1 or 10 steps can't cost that much.
    assert accept_length(record, "off", plain_steps) < 0.6 * accept_length(record, "always", plain_steps)
