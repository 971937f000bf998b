"""Model shapes without weights: two config.json files that SGLang fills with random numbers (`load_format=dummy`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_COMMON: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "max_position_embeddings": 8192,
}

# name -> (target, what the EAGLE-3 draft changes). '8b' is Llama 3.1 8B with a 32,000-word draft vocabulary.
SHAPES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "8b": (
        {
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "vocab_size": 128256,
            "rope_theta": 500000.0,
            "torch_dtype": "bfloat16",
        },
        {"draft_vocab_size": 32000},
    ),
    "1b": (
        {
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 16,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "vocab_size": 128256,
            "rope_theta": 500000.0,
            "torch_dtype": "bfloat16",
        },
        {"draft_vocab_size": 32000},
    ),
    # For trying the script out. Eight layers, so that the three whose hidden states the draft reads are distinct.
    "tiny": (
        {
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 8,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "vocab_size": 256,
            "rope_theta": 10000.0,
            "torch_dtype": "float32",
        },
        {"draft_vocab_size": 256},
    ),
}


def write_shape(name: str, folder: Path) -> tuple[Path, Path]:
    """Write the target's and the draft's config.json under `folder`; returns the two model folders.

    Raises ValueError for a name that is not in SHAPES.
    """
    if name not in SHAPES:
        raise ValueError(f"--shape {name} is unknown; choose one of {', '.join(SHAPES)}, or give --model and --draft")
    target, changes = SHAPES[name]
    draft = {**target, "architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, **changes}
    folders = folder / f"{name}-target", folder / f"{name}-draft"
    for path, config in zip(folders, (target, draft), strict=True):
        path.mkdir(parents=True, exist_ok=True)
        (path / "config.json").write_text(json.dumps({**_COMMON, **config}, indent=1) + "\n")
    return folders
