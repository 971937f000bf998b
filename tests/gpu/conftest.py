"""Tests for a machine with an NVIDIA GPU and SGLang installed: `python -m pytest tests/gpu`. Elsewhere there are none.

The SGLang that this Python imports is copied, and the copy is patched: what is installed stays as it is.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cpu_reference import tiny_models
from tests.e2e import trees
from tests.e2e.host import Host, gpu

HAS_GPU = shutil.which("nvidia-smi") is not None
collect_ignore_glob = [] if HAS_GPU else ["test_*.py"]


def pytest_report_header() -> str:
    return f"tests/gpu: {'a GPU is there' if HAS_GPU else 'not collected, for no NVIDIA GPU is there'}"


@dataclass(frozen=True)
class Setup:
    """What engines on the GPU are started from: the installed SGLang, copied; the same, patched; the trained pair."""

    host: Host
    upstream: Path
    patched: Path
    target: Path
    draft: Path


@pytest.fixture(scope="session")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Setup:
    folder, python = tmp_path_factory.mktemp("sglang"), Path(sys.executable)
    upstream = trees.installed(python, folder / "upstream")
    pair = tiny_models.trained()
    assert pair is not None
    patched = trees.patched(upstream, folder / "patched", python)
    return Setup(gpu(python), upstream, patched, pair.target, pair.draft)
