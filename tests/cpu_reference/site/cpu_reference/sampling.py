"""Sampled verification: temperature above 0, where SGLang's own CPU branch takes the argmax."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def top_k_renorm_prob(probs: Tensor, top_k: Tensor) -> Tensor:
    """[rows, vocab]: keep each row's ``top_k`` largest probabilities (ties stay), scaled to sum to 1."""
    descending = probs.sort(-1, descending=True).values
    last = (top_k.view(-1, 1).long().clamp(max=probs.shape[-1]) - 1).clamp(min=0)
    kept = probs.masked_fill(probs < descending.gather(-1, last), 0)
    return kept / kept.sum(-1, keepdim=True)


def top_p_renorm_prob(probs: Tensor, top_p: Tensor) -> Tensor:
    """[rows, vocab]: keep the most likely tokens until their sum reaches ``top_p``, scaled to sum to 1."""
    descending, order = probs.sort(-1, descending=True)
    keep = descending.cumsum(-1) - descending < top_p.view(-1, 1)
    kept = torch.zeros_like(probs).scatter(-1, order, descending * keep)
    return kept / kept.sum(-1, keepdim=True)


def tree_speculative_sampling_target_only(
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    uniform_samples: Tensor,
    uniform_samples_for_final_sampling: Tensor,
    target_probs: Tensor,
    draft_probs: Tensor,
    threshold_single: float = 1.0,
    threshold_acc: float = 1.0,
    deterministic: bool = True,
) -> None:
    """Accept a child once the target mass of the siblings tried so far covers the coin; at the stop draw the rest.

    ``target_probs`` [requests, n, vocab] per tree position; ``draft_probs``, the same shape, collects what was tried
    and refused, so that the final draw is from relu(target - draft). Other shapes: tree.py.
    """
    for row in range(candidates.shape[0]):
        node, accepted, mass = 0, 0, 0.0
        last, coin = int(retrive_index[row, 0]), float(uniform_samples[row, 0])
        accept_index[row, 0] = last
        while accepted + 1 < accept_index.shape[1]:
            child = int(retrive_next_token[row, node])
            while child != -1:
                token = int(candidates[row, child])
                probability = float(target_probs[row, node, token])
                mass += probability
                if coin <= mass / threshold_acc or probability >= threshold_single:
                    break
                draft_probs[row, node, token] = probability
                child = int(retrive_next_sibling[row, child])
            if child == -1:
                break
            predicts[last] = token
            node, accepted, mass = child, accepted + 1, 0.0
            last, coin = int(retrive_index[row, child]), float(uniform_samples[row, child])
            accept_index[row, accepted] = last
        accept_token_num[row] = accepted
        rest = target_probs[row, node]
        if accepted + 1 < accept_index.shape[1]:
            rest = (rest - draft_probs[row, node]).clamp(min=0)
        draw = float(uniform_samples_for_final_sampling[row]) * float(rest.sum())
        predicts[last] = min(int((rest.cumsum(-1) <= draw).sum()), int(rest.nonzero().max()))


def sample_on_cpu(eagle_utils: Any) -> None:
    """Send sampled batches through the CUDA branch of ``eagle_sample``, which calls the three kernels above."""
    original = eagle_utils.eagle_sample

    def eagle_sample(verify_input: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        if batch.forward_mode.is_idle() or batch.sampling_info.is_all_greedy:
            return original(verify_input, batch, *args, **kwargs)
        saved, eagle_utils._is_cpu = eagle_utils._is_cpu, False
        try:
            return original(verify_input, batch, *args, **kwargs)
        finally:
            eagle_utils._is_cpu = saved

    eagle_utils.eagle_sample = eagle_sample
