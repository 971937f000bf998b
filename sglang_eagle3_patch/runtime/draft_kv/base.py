"""K and V of an EAGLE-3 draft's one layer, computed without attention, MLP or LM head, and written to its pool.

For a one-layer draft, the K and V of a position need only ``fc(target aux hidden)``, the next token's embedding, two
norms, the K and V rows of one projection and RoPE: for a Llama draft about a sixth of the weights of a draft extend.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

if TYPE_CHECKING:
    from sglang_eagle3_patch.runtime.generations.base import Generation


class NotExact(Exception):
    """A K/V-only write would not equal a draft extend for this draft; the message says why."""


class DraftKV(ABC):
    """Writes K and V rows of committed positions into the draft's KV pool. One subclass a kind of draft."""

    pool_type = "MHATokenToKVPool"  # the KV pool whose slots are plain rows for this kind of attention

    def __init__(self, draft_runner: Any, generation: Generation) -> None:
        self._runner = draft_runner
        self._generation = generation
        self._model = draft_runner.model.model

    def demand_exact(self) -> None:
        """Make sure that what is written equals a draft extend.

        Raises:
            NotExact: the K and V of this draft need more than is computed here.
        """
        pool = type(self._runner.token_to_kv_pool).__name__
        if pool != self.pool_type:
            raise NotExact(f"the draft's KV pool is a {pool}, whose slots are not plain rows")
        if getattr(self._runner.server_args, "dcp_size", 1) > 1:
            raise NotExact("decode context parallelism splits the draft's KV slots over the ranks")

    def write(
        self, hidden: torch.Tensor, next_tokens: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor
    ) -> None:
        """Write one row for each given position.

        Args:
            hidden: [rows, aux * hidden], the target's aux hidden states at the positions.
            next_tokens: [rows] int64, the token that follows each position.
            positions: [rows] int64.
            slots: [rows] int64, KV slots; no slot may appear twice, since duplicate rows land in no defined order.
        """
        embeds = self._model.embed_tokens(next_tokens)
        states = hidden if hidden.shape[-1] == embeds.shape[-1] else self._project(self._normed(hidden))
        layer = self._layer()
        inputs = torch.cat([layer.input_layernorm(embeds), layer.hidden_norm(states)], dim=-1)
        self._store(inputs, positions, slots)

    @abstractmethod
    def _layer(self) -> Any:
        """The draft's decoder layer."""

    @abstractmethod
    def _store(self, inputs: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor) -> None:
        """Make K and V of the attention's ``inputs`` [rows, 2 * hidden] and write them."""

    def _project(self, hidden: torch.Tensor) -> torch.Tensor:
        """``fc``: [rows, aux * hidden] to [rows, hidden]."""
        projected: torch.Tensor = self._model.fc(hidden)
        return projected

    def _normed(self, hidden: torch.Tensor) -> torch.Tensor:
        """The norms before ``fc``, where the draft has them."""
        model = self._model
        if getattr(model, "input_norm", None) is not None:
            hidden = model.input_norm(hidden)
        if getattr(model, "fc_norm", None) is not None:
            chunks = hidden.chunk(model.num_aux_hidden_states, dim=-1)
            hidden = torch.cat([norm(chunk) for norm, chunk in zip(model.fc_norm, chunks, strict=True)], dim=-1)
        return hidden

    def _rotated(self, attention: Any, positions: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        """RoPE on contiguous keys. It rotates in place and wants a query too: a copy of the key stands in for it."""
        rotated: torch.Tensor = attention.rotary_emb(positions, k.clone(), k)[1]
        return rotated


def outputs_from(projection: Any, first: int, inputs: torch.Tensor) -> torch.Tensor:
    """What a linear layer gives from output ``first`` on: from those rows of its weight, where they can be cut out.

    Args:
        projection: one of SGLang's linear layers.
        first: counted in this rank's outputs.
        inputs: [rows, in].
    """
    if not _has_plain_weight(projection):
        whole: torch.Tensor = projection(inputs)[0]
        return whole[..., first:]
    bias = None if projection.bias is None else projection.bias[first:]
    return F.linear(inputs, projection.weight[first:], bias)


def _has_plain_weight(projection: Any) -> bool:
    """Whether the weight is [out, in] numbers: quantization and AMX pack it, torchao puts its own tensor there."""
    return (
        type(projection.quant_method).__name__ == "UnquantizedLinearMethod"
        and not getattr(projection, "use_intel_amx_backend", False)
        and type(projection.weight.data) is torch.Tensor
    )
