"""Attention itself: the one formula that every stand-in ends in."""

from __future__ import annotations

import torch
from torch import Tensor


def attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float, logit_cap: float = 0.0, sinks: Tensor | None = None
) -> Tensor:
    """Masked attention of one request, accumulated in float32.

    Args:
        q: [n, heads, dim].
        k: [m, kv_heads, dim]; kv_heads divides heads (grouped-query attention).
        v: [m, kv_heads, v_dim].
        mask: [n, m] bool, True where a query may look.
        scale: factor on the scores.
        logit_cap: soft cap on the scores, 0 for none.
        sinks: [heads] or None, one more score per head that takes part in the softmax and has no value.

    Returns:
        [n, heads, v_dim] in the dtype of ``q``.
    """
    group = q.shape[1] // k.shape[1]
    keys = k.float().repeat_interleave(group, dim=1)
    values = v.float().repeat_interleave(group, dim=1)
    scores = torch.einsum("nhd,mhd->hnm", q.float(), keys) * scale
    if logit_cap:
        scores = logit_cap * torch.tanh(scores / logit_cap)
    scores = scores.masked_fill(~mask, float("-inf"))
    if sinks is not None:
        scores = torch.cat([scores, sinks.float().view(-1, 1, 1).expand(-1, scores.shape[1], 1)], dim=-1)
    weights = scores.softmax(-1)[..., : keys.shape[0]]
    return torch.einsum("hnm,mhd->nhd", weights, values).to(q.dtype)


def causal(q_positions: Tensor, length: int, window: int | None) -> Tensor:
    """[n, length] bool: keys at or before each query, and within ``window`` positions of it when that is positive."""
    keys = torch.arange(length)
    mask = keys[None] <= q_positions[:, None]
    if window and window > 0:
        mask &= keys[None] > q_positions[:, None] - window
    return mask


def after_cached(buffer: Tensor, slots: Tensor, fresh: Tensor) -> Tensor:
    """The keys or values at ``slots`` of a cache, then the ``fresh`` ones of a step: [slots + fresh, heads, dim].

    With nothing cached the two may have different shapes: an MLA prefill expands what its cache keeps as one latent.
    """
    return torch.cat([buffer[slots], fresh]) if slots.numel() else fresh
