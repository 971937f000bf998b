"""K and V of an EAGLE-3 draft's one layer, computed without attention, MLP or LM head, and written to its pool.

For a one-layer draft, the K and V of a position need only ``fc(target aux hidden)``, the next token's embedding, two
norms, the K and V rows of ``qkv_proj`` and RoPE: about a sixth of the weights of a draft extend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

if TYPE_CHECKING:
    from sglang_eagle3_patch.runtime.generations.base import Generation


def why_not_exact(draft_runner: Any, generation: Generation) -> str | None:
    """Why the K/V-only write would not equal a draft extend for this draft, or None where it does."""
    model = draft_runner.model
    if type(model).__name__ != "LlamaForCausalLMEagle3":
        return f"the draft is a {type(model).__name__}, not a LlamaForCausalLMEagle3"
    inner = model.model
    layers = generation.draft_layers(inner)
    if len(layers) != 1:
        return f"the draft has {len(layers)} layers, and a later layer's keys need the one before"
    pool = type(draft_runner.token_to_kv_pool).__name__
    if pool != "MHATokenToKVPool":
        return f"the draft's KV pool is a {pool}, whose slots are not plain rows"
    if getattr(inner, "is_mrope_enabled", False):
        return "the draft uses multimodal RoPE positions"
    projection = layers[0].self_attn.qkv_proj
    if getattr(projection, "weight", None) is None:
        return "the draft's qkv_proj is quantized, so its K and V rows can't be taken alone"
    method = getattr(projection, "quant_method", None)
    if method is not None and type(method).__name__ != "UnquantizedLinearMethod":
        return f"the draft's qkv_proj is quantized ({type(method).__name__}), so its K and V rows can't be taken alone"
    return None


class DraftKV:
    """Writes K and V rows of committed positions into the draft's KV pool."""

    def __init__(self, draft_runner: Any, generation: Generation) -> None:
        self._model = draft_runner.model.model
        self._runner = draft_runner
        self._generation = generation
        self._layer: Any = None
        self._layer = generation.draft_layers(self._model)[0]

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
        attention = self._layer.self_attn
        embeds = self._layer.input_layernorm(self._model.embed_tokens(next_tokens))
        states = self._layer.hidden_norm(self._project(hidden))
        qkv = attention.qkv_proj
        bias = None if qkv.bias is None else qkv.bias[attention.q_size :]
        kv = F.linear(torch.cat([embeds, states], dim=-1), qkv.weight[attention.q_size :], bias)
        k, v = kv.split([attention.kv_size, attention.kv_size], dim=-1)
        k = k.contiguous()
        # RoPE rotates in place and wants a query beside the key: the key stands in for it on a copy.
        _, k = attention.rotary_emb(positions, k.clone(), k)
        radix = attention.attn
        self._generation.set_kv(
            self._runner.token_to_kv_pool,
            radix,
            slots,
            k.view(-1, radix.tp_k_head_num, radix.qk_head_dim),
            v.contiguous().view(-1, radix.tp_v_head_num, radix.v_head_dim),
        )

    def _project(self, hidden: torch.Tensor) -> torch.Tensor:
        """What the draft makes of the target's aux hidden states before its layer: optional norms, then ``fc``."""
        model = self._model
        if hidden.shape[-1] == self._layer.self_attn.hidden_size:
            return hidden
        if getattr(model, "input_norm", None) is not None:
            hidden = model.input_norm(hidden)
        if getattr(model, "fc_norm", None) is not None:
            chunks = hidden.chunk(model.num_aux_hidden_states, dim=-1)
            hidden = torch.cat([norm(chunk) for norm, chunk in zip(model.fc_norm, chunks, strict=True)], dim=-1)
        projected: torch.Tensor = model.fc(hidden)
        return projected
