"""SGLang's own CUDA graph runners on a CPU: only where SGLang asks which device it has, it hears 'cuda'.

Constructors, capture loops, padding, replay preparation and the attention backend's graph buffers are SGLang's own.
It takes the triton backend, whose graph methods work on any device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .after_import import Hook


@contextmanager
def _attribute(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _choosing(owner: str | None, *names: str) -> Hook:
    """Whichever of these a release has picks a model runner's graph runner by its device."""

    def hook(module: Any) -> None:
        place = module if owner is None else getattr(module, owner)
        for name in names:
            if hasattr(place, name):
                setattr(place, name, _as_on_a_gpu(getattr(place, name)))

    return hook


def _as_on_a_gpu(pick: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(pick)
    def picked(*args: Any, **kwargs: Any) -> Any:
        model_runner = args[0] if args else kwargs["model_runner"]
        with _attribute(model_runner, "device", "cuda"):
            return pick(*args, **kwargs)

    return picked


def _building(runner: str) -> Hook:
    """The picked runner: from its construction on, the device is what it is."""

    def hook(module: Any) -> None:
        def new(cls: type, owner: Any, *_args: Any, **_kwargs: Any) -> Any:
            owner.device = "cpu"
            return object.__new__(cls)

        getattr(module, runner).__new__ = new  # not __init__: the gate checks its parameters

    return hook


def _decode_runs_graphs(module: Any) -> None:
    """On a CPU only plain decoding may be in a graph; here it is what a GPU may."""
    module.ForwardMode.is_cpu_graph = module.ForwardMode.is_cuda_graph


def _draft_runs_graphs(module: Any) -> None:
    """The draft's two graph runners. Of the devices that have them, 'npu' asks for no compiled package."""
    draft = module.EagleDraftWorker
    name = "_capture_cuda_graphs" if hasattr(draft, "_capture_cuda_graphs") else "init_cuda_graphs"
    capture = getattr(draft, name)

    @functools.wraps(capture)
    def on_a_gpu(self: Any) -> None:
        module._is_cpu = False
        with _attribute(self.target_worker, "device", "cuda"), _attribute(module, "_is_npu", True):
            capture(self)

    setattr(draft, name, on_a_gpu)


def _full_tree_mask(module: Any) -> None:
    """On a CPU SGLang builds the mask of its CPU backend; triton wants the one of a GPU."""
    if hasattr(module, "default_tree_mask_mode"):
        module.default_tree_mask_mode = lambda: module.TreeMaskMode.FULL_MASK


def _memory(common: Any) -> None:
    """What is free is asked of the device that was heard."""
    available = common.get_available_gpu_memory

    @functools.wraps(available)
    def on_the_cpu(device: Any, *args: Any, **kwargs: Any) -> float:
        free: float = available("cpu", *args, **kwargs)
        return free

    common.get_available_gpu_memory = on_the_cpu


def _graphs(torch: Any) -> None:
    from . import cuda_graph  # not before torch itself: its hooks would come too late

    cuda_graph.install(torch)


def _triton_launches(interpreter: Any) -> None:
    from . import cuda_graph

    cuda_graph.triton_kernels(interpreter)


_EXECUTOR = "sglang.srt.model_executor"

HOOKS: dict[str, Hook] = {
    "torch": _graphs,
    "triton.runtime.interpreter": _triton_launches,
    "sglang.srt.utils.common": _memory,
    f"{_EXECUTOR}.forward_batch_info": _decode_runs_graphs,
    # Up to 0.5.15
    f"{_EXECUTOR}.model_runner": _choosing("ModelRunner", "init_device_graphs", "init_decode_cuda_graph"),
    # Up to 0.5.13
    f"{_EXECUTOR}.cuda_graph_runner": _building("CudaGraphRunner"),
    # From 0.5.14
    f"{_EXECUTOR}.runner.decode_cuda_graph_runner": _building("DecodeCudaGraphRunner"),
    # From 0.5.16
    f"{_EXECUTOR}.model_runner_components.cuda_graph_setup": _choosing(None, "capture_decode_graph"),
    "sglang.srt.speculative.eagle_utils": _full_tree_mask,
    "sglang.srt.speculative.eagle_worker_v2": _draft_runs_graphs,
}
