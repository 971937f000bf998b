"""Nothing of ours in a step makes the CPU wait for the device, as far as that shows without one (see tests/gpu too)."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.cpu_reference import environment


@pytest.fixture(scope="module")
def waits() -> dict[str, list[str]]:
    """Per kind of draft, the operations that wait; SGLang's classes are those of a real tree."""
    command = [str(environment.python()), "-m", "tests.runtime.step_without_data"]
    variables = environment.variables(environment.tree("0.5.20"))
    done = subprocess.run(command, env=variables, cwd=environment.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr  # a value that the CPU reads ends it
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("draft", ["llama", "mla", "full"])
def test_prefill_plain_steps_and_resume_do_not_wait(waits: dict[str, list[str]], draft: str) -> None:
    assert waits[draft] == []


@pytest.mark.parametrize("planted", ["index from the CPU", "upload of pageable memory", "fill from the CPU", "read"])
def test_what_waits_is_seen(waits: dict[str, list[str]], planted: str) -> None:
    assert len(waits[planted]) == 1
