"""A tiny random Llama target and untrained EAGLE-3 drafts, written in a second.

The draft is a bigram: its attention copies the current token's embedding to the output, so it predicts what the target
would say from that token alone. Its acceptance does not depend on its KV cache: it cannot show a cold cache.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from tests import models
from tests.cpu_reference.environment import CACHE

HIDDEN, HEADS, KV_HEADS, VOCAB, INTERMEDIATE = 64, 4, 2, 256, 128
LAYERS = 8  # EAGLE-3 reads layers 2, LAYERS // 2 and LAYERS - 3: with 8 they are three different ones
_HEAD_DIM = HIDDEN // HEADS
CONTEXT = 0.04  # weight scale of everything that looks at context: small, so that a bigram is often right

State = dict[str, Tensor]


@dataclass(frozen=True)
class TinyPair:
    """Folders of a target and its drafts, as ``model_path`` and ``speculative_draft_model_path`` take them."""

    target: Path
    draft: Path
    draft_small_vocab: Path


def pair() -> TinyPair:
    """The pair for runs that only need some target and some draft: made once, then kept under .cache."""
    folder = CACHE / "tiny_models"
    made = TinyPair(folder / "target", folder / "draft", folder / "draft_small_vocab")
    return made if made.draft_small_vocab.is_dir() else make(folder)


def trained() -> TinyPair | None:
    """The pair that the project ships, whose draft does depend on its KV cache; None in a tree that has not made it."""
    shipped = TinyPair(models.TARGET, models.DRAFT, models.DRAFT_SMALL_VOCAB)
    return shipped if shipped.target.is_dir() else None


def make(folder: Path) -> TinyPair:
    """Write the models under ``folder``. The same files every time."""
    pair = TinyPair(folder / "target", folder / "draft", folder / "draft_small_vocab")
    target = _target()
    save(pair.target, config("LlamaForCausalLM", num_hidden_layers=LAYERS), target)
    for path, seed, token_ids in (
        (pair.draft, 2, torch.arange(VOCAB)),
        (pair.draft_small_vocab, 3, torch.arange(0, VOCAB, 2)),
    ):
        draft = config(
            "LlamaForCausalLMEagle3", num_hidden_layers=1, num_key_value_heads=HEADS, draft_vocab_size=len(token_ids)
        )
        save(path, draft, _draft(seed, target["lm_head.weight"], token_ids))
    return pair


def config(architecture: str, **over: Any) -> dict[str, Any]:
    """What config.json says, for a Llama where ``over`` says nothing else."""
    return {
        "architectures": [architecture],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": _HEAD_DIM,
        "intermediate_size": INTERMEDIATE,
        "vocab_size": VOCAB,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "attention_bias": False,
        "mlp_bias": False,
        **over,
    }


def save(folder: Path, settings: dict[str, Any], state: State) -> None:
    """Write a model as SGLang loads it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(settings, indent=1))
    tensors = {name: tensor.contiguous() for name, tensor in state.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _random(generator: torch.Generator, *shape: int, scale: float) -> Tensor:
    return torch.randn(*shape, generator=generator) * scale


def _block(generator: torch.Generator, prefix: str, attention_in: int) -> State:
    """One decoder layer; ``attention_in`` is the width that q, k and v read (a draft reads two vectors)."""
    shapes = {
        "self_attn.q_proj": (HEADS * _HEAD_DIM, attention_in),
        "self_attn.k_proj": (KV_HEADS * _HEAD_DIM, attention_in),
        "self_attn.v_proj": (KV_HEADS * _HEAD_DIM, attention_in),
        "self_attn.o_proj": (HIDDEN, HEADS * _HEAD_DIM),
        "mlp.gate_proj": (INTERMEDIATE, HIDDEN),
        "mlp.up_proj": (INTERMEDIATE, HIDDEN),
        "mlp.down_proj": (HIDDEN, INTERMEDIATE),
    }
    state = {f"{prefix}.{name}.weight": _random(generator, *shape, scale=CONTEXT) for name, shape in shapes.items()}
    for norm in ("input_layernorm", "post_attention_layernorm"):
        state[f"{prefix}.{norm}.weight"] = torch.ones(HIDDEN)
    return state


def _target() -> State:
    generator = torch.Generator().manual_seed(1)
    state = {
        "model.embed_tokens.weight": _random(generator, VOCAB, HIDDEN, scale=1.0),
        "model.norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": _random(generator, VOCAB, HIDDEN, scale=0.25),
    }
    for layer in range(LAYERS):
        state |= _block(generator, f"model.layers.{layer}", HIDDEN)
    return state


def _draft(seed: int, target_head: Tensor, token_ids: Tensor) -> State:
    """``token_ids``: the target's ids that the draft can say, in the order of its own vocabulary."""
    generator = torch.Generator().manual_seed(seed)
    embedding_only = torch.cat([torch.eye(HIDDEN), torch.zeros(HIDDEN, HIDDEN)], dim=1)  # not the hidden state
    spoken = torch.zeros(VOCAB, dtype=torch.bool)
    spoken[token_ids] = True
    return {
        **_block(generator, "midlayer", 2 * HIDDEN),
        "midlayer.self_attn.q_proj.weight": embedding_only * 2.0,
        "midlayer.self_attn.k_proj.weight": embedding_only * 2.0,
        "midlayer.self_attn.v_proj.weight": embedding_only,
        "midlayer.self_attn.o_proj.weight": torch.eye(HIDDEN) * 4.0,
        "midlayer.hidden_norm.weight": torch.ones(HIDDEN),
        "fc.weight": _random(generator, HIDDEN, 3 * HIDDEN, scale=0.02),
        "norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": target_head[token_ids].clone(),
        "d2t": token_ids - torch.arange(len(token_ids)),
        "t2d": spoken,
    }
