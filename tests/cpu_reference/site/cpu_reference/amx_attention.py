"""``extend_attention_cpu`` and ``decode_attention_cpu``: what the intel_amx backend calls through torch.ops.

Both take positional arguments only, and 0.5.23 put two floats (key and value scale) and a bool in between.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .attend import after_cached, attend, causal


def _without_kv_scales(rest: tuple[Any, ...]) -> list[Any]:
    return list(rest[2:] if isinstance(rest[0], float) else rest)


def extend_attention_cpu(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, k_buf: Tensor, v_buf: Tensor, *rest: Any
) -> None:
    """Prefill, draft-extend and target verify: ``extend_lens`` new tokens per request after its cached prefix.

    ``q``, ``k``, ``v``, ``out``: [tokens, heads, dim], ``out`` is written. ``k_buf``, ``v_buf``: [slots, heads, dim];
    only the prefix is read there. The tree mask, if any, is [requests, n, n] over the new tokens (QLEN_ONLY).
    """
    table, rows, seq_lens, extend_lens, starts, _max_len, scale, cap, is_cross, window, *more = _without_kv_scales(rest)
    if more and isinstance(more[0], bool) and not more.pop(0):
        raise NotImplementedError("CPU reference: encoder-only attention is not covered")
    encoder_lens, sinks, tree_mask = (more + [None] * 3)[:3]
    if is_cross or encoder_lens is not None:
        raise NotImplementedError("CPU reference: cross attention is not covered")
    used = 0
    for row, length, n, start in zip(
        rows.tolist(), seq_lens.tolist(), extend_lens.tolist(), starts.tolist(), strict=True
    ):
        prefix = length - n
        cached = table[row, :prefix].long()
        mask = causal(torch.arange(prefix, length), length, window)
        if tree_mask is not None:
            mask[:, prefix:] = tree_mask[used : used + n * n].view(n, n)
            used += n * n
        new = slice(start, start + n)
        keys, values = after_cached(k_buf, cached, k[new]), after_cached(v_buf, cached, v[new])
        out[new] = attend(q[new], keys, values, mask, scale, cap, sinks)


def decode_attention_cpu(q: Tensor, k_buf: Tensor, v_buf: Tensor, *rest: Any) -> None:
    """Plain decode and draft decode: one query per request, whose own K and V (if given) are stored first.

    ``q``: [requests, heads, dim]. ``k_buf``, ``v_buf``: [slots, heads, dim], written at ``loc``.
    """
    args = _without_kv_scales(rest) + [None] * 2
    out, k, v, loc, _logits, table, rows, seq_lens, scale, cap, is_cross, window, encoder_lens, sinks = args[:14]
    if is_cross or encoder_lens is not None:
        raise NotImplementedError("CPU reference: cross attention is not covered")
    if k is not None:
        k_buf[loc] = k.view(-1, *k_buf.shape[1:]).to(k_buf.dtype)
        v_buf[loc] = v.view(-1, *v_buf.shape[1:]).to(v_buf.dtype)
    for i, (row, length) in enumerate(zip(rows.tolist(), seq_lens.tolist(), strict=True)):
        slots = table[row, :length].long()
        mask = causal(torch.tensor([length - 1]), length, window)
        out[i : i + 1] = attend(q[i : i + 1], k_buf[slots], v_buf[slots], mask, scale, cap, sinks)
