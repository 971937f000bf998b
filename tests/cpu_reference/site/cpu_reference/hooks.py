"""What changes in which SGLang module, over all releases. A module that a release does not have is never hooked."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from . import amx_seq_lens
from .after_import import Hook


def torch_without_device_streams(torch: Any) -> None:
    """One CPU timeline needs no keep-alive and no device wait; SGLang asks for both without looking at the device."""
    record_stream = torch.Tensor.record_stream

    def record(tensor: Any, stream: Any) -> None:
        if tensor.device.type != "cpu":
            record_stream(tensor, stream)

    torch.Tensor.record_stream = record
    if not torch.cuda.is_available():
        torch.cuda.synchronize = lambda *args, **kwargs: None
        torch.cuda.empty_cache = lambda *args, **kwargs: None


def keep_intel_amx(overrides: Any) -> None:
    """Without AMX, SGLang falls back to torch_native, which has no draft backend. Our kernels need no AMX."""
    # The function sits in a registry by now, so its body is swapped in place.
    overrides._attention_backend_platform_fallbacks.__code__ = (lambda view: {}).__code__


def keep_overlap_schedule(speculative_hook: Any) -> None:
    """SGLang turns the overlap scheduler off on CPU as soon as speculation is on. Here it is what we want to run."""
    if hasattr(speculative_hook, "_disable_overlap_schedule_for_cpu"):  # from 0.5.16
        speculative_hook._disable_overlap_schedule_for_cpu.__code__ = (lambda server_args: None).__code__


def tree_kernels(module: Any) -> None:
    """``eagle_utils`` and, up to 0.5.13, ``eagle_info_v2``: build, verify and sample the draft tree."""
    from . import sampling, tree

    if hasattr(module, "_is_cpu"):  # from 0.5.16: CPU branches, greedy only
        sampling.sample_on_cpu(module)
        return
    # Before, the branches know GPUs only; the one for CUDA is the plainest.
    module._is_cuda = True
    module.sgl_build_tree_kernel_efficient = tree.build_tree
    module.top_k_renorm_prob = sampling.top_k_renorm_prob
    module.top_p_renorm_prob = sampling.top_p_renorm_prob
    module.tree_speculative_sampling_target_only = sampling.tree_speculative_sampling_target_only


def interpreted_slot_kernels(module: Any) -> None:
    """0.5.13 to 0.5.15: ``cache_locs`` runs its small Triton kernels for GPUs only, and does nothing otherwise."""
    module._is_cuda = True


def gather_rows(module: Any) -> None:
    """From 0.5.16: the relay between steps gathers rows with a Triton kernel, for which the interpreter takes ages."""

    def gather_spec_extras(indices: Any, *buffers: Any) -> tuple[Any, ...]:
        return tuple(None if buffer is None else buffer[indices] for buffer in buffers)

    module.gather_spec_extras = gather_spec_extras


def _triton_kernel(name: str) -> Hook:
    def hook(module: ModuleType) -> None:
        from . import triton_attention

        triton_attention.replace(module, name)

    return hook


_TRITON_OPS = "sglang.srt.layers.attention.triton_ops"
_KERNELS = "sglang.kernels.ops.attention"

HOOKS: dict[str, Callable[[Any], None]] = {
    "torch": torch_without_device_streams,
    # From 0.5.16: attention backend intel_amx
    "sglang.srt.arg_groups.overrides": keep_intel_amx,
    "sglang.srt.arg_groups.speculative_hook": keep_overlap_schedule,
    "sglang.srt.layers.attention.intel_amx_backend": amx_seq_lens.fix,
    "sglang.kernels.ops.speculative.gather_spec_extras": gather_rows,
    # Attention backend triton, up to 0.5.15 and for graphs
    f"{_TRITON_OPS}.extend_attention": _triton_kernel("extend_attention_fwd"),
    f"{_TRITON_OPS}.decode_attention": _triton_kernel("decode_attention_fwd"),
    f"{_KERNELS}.extend_attention": _triton_kernel("extend_attention_fwd"),
    f"{_KERNELS}.decode_attention": _triton_kernel("decode_attention_fwd"),
    "sglang.srt.speculative.triton_ops.cache_locs": interpreted_slot_kernels,
    # All
    "sglang.srt.speculative.eagle_utils": tree_kernels,
    "sglang.srt.speculative.eagle_info_v2": tree_kernels,
}
