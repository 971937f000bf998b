"""Read and write the pair as SGLang loads it: config.json and model.safetensors, bfloat16."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.models.networks import Shape, Weights

# With bfloat16 files, a float32 server and a bfloat16 server run the very same weights.
STORED = torch.bfloat16


@dataclass(frozen=True)
class Draft:
    """A draft's weights, and the target's id of every token in the draft's own vocabulary (int64)."""

    weights: Weights
    token_ids: Tensor


def rounded(weights: Weights) -> Weights:
    """The weights as a server sees them: through the stored dtype and back to float32."""
    return {name: tensor.detach().to(STORED).float() for name, tensor in weights.items()}


def save_target(folder: Path, shape: Shape, weights: Weights) -> None:
    """Write a ``LlamaForCausalLM``."""
    _save(folder, _config(shape, "LlamaForCausalLM", num_hidden_layers=shape.layers), weights)


def save_draft(folder: Path, shape: Shape, draft: Draft) -> None:
    """Write a ``LlamaForCausalLMEagle3``."""
    own = len(draft.token_ids)
    config = _config(shape, "LlamaForCausalLMEagle3", num_hidden_layers=1, draft_vocab_size=own)
    spoken = torch.zeros(shape.vocab, dtype=torch.bool)
    spoken[draft.token_ids] = True
    _save(folder, config, draft.weights, {"d2t": draft.token_ids - torch.arange(own), "t2d": spoken})


def load_target(folder: Path) -> tuple[Shape, Weights]:
    """Read what ``save_target`` wrote, as float32."""
    config = json.loads((folder / "config.json").read_text())
    shape = Shape(
        vocab=config["vocab_size"],
        hidden=config["hidden_size"],
        heads=config["num_attention_heads"],
        head_dim=config["head_dim"],
        intermediate=config["intermediate_size"],
        layers=config["num_hidden_layers"],
        positions=config["max_position_embeddings"],
        rope_theta=config["rope_theta"],
        eps=config["rms_norm_eps"],
    )
    return shape, rounded(load_file(folder / "model.safetensors"))


def load_draft(folder: Path) -> Draft:
    """Read what ``save_draft`` wrote, as float32."""
    weights = load_file(folder / "model.safetensors")
    token_ids = weights.pop("d2t")
    token_ids = token_ids + torch.arange(len(token_ids))
    del weights["t2d"]
    return Draft(rounded(weights), token_ids)


def _config(shape: Shape, architecture: str, **more: Any) -> dict[str, Any]:
    return {
        "architectures": [architecture],
        "model_type": "llama",
        "hidden_size": shape.hidden,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "head_dim": shape.head_dim,
        "intermediate_size": shape.intermediate,
        "vocab_size": shape.vocab,
        "max_position_embeddings": shape.positions,
        "rms_norm_eps": shape.eps,
        "rope_theta": shape.rope_theta,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": str(STORED).removeprefix("torch."),
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "attention_bias": False,
        "mlp_bias": False,
        **more,
    }


def _save(folder: Path, config: dict[str, Any], weights: Weights, tables: Weights | None = None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    tensors = {name: tensor.detach().to(STORED).contiguous() for name, tensor in weights.items()}
    save_file(tensors | (tables or {}), folder / "model.safetensors", metadata={"format": "pt"})
