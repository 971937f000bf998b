"""Where an SGLang runs: the CPU reference, or an installed SGLang with its GPU."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cpu_reference import environment


@dataclass(frozen=True)
class Host:
    """An interpreter with SGLang's dependencies, and what it takes to run a tree with it.

    Attributes:
        python: the interpreter.
        variables: for a tree, all environment variables of its processes.
        server_args: for a tree and arguments on top, all server arguments.
    """

    python: Path
    variables: Callable[[Path], dict[str, str]]
    server_args: Callable[..., dict[str, Any]]


def cpu() -> Host:
    """The CPU reference."""
    return Host(environment.python(), environment.variables, environment.server_args)


def cpu_with_graphs(sizes: Sequence[int]) -> Host:
    """The CPU reference with SGLang's CUDA graph runners, which capture these batch sizes."""
    return Host(
        environment.python(),
        lambda tree: environment.variables(tree) | environment.GRAPHS,
        lambda tree, **over: environment.server_args(tree, **environment.graph_args(tree, sizes), **over),
    )


def gpu(python: Path) -> Host:
    """The interpreter of somebody's own SGLang; a tree on PYTHONPATH goes before the installed one."""
    return Host(python, _gpu_variables, _gpu_server_args)


def _gpu_variables(tree: Path) -> dict[str, str]:
    paths = [str(tree), str(environment.ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}


def _gpu_server_args(tree: Path, **over: Any) -> dict[str, Any]:
    return {
        **environment.graph_args(tree, (1, 2, 4, 6, 8, 12, 16)),  # over triton, which takes the tiny pair's head size
        "dtype": "float16",  # the GPU's norm kernels take no float32
        "skip_tokenizer_init": True,
        "max_total_tokens": 65536,
        "max_running_requests": 16,
        "mem_fraction_static": 0.3,
        "random_seed": 1,
        "context_length": 1024,
        "log_level": "info",
        "decode_log_interval": 1,
        **over,
    }
