"""``LlamaForCausalLMEagle3``: keys and values of every KV head."""

from __future__ import annotations

from typing import Any

import torch

from sglang_eagle3_patch.runtime.draft_kv.base import DraftKV, NotExact, outputs_from


class LlamaDraftKV(DraftKV):
    """K and V rows of ``qkv_proj``, RoPE on K."""

    def demand_exact(self) -> None:
        """One layer, and positions that are one number each."""
        super().demand_exact()
        if getattr(self._model, "is_mrope_enabled", False):
            raise NotExact("the draft uses multimodal RoPE positions")
        layers = self._generation.draft_layers(self._model)
        if len(layers) != 1:
            raise NotExact(f"the draft has {len(layers)} layers, and a later layer's keys need the one before")

    def _layer(self) -> Any:
        return self._generation.draft_layers(self._model)[0]

    def _store(self, inputs: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor) -> None:
        attention = self._layer().self_attn
        radix = attention.attn
        k, v = outputs_from(attention.qkv_proj, attention.q_size, inputs).split(attention.kv_size, dim=-1)
        k = self._rotated(attention, positions, k.contiguous())
        scales = () if radix.k_scale is None else (radix.k_scale, radix.v_scale)
        self._runner.token_to_kv_pool.set_kv_buffer(
            radix,
            self._generation.write_location(slots),
            k.view(-1, radix.tp_k_head_num, radix.qk_head_dim),
            v.contiguous().view(-1, radix.tp_v_head_num, radix.v_head_dim),
            *scales,
        )
