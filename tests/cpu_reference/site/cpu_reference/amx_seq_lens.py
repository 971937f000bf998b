"""0.5.16 to 0.5.18: the intel_amx backend works out the speculative lengths, then overwrites them (fixed upstream)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

# What the faulty methods have and the fixed ones do not.
_FAULT = "        seq_lens = forward_batch.seq_lens\n        if seq_lens.dtype"


def fix(module: Any) -> None:
    """Hand the faulty methods of ``IntelAMXAttnBackend`` the lengths they meant to use."""
    backend = module.IntelAMXAttnBackend
    _wrap(backend, "forward_extend", lambda self: self.extend_metadata and self.extend_metadata[0])
    _wrap(backend, "forward_decode", lambda self: self.draft_decode_metadata and self.draft_decode_metadata[1])


def _wrap(backend: Any, name: str, meant: Callable[[Any], Any]) -> None:
    method = getattr(backend, name)
    if _FAULT not in inspect.getsource(method):
        return

    def forward(self: Any, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any, *args: Any, **kwargs: Any) -> Any:
        lengths = meant(self)
        if lengths is None:
            return method(self, q, k, v, layer, forward_batch, *args, **kwargs)
        saved, forward_batch.seq_lens = forward_batch.seq_lens, lengths
        try:
            return method(self, q, k, v, layer, forward_batch, *args, **kwargs)
        finally:
            forward_batch.seq_lens = saved

    setattr(backend, name, forward)
