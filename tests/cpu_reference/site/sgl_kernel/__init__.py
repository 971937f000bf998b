"""Stands in for the package of compiled kernels: the names SGLang imports, ours behind them."""

from typing import Any

import torch
from cpu_reference.amx_attention import decode_attention_cpu, extend_attention_cpu
from cpu_reference.sampling import (
    top_k_renorm_prob,
    top_p_renorm_prob,
    tree_speculative_sampling_target_only,
)
from cpu_reference.slots import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    build_draft_decode_metadata_cpu,
    copy_all_layer_kv_cache_cpu,
    fill_accept_out_cache_loc_cpu,
    fill_bonus_tokens_cpu,
    rotate_input_ids_cpu,
)
from cpu_reference.tree import build_tree as build_tree_kernel_efficient
from cpu_reference.tree import verify_tree_greedy

build_tree_kernel_efficient_cpu = build_tree_kernel_efficient
verify_tree_greedy_cpu = verify_tree_greedy

__all__ = [
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_draft_decode_metadata_cpu",
    "build_tree_kernel_efficient",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "rotate_input_ids_cpu",
    "top_k_renorm_prob",
    "top_p_renorm_prob",
    "tree_speculative_sampling_target_only",
    "verify_tree_greedy",
    "verify_tree_greedy_cpu",
]

torch.ops.sgl_kernel.extend_attention_cpu = extend_attention_cpu
torch.ops.sgl_kernel.decode_attention_cpu = decode_attention_cpu


def __getattr__(name: str) -> Any:
    """Early releases import many kernels that text on CPU never calls; calling one says which is missing."""
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"CPU reference: no stand-in for sgl_kernel.{name}; add one in tests/cpu_reference")

    return missing
