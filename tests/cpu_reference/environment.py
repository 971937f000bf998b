"""The interpreter, the variables and the server arguments of a CPU run, for any SGLang tree."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from packaging.version import Version

from tests import trees

ROOT = trees.REPOSITORY
CACHE = trees.CACHE
_SITE = Path(__file__).resolve().parent / "site"
_TRANSFORMERS_4 = CACHE / "overlay-transformers4"
# With this variable SGLang runs its CUDA graph runners, over the stand-in for CUDA graphs.
GRAPHS = {"CPU_REFERENCE_GRAPHS": "1"}

# From here on SGLang's intel_amx backend drafts and verifies; before, only the triton backend does.
_FIRST_WITH_AMX_SPECULATION = Version("0.5.16")
_FIRST_WITH_SPEC_V2_ON = Version("0.5.11")
_FIRST_WITH_GRAPH_SIZES_PER_PHASE = Version("0.5.14")


def tree(release: str) -> Path:
    """The pristine tree of a release, fetched and unpacked if it is not there yet. Copy it before you patch it."""
    return trees.unpacked(release)


def python() -> Path:
    """The interpreter that has SGLang's dependencies.

    Raises:
        FileNotFoundError: the environment is not there.
    """
    path = CACHE / "venv" / "bin" / "python"
    if not path.exists():
        raise FileNotFoundError("The environment .cache/venv is missing; run scripts/make_env.sh.")
    return path


def release_of(tree: Path) -> Version:
    """The release that a tree says it is.

    Raises:
        ValueError: ``tree`` holds no SGLang that says so.
    """
    version_file = tree / "sglang" / "_version.py"
    text = version_file.read_text() if version_file.exists() else ""
    found = re.search(r"^__version__ = .*?['\"]([^'\"]+)['\"]", text, re.M)
    if not found:
        raise ValueError(f"{version_file} names no version; is {tree} a folder with SGLang's package in it?")
    return Version(found[1])


def variables(tree: Path) -> dict[str, str]:
    """All environment variables for a process that runs the SGLang of ``tree`` on the CPU reference."""
    paths = [tree, _SITE, ROOT]
    if _needs_transformers_4(tree):
        if not _TRANSFORMERS_4.is_dir():
            raise FileNotFoundError(f"transformers 4 is missing; run scripts/make_env.sh {release_of(tree)}.")
        paths.insert(0, _TRANSFORMERS_4)
    opt_in = {"SGLANG_ENABLE_SPEC_V2": "1"} if release_of(tree) < _FIRST_WITH_SPEC_V2_ON else {}
    return {
        **os.environ,
        **opt_in,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "SGLANG_USE_CPU_ENGINE": "1",
        "TRITON_INTERPRET": "1",  # SGLang's small Triton kernels run on the CPU
        "OMP_NUM_THREADS": "1",  # and keep one summation order, whatever the machine
        "TORCHDYNAMO_DISABLE": "1",
        "HF_HUB_OFFLINE": "1",
        "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_IDLE": "1",  # a lost KV slot ends the engine
        "PYTHONUNBUFFERED": "1",
    }


def rank_variables(ranks: int) -> dict[str, str]:
    """Variables on top, for a server with ``tp_size`` ranks: SGLang wants cores named for each on a small machine.

    It does nothing with them: what pins threads is a compiled kernel, which is not here.
    """
    return {"SGLANG_CPU_OMP_THREADS_BIND": "|".join(str(rank) for rank in range(ranks))}


def server_args(tree: Path, **over: Any) -> dict[str, Any]:
    """Server arguments for a small CPU run of ``tree``; ``over`` adds to them and replaces them."""
    amx = release_of(tree) >= _FIRST_WITH_AMX_SPECULATION
    return {
        "device": "cpu",
        "attention_backend": "intel_amx" if amx else "triton",
        "dtype": "float32",
        "skip_tokenizer_init": True,
        "max_total_tokens": 4096,
        "max_running_requests": 16,
        "mem_fraction_static": 0.1,
        "disable_cuda_graph": True,
        "random_seed": 1,
        "page_size": 1,
        "context_length": 1024,
        "skip_server_warmup": True,
        "watchdog_timeout": 600,
        "log_level": "info",
        "decode_log_interval": 1,
        **over,
    }


def graph_args(tree: Path, sizes: Sequence[int]) -> dict[str, Any]:
    """Server arguments that have decode graphs captured for these batch sizes; see ``GRAPHS``."""
    per_phase = release_of(tree) >= _FIRST_WITH_GRAPH_SIZES_PER_PHASE
    return {
        "attention_backend": "triton",  # its graph methods work on any device
        "disable_cuda_graph": False,
        "cuda_graph_bs_decode" if per_phase else "cuda_graph_bs": list(sizes),
    }


def eagle3_args(draft: Path, *, steps: int = 3, topk: int = 1, draft_tokens: int | None = None) -> dict[str, Any]:
    """Server arguments that turn EAGLE-3 on. ``draft_tokens`` defaults to the whole chain, ``steps + 1``."""
    return {
        "speculative_algorithm": "EAGLE3",
        "speculative_draft_model_path": str(draft),
        "speculative_num_steps": steps,
        "speculative_eagle_topk": topk,
        "speculative_num_draft_tokens": draft_tokens or steps + 1,
    }


def _needs_transformers_4(tree: Path) -> bool:
    metadata = tree.glob("sglang-*.dist-info/METADATA")
    return any("\nRequires-Dist: transformers==4" in file.read_text() for file in metadata)
