"""The two big kernels of the triton backend. Its metadata code stays SGLang's, its small kernels run interpreted.

Interpreting these two as well would take 0.6 s a step.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import torch

from .attend import after_cached, attend
from .cuda_graph import kernel

Arguments = Mapping[str, Any]


def replace(module: ModuleType, name: str) -> None:
    """Put the reference in the place of ``module.name``; arguments are bound by the names of the original."""
    signature = inspect.signature(getattr(module, name))
    reference = _REFERENCES[name]

    @kernel
    def launch(*args: Any, **kwargs: Any) -> None:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        _refuse_the_uncovered(bound.arguments)
        reference(bound.arguments)

    setattr(module, name, launch)


def _refuse_the_uncovered(given: Arguments) -> None:
    covered = (
        given.get("page_size", 1) == 1
        and not given.get("skip_prefix")
        and not given.get("skip_extend")
        and given.get("lse_extend") is None
        and given.get("score_mod") is None
        and given.get("xai_temperature_len", -1) <= 0
    )
    if not covered:
        raise NotImplementedError("CPU reference: the triton stand-in covers page size 1 and plain attention only")


def _onwards(view: torch.Tensor) -> torch.Tensor:
    """What a kernel finds from the view's address on: a captured view may be shorter than what a replay has to read."""
    room = view.untyped_storage().nbytes() // view.element_size() - view.storage_offset()
    return view.as_strided((room,), (1,))


def _extend(given: Arguments) -> None:
    """Prefix from the cache, new tokens from ``k_extend``; the custom mask is one flat [n, prefix + n] per request."""
    q, k, v, out = (given[name] for name in ("q_extend", "k_extend", "v_extend", "o_extend"))
    starts, kv_starts = given["qo_indptr"].tolist(), given["kv_indptr"].tolist()
    window, offsets, custom = given["sliding_window_size"], given.get("window_kv_offsets"), given["custom_mask"]
    for row in range(len(starts) - 1):
        new = slice(starts[row], starts[row + 1])
        n = starts[row + 1] - starts[row]
        slots = _onwards(given["kv_indices"])[kv_starts[row] : kv_starts[row + 1]].long()
        prefix = slots.numel()
        first = int(offsets[row]) if offsets is not None else 0  # position of the first cached key
        mask = torch.ones(n, prefix + n, dtype=torch.bool)
        if custom is not None:
            begin, width = int(given["mask_indptr"][row]), first + prefix + n
            tree = custom[begin : begin + n * width].view(n, width)
            mask[:, prefix:] = tree[:, first + prefix :]
            if not given["skip_prefix_custom_mask"]:
                mask[:, :prefix] = tree[:, first : first + prefix]
        elif given["is_causal"]:
            mask[:, prefix:] = torch.ones(n, n, dtype=torch.bool).tril()
        if window is not None and window > 0:
            distance = torch.arange(prefix, prefix + n)[:, None] - torch.arange(prefix + n)[None]
            mask &= distance <= window
        out[new] = attend(
            q[new],
            after_cached(given["k_buffer"], slots, k[new]),
            after_cached(given["v_buffer"], slots, v[new]),
            mask,
            given["sm_scale"] or q.shape[-1] ** -0.5,
            given["logit_cap"],
            given["sinks"],
        )


def _decode(given: Arguments) -> None:
    q, out, kv_starts = given["q"], given["o"], given["kv_indptr"].tolist()
    for row in range(q.shape[0]):
        slots = _onwards(given["kv_indices"])[kv_starts[row] : kv_starts[row + 1]].long()
        one = slice(row, row + 1)
        out[one] = attend(
            q[one],
            given["k_buffer"][slots],
            given["v_buffer"][slots],
            torch.ones(1, slots.numel(), dtype=torch.bool),
            given["sm_scale"],
            given["logit_cap"],
            given["sinks"],
        )


_REFERENCES: dict[str, Callable[[Arguments], None]] = {"extend_attention_fwd": _extend, "decode_attention_fwd": _decode}
