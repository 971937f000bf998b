"""A tiny random target with multi-latent attention and an EAGLE-3 draft of the same kind: Kimi-K2.x without experts.

As in ``tiny_models``, the draft is a bigram: it copies the current token's embedding through its latent to the output.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.cpu_reference.environment import CACHE
from tests.cpu_reference.tiny_models import CONTEXT, HEADS, HIDDEN, INTERMEDIATE, LAYERS, VOCAB, State, config, save

NOPE, ROPE, VALUE = HIDDEN // HEADS, 8, HIDDEN // HEADS  # head dimensions: without RoPE, with it, and of a value
LATENT = HIDDEN  # as wide as the embedding, so that a draft can copy it


@dataclass(frozen=True)
class TinyMLAPair:
    """Folders, as ``model_path`` and ``speculative_draft_model_path`` take them."""

    target: Path
    draft: Path


def pair() -> TinyMLAPair:
    """Made once, then kept under .cache."""
    folder = CACHE / "tiny_mla"
    made = TinyMLAPair(folder / "target", folder / "draft")
    if not made.draft.is_dir():
        target = _target()
        save(made.target, _config("DeepseekV3ForCausalLM", num_hidden_layers=LAYERS), target)
        draft = _config("Eagle3DeepseekV2ForCausalLM", num_hidden_layers=1, draft_vocab_size=VOCAB)
        save(made.draft, draft, _draft(target["lm_head.weight"]))
    return made


def _config(architecture: str, **over: Any) -> dict[str, Any]:
    return config(
        architecture,
        model_type="deepseek_v3",
        num_key_value_heads=HEADS,
        q_lora_rank=LATENT,
        kv_lora_rank=LATENT,
        qk_nope_head_dim=NOPE,
        qk_rope_head_dim=ROPE,
        v_head_dim=VALUE,
        first_k_dense_replace=LAYERS,  # every layer is dense: experts need kernels that are not here
        moe_layer_freq=1,
        n_routed_experts=8,
        rope_scaling={  # SGLang's CPU path wants a scaling, as Kimi has one
            "rope_type": "yarn",
            "type": "yarn",
            "factor": 2.0,
            "original_max_position_embeddings": 1024,
            "beta_fast": 32,
            "beta_slow": 1,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
        **over,
    )


def _block(generator: torch.Generator, prefix: str, attention_in: int) -> State:
    """One decoder layer; ``attention_in`` is the width that its attention reads (a draft reads two vectors)."""
    shapes = {
        "self_attn.q_a_proj": (LATENT, attention_in),
        "self_attn.q_b_proj": (HEADS * (NOPE + ROPE), LATENT),
        "self_attn.kv_a_proj_with_mqa": (LATENT + ROPE, attention_in),
        "self_attn.kv_b_proj": (HEADS * (NOPE + VALUE), LATENT),
        "self_attn.o_proj": (HIDDEN, HEADS * VALUE),
        "mlp.gate_proj": (INTERMEDIATE, HIDDEN),
        "mlp.up_proj": (INTERMEDIATE, HIDDEN),
        "mlp.down_proj": (HIDDEN, INTERMEDIATE),
    }
    norms = {
        "input_layernorm": HIDDEN,
        "post_attention_layernorm": HIDDEN,
        "self_attn.q_a_layernorm": LATENT,
        "self_attn.kv_a_layernorm": LATENT,
    }
    return {
        **{
            f"{prefix}.{name}.weight": torch.randn(*shape, generator=generator) * CONTEXT
            for name, shape in shapes.items()
        },
        **{f"{prefix}.{name}.weight": torch.ones(width) for name, width in norms.items()},
    }


def _target() -> State:
    generator = torch.Generator().manual_seed(1)
    state = {
        "model.embed_tokens.weight": torch.randn(VOCAB, HIDDEN, generator=generator),
        "model.norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": torch.randn(VOCAB, HIDDEN, generator=generator) * 0.25,
    }
    for layer in range(LAYERS):
        state |= _block(generator, f"model.layers.{layer}", HIDDEN)
    return state


def _draft(target_head: Tensor) -> State:
    generator = torch.Generator().manual_seed(2)
    embedding_only = torch.cat([torch.eye(HIDDEN), torch.zeros(HIDDEN, HIDDEN)], dim=1)  # not the hidden state
    block = _block(generator, "layers.0", 2 * HIDDEN)
    attention = "layers.0.self_attn"
    copied = torch.eye(LATENT).view(HEADS, NOPE, LATENT)  # each head has its own slice of the latent
    block[f"{attention}.q_a_proj.weight"] = embedding_only
    block[f"{attention}.q_b_proj.weight"] = torch.cat([copied * 4, torch.zeros(HEADS, ROPE, LATENT)], dim=1).flatten(
        0, 1
    )
    block[f"{attention}.kv_a_proj_with_mqa.weight"][:LATENT] = embedding_only
    block[f"{attention}.kv_b_proj.weight"] = torch.cat([copied, copied], dim=1).flatten(0, 1)
    block[f"{attention}.o_proj.weight"] = torch.eye(HIDDEN) * 4
    return {
        **block,
        "layers.0.hidden_norm.weight": torch.ones(HIDDEN),
        "fc.weight": torch.randn(HIDDEN, 3 * HIDDEN, generator=generator) * 0.02,
        "norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": target_head.clone(),
    }
