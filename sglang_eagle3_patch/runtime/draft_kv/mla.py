"""``Eagle3DeepseekV2ForCausalLM``, the draft of Kimi-K2.x: one latent row a position, shared by all heads."""

from __future__ import annotations

from typing import Any

import torch

from sglang_eagle3_patch.runtime.draft_kv.base import DraftKV, outputs_from


class MLADraftKV(DraftKV):
    """Latent and RoPE rows of ``fused_qkv_a_proj_with_mqa``, a norm on the one, RoPE on the other."""

    pool_type = "MLATokenToKVPool"

    def _layer(self) -> Any:
        return self._model.midlayer  # this draft never has another

    def _project(self, hidden: torch.Tensor) -> torch.Tensor:
        gather = getattr(self._model, "_fc_gatherer", None)  # from 0.5.15 ``fc`` is split over the ranks
        if gather is None:
            return super()._project(hidden)
        projected: torch.Tensor = gather(self._model.fc(hidden)[0])
        return projected

    def _store(self, inputs: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor) -> None:
        attention = self._layer().self_attn
        row = outputs_from(attention.fused_qkv_a_proj_with_mqa, attention.q_lora_rank, inputs)
        latent, k_rope = row.split([attention.kv_lora_rank, attention.qk_rope_head_dim], dim=-1)
        latent = attention.kv_a_layernorm(latent.contiguous()).unsqueeze(1)
        k_rope = self._rotated(attention, positions, k_rope.unsqueeze(1).contiguous())
        self._runner.token_to_kv_pool.set_kv_buffer(
            attention.attn_mqa,
            self._generation.write_location(slots),
            torch.cat([latent, k_rope], dim=-1),  # [rows, 1, kv_lora_rank + qk_rope_head_dim]
            latent,
        )
