"""scripts/launch_server.sh: what it hands to SGLang, and what it says when something is missing."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.cpu_reference import environment
from tests.e2e import trees

SCRIPT = environment.ROOT / "scripts" / "launch_server.sh"
PARSE = """
import json, sys
from sglang.srt.server_args import ServerArgs
import argparse
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
print(json.dumps(vars(parser.parse_args(sys.argv[1:])), default=str))
"""


@pytest.fixture(scope="module")
def patched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trees.patched(environment.tree("0.5.20"), tmp_path_factory.mktemp("launch") / "tree")


def launch(tree: Path, folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the script with an interpreter that, asked for the server, only parses what the server would have parsed."""
    python = folder / "python"
    real, parse = environment.python(), folder / "parse.py"
    parse.write_text(PARSE)
    python.write_text(f'#!/bin/sh\n[ "$1" = -c ] && exec {real} "$@"\nshift 2\nexec {real} {parse} "$@"\n')
    python.chmod(0o755)
    path = f"{real.parent}{os.pathsep}{os.environ['PATH']}"
    env = environment.variables(tree) | {"PYTHON": str(python), "PATH": path} | variables
    return subprocess.run([SCRIPT, *arguments], env=env, capture_output=True, text=True, check=False)


@pytest.mark.e2e
def test_sglang_takes_every_flag(patched: Path, tmp_path: Path) -> None:
    done = launch(patched, tmp_path, "target", "draft", "--max-running-requests", "256", THRESHOLD="48", STEPS="2")
    assert done.returncode == 0, done.stderr
    args = json.loads(done.stdout)
    expected = {
        "model_path": "target",
        "tp_size": 8,
        "speculative_algorithm": "EAGLE3",
        "speculative_draft_model_path": "draft",
        "speculative_num_steps": 2,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 3,
        "speculative_disable_batch_threshold": 48,
        "max_running_requests": 256,
    }
    assert {name: args[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("arguments", "said"),
    [((), "No target model"), (("target",), "No draft model"), (("target", "--port", "1"), "No draft model")],
)
def test_a_missing_model_is_named(patched: Path, tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    done = launch(patched, tmp_path, *arguments)
    assert done.returncode == 2
    assert said in done.stderr


def test_an_unpatched_sglang_is_refused(tmp_path: Path) -> None:
    done = launch(environment.tree("0.5.20"), tmp_path, "target", "draft")
    assert done.returncode == 2
    assert "sglang-eagle3-patch apply" in done.stderr
