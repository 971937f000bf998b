"""A threshold that can't work is refused while arguments are parsed, by the server's own parser."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cpu_reference import environment
from tests.e2e.conftest import Setup

pytestmark = pytest.mark.e2e
FLAG = "--speculative-disable-batch-threshold"

# Parses each command line as the server does, and says what came of it.
PARSE = """
import contextlib, io, json, sys
from sglang.srt.arg_groups.overrides import resolving_view
from sglang.srt.server_args import prepare_server_args

def parse(argv):
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            args = prepare_server_args(argv)
            args.resolve_once()
    except (Exception, SystemExit) as error:
        return {"refused": f"{error} {errors.getvalue()}"}
    names = "speculative_disable_batch_threshold", "speculative_fallback_draft_sync", "max_running_requests"
    return {name: getattr(resolving_view(args), name, None) for name in names}

json.dump([parse(argv) for argv in json.load(sys.stdin)], open(sys.argv[1], "w"))
"""


def parse(tree: Path, lines: list[list[str]], folder: Path) -> list[dict[str, Any]]:
    """What the server's parser makes of each command line: the arguments of interest, or how it refused."""
    result = folder / "parsed.json"
    command = [str(environment.python()), "-c", PARSE, str(result)]
    subprocess.run(
        command,
        input=json.dumps(lines),
        env=environment.variables(tree),
        cwd=folder,
        text=True,
        check=True,
        capture_output=True,
    )
    parsed: list[dict[str, Any]] = json.loads(result.read_text())
    return parsed


def command_line(setup: Setup, *more: str, without: str | None = None) -> list[str]:
    """A server's flags with EAGLE-3, ``more`` of them, and without one of the pairs."""
    flags = {
        "--model-path": setup.target,
        "--device": "cpu",
        "--attention-backend": "intel_amx",
        "--speculative-algorithm": "EAGLE3",
        "--speculative-draft-model-path": setup.draft,
        "--speculative-num-steps": 3,
        "--speculative-eagle-topk": 1,
        "--speculative-num-draft-tokens": 4,
    }
    return [str(part) for name, value in flags.items() if name != without for part in (name, value)] + list(more)


REFUSALS = {
    "negative": ([FLAG, "-1"], "is '-1': give a whole number of requests, 0 or larger"),
    "not an integer": ([FLAG, "4.5"], "is '4.5': give a whole number of requests, 0 or larger"),
    "not a number": ([FLAG, "many"], "is 'many': give a whole number of requests, 0 or larger"),
    "n-gram": ([FLAG, "4", "--speculative-algorithm", "NGRAM"], "needs EAGLE speculation: add --speculative-algorithm"),
    "DP attention": ([FLAG, "4", "--tp", "2", "--dp", "2", "--enable-dp-attention"], "drop one of the two"),
    "multi-layer": ([FLAG, "4", "--enable-multi-layer-eagle"], "can't run with --enable-multi-layer-eagle"),
    "adaptive": ([FLAG, "4", "--speculative-adaptive"], "can't run with --speculative-adaptive"),
    "pipeline": ([FLAG, "4", "--pp-size", "2"], "can't run with pipeline parallelism: set --pp-size 1"),
    "disaggregation": ([FLAG, "4", "--disaggregation-mode", "decode"], "drop --disaggregation-mode"),
    "draft sync": (["--speculative-fallback-draft-sync", "some"], "invalid choice: 'some'"),
}


@pytest.fixture(scope="module")
def parsed(setup: Setup, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """All command lines of this file, parsed by one process."""
    lines = {name: command_line(setup, *more) for name, (more, _) in REFUSALS.items()}
    lines["no speculation"] = [*command_line(setup)[:6], FLAG, "4"]
    lines["no draft"] = command_line(setup, FLAG, "4", without="--speculative-draft-model-path")
    lines["off"] = command_line(setup)
    lines["on"] = command_line(setup, FLAG, "4")
    lines["explicit"] = command_line(setup, FLAG, "4", "--max-running-requests", "20")
    lines["plain"] = command_line(setup)[:6]
    folder = tmp_path_factory.mktemp("parse")
    return dict(zip(lines, parse(setup.patched, list(lines.values()), folder), strict=True))


@pytest.mark.parametrize("name", REFUSALS)
def test_refused(parsed: dict[str, dict[str, Any]], name: str) -> None:
    assert REFUSALS[name][1] in parsed[name]["refused"]


def test_refused_without_speculation_and_without_a_draft(parsed: dict[str, dict[str, Any]]) -> None:
    assert f"{FLAG} 4 needs EAGLE speculation: add" in parsed["no speculation"]["refused"]
    assert f"{FLAG} 4 needs a draft model: add --speculative-draft-model-path" in parsed["no draft"]["refused"]


def test_off_by_default_and_on(parsed: dict[str, dict[str, Any]]) -> None:
    assert parsed["off"]["speculative_disable_batch_threshold"] == 0
    assert parsed["off"]["speculative_fallback_draft_sync"] == "auto"
    assert parsed["on"]["speculative_disable_batch_threshold"] == 4


def test_running_requests_are_not_cut(parsed: dict[str, dict[str, Any]]) -> None:
    assert parsed["off"]["max_running_requests"] == 48  # upstream's cut
    assert parsed["on"]["max_running_requests"] == parsed["plain"]["max_running_requests"] is None
    assert parsed["explicit"]["max_running_requests"] == 20


def test_the_server_refuses_with_the_sentence_and_help_shows_the_flag(setup: Setup) -> None:
    refused = launch(setup.patched, *command_line(setup, FLAG, "-1"))
    assert refused.returncode == 2
    assert (
        refused.stderr.strip()
        .splitlines()[-1]
        .endswith(
            f"argument {FLAG}: {FLAG} is '-1': give a whole number of requests, 0 or larger (0 turns the gate off)."
        )
    )
    assert FLAG in launch(setup.patched, "--help").stdout


def launch(tree: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [str(environment.python()), "-m", "sglang.launch_server", *flags]
    env = environment.variables(tree) | {"COLUMNS": "200"}
    return subprocess.run(command, env=env, cwd=os.sep, text=True, capture_output=True, check=False, timeout=300)
