"""KV slot bookkeeping kernels. ``table`` is SGLang's ``req_to_token``: [requests, positions] of KV slot numbers."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor


def assign_req_to_token_pool_cpu(
    rows: Tensor, table: Tensor, start: Tensor, end: Tensor, slots: Tensor, pool_len: int
) -> None:
    """Write new slots, laid end to end in ``slots``, into positions [start, end) of each request's row."""
    used = 0
    for row, first, last in zip(rows.tolist(), start.tolist(), end.tolist(), strict=True):
        table[row, first:last] = slots[used : used + last - first].to(table.dtype)
        used += last - first


def assign_extend_cache_locs_cpu(
    rows: Tensor, table: Tensor, start: Tensor, end: Tensor, out: Tensor, pool_len: int
) -> None:
    """Read the slots of positions [start, end) of each request, laid end to end into ``out``."""
    used = 0
    for row, first, last in zip(rows.tolist(), start.tolist(), end.tolist(), strict=True):
        out[used : used + last - first] = table[row, first:last].to(out.dtype)
        used += last - first


def assign_draft_cache_locs_contiguous_cpu(
    rows: Tensor, table: Tensor, seq_lens: Tensor, out: Tensor, pool_len: int, topk: int, num_steps: int
) -> None:
    """Read each request's ``topk * num_steps`` slots after its committed length."""
    n = topk * num_steps
    for i, (row, length) in enumerate(zip(rows.tolist(), seq_lens.tolist(), strict=True)):
        out[i * n : (i + 1) * n] = table[row, length : length + n].to(out.dtype)


def build_draft_decode_metadata_cpu(
    table: Tensor, rows: Tensor, seq_lens: Tensor, topk: int, num_steps: int, pool_len: int
) -> Tensor:
    """A table with one row per draft branch: the committed prefix, then that branch's own slots."""
    out = table[rows.long()].repeat_interleave(topk, dim=0)
    for i, (row, length) in enumerate(zip(rows.tolist(), seq_lens.tolist(), strict=True)):
        for branch in range(topk):
            own = length + branch * num_steps
            out[i * topk + branch, length : length + num_steps] = table[row, own : own + num_steps]
    return out


def copy_all_layer_kv_cache_cpu(data_ptrs: Tensor, strides: Tensor, to_slots: Tensor, from_slots: Tensor) -> None:
    """Move KV rows inside each layer's buffer (raw addresses, row sizes in bytes): read all, then write."""
    sources, targets = from_slots.tolist(), to_slots.tolist()
    for base, stride in zip(data_ptrs.tolist(), strides.tolist(), strict=True):
        rows = [ctypes.string_at(base + slot * stride, stride) for slot in sources]
        for slot, row in zip(targets, rows, strict=True):
            ctypes.memmove(base + slot * stride, row, stride)


def fill_accept_out_cache_loc_cpu(accept_index: Tensor, slots: Tensor, out: Tensor, size: int | None = None) -> None:
    """Gather the slots of the accepted tokens (index -1: none) to the front of ``out``."""
    accepted = accept_index.reshape(-1)[:size]
    accepted = accepted[accepted > -1].long()
    out[: accepted.numel()] = slots[accepted]


def fill_bonus_tokens_cpu(tokens: Tensor, accept_lens: Tensor, out: Tensor, stride: int) -> None:
    """``out``: [requests], the last accepted token of each request's ``stride`` wide block."""
    last = torch.arange(accept_lens.shape[0]) * stride + accept_lens.long() - 1
    out.copy_(tokens.reshape(-1)[last])


def rotate_input_ids_cpu(
    input_ids: Tensor, starts: Tensor, lens: Tensor, next_ids: Tensor, select_index: Tensor | None = None
) -> None:
    """Shift each request's tokens left by one and put the next token in the freed (or the selected) place."""
    for i, (start, n) in enumerate(zip(starts.tolist(), lens.tolist(), strict=True)):
        if n <= 0:
            continue
        input_ids[start : start + n - 1] = input_ids[start + 1 : start + n].clone()
        place = start + n - 1 if select_index is None else int(select_index[i])
        input_ids[place] = next_ids.view(-1)[i]
