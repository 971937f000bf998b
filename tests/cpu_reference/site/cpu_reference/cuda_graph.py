"""``torch.cuda.CUDAGraph`` on a CPU: what ran while it captured, run again over the same tensors.

As on a GPU, a replay knows addresses, not Python: it repeats the captured operations on the captured tensors, and no
line of SGLang runs again. Whoever filled other buffers than those that were captured gets the wrong answer.

What a GPU has beyond this: intermediate results of different graphs share memory, and a replay runs beside the host.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# Operations that only make room: their result holds nothing yet.
_ALLOCATIONS = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
_READS = {"item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__"}
POOL = (0, 0)

Launch = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], Any]


class CpuGraph:
    """Stands in for ``torch.cuda.CUDAGraph``."""

    capturing: CpuGraph | None = None  # the graph that is being captured; there is one timeline

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        self._launches: list[Launch] = []

    def record(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Keep one operation, with the tensors that it read and those that it wrote."""
        self._launches.append((function, args, kwargs, result))

    def replay(self) -> None:
        """Run every captured operation again; each result goes where the captured one is."""
        with torch.inference_mode():
            for function, args, kwargs, captured in self._launches:
                _overwrite(captured, function(*args, **kwargs))

    def pool(self) -> tuple[int, int]:
        """The handle of its memory: there is one."""
        return POOL


def _overwrite(captured: Any, now: Any) -> None:
    for old, new in zip(tree_leaves(captured), tree_leaves(now), strict=True):
        if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
            old.copy_(new)


class _Recorder(TorchDispatchMode):  # type: ignore[misc]
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        graph = CpuGraph.capturing
        name = func.overloadpacket.__name__
        if graph is not None and name not in _ALLOCATIONS:  # views too: some, such as reshape, copy when they have to
            graph.record(func, args, kwargs, result)
        return result


class _NoValues(TorchFunctionMode):  # type: ignore[misc]
    """What the host reads would be a constant of the graph; a GPU refuses to wait for it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if CpuGraph.capturing is not None and getattr(func, "__name__", "") in _READS:
            raise RuntimeError(f"CPU reference: {func.__name__} is not permitted when stream is capturing")
        return func(*args, **(kwargs or {}))


@contextmanager
def capture(cuda_graph: CpuGraph, *_args: Any, **_kwargs: Any) -> Iterator[None]:
    """Stands in for ``torch.cuda.graph``."""
    CpuGraph.capturing = cuda_graph
    try:
        with _NoValues(), _Recorder():
            yield
    finally:
        CpuGraph.capturing = None


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """What a graph captures as one launch, whatever it does inside: it may read values and branch by them."""

    @functools.wraps(function)
    def launch(*args: Any, **kwargs: Any) -> Any:
        graph, CpuGraph.capturing = CpuGraph.capturing, None
        try:
            result = function(*args, **kwargs)
        finally:
            CpuGraph.capturing = graph
        if graph is not None:
            graph.record(function, args, kwargs, result)
        return result

    return launch


def triton_kernels(interpreter: ModuleType) -> None:
    """Interpreted Triton kernels are launches too."""
    executor: Any = interpreter.GridExecutor
    executor.__call__ = kernel(executor.__call__)


def install(torch: Any) -> None:
    """Put the stand-ins where SGLang looks for them: under ``torch.cuda`` and under the module of its device."""
    torch.cuda.CUDAGraph = CpuGraph
    for module in (torch.cuda, torch.cpu):
        module.graph = capture
        module.graph_pool_handle = lambda: POOL
        module.is_current_stream_capturing = lambda: CpuGraph.capturing is not None
    torch.cuda.mem_get_info = lambda *_args: (0, 0)
