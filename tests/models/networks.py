"""The target and the EAGLE-3 draft in plain PyTorch: functions of a dictionary of weights, under SGLang's names.

The draft runs as SGLang runs it. Row p of its sequence reads the target's hidden states at position p, three layers'
side by side, and the embedding of token p + 1; it is about token p + 2, at RoPE position p. A draft step goes on from
its own output: the draft's hidden state before the last norm takes the place of the target's.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Shape:
    """Sizes of the target, and of the draft's one layer. ``positions`` is the longest text, in tokens."""

    vocab: int
    hidden: int = 64
    heads: int = 2
    head_dim: int = 64  # GPU attention kernels take 64 and 128
    intermediate: int = 128
    layers: int = 8
    positions: int = 2048
    rope_theta: float = 10000.0
    eps: float = 1e-5

    @property
    def aux_layers(self) -> tuple[int, int, int]:
        """The layers whose input EAGLE-3 reads: SGLang's default."""
        return (2, self.layers // 2, self.layers - 3)


def new_target(shape: Shape, generator: torch.Generator) -> Weights:
    """Untrained weights of a ``LlamaForCausalLM``, float32."""
    weights = {
        "model.embed_tokens.weight": torch.randn(shape.vocab, shape.hidden, generator=generator),
        "model.norm.weight": torch.ones(shape.hidden),
        "lm_head.weight": _matrix(generator, shape.vocab, shape.hidden),
    }
    for layer in range(shape.layers):
        weights |= _new_layer(shape, generator, f"model.layers.{layer}", shape.hidden)
    return weights


def new_draft(shape: Shape, generator: torch.Generator) -> Weights:
    """Untrained weights of a ``LlamaForCausalLMEagle3``, float32. It has no embedding: SGLang hands it the target's."""
    return {
        "fc.weight": _matrix(generator, shape.hidden, 3 * shape.hidden),
        "midlayer.hidden_norm.weight": torch.ones(shape.hidden),
        **_new_layer(shape, generator, "midlayer", 2 * shape.hidden),
        "norm.weight": torch.ones(shape.hidden),
        "lm_head.weight": _matrix(generator, shape.vocab, shape.hidden),
    }


def run_target(shape: Shape, weights: Weights, ids: Tensor) -> tuple[Tensor, Tensor]:
    """What the target makes of ``ids`` (batch, tokens): logits (batch, tokens, vocab) and the hidden states that
    EAGLE-3 reads (batch, tokens, 3 * hidden), both in the weights' dtype."""
    x = F.embedding(ids, weights["model.embed_tokens.weight"])
    aux = []
    for i in range(shape.layers):
        if i in shape.aux_layers:
            aux.append(x)
        layer = f"model.layers.{i}"
        normed = _norm(shape, weights, f"{layer}.input_layernorm", x)
        q, k, v = _qkv(shape, weights, layer, normed, 0)
        x = x + _attention_out(weights, layer, F.scaled_dot_product_attention(q, k, v, is_causal=True))
        x = x + _mlp(shape, weights, layer, x)
    return _linear(weights, "lm_head", _norm(shape, weights, "model.norm", x)), torch.cat(aux, dim=-1)


def run_draft(
    shape: Shape, weights: Weights, aux: Tensor, embeds: Tensor, steps: int, hole: slice | None = None
) -> list[Tensor]:
    """Draft ``steps`` tokens from every row, for the case that each earlier one was right.

    From row b that is what SGLang does: a draft-extend up to row b, then steps - 1 draft steps, each of which attends
    to the rows up to b and to this draft's own steps. EAGLE-3 calls it training-time test.

    Args:
        aux: the target's hidden states (batch, rows, 3 * hidden).
        embeds: embeddings of the tokens from the second on (batch, rows + steps - 1, hidden).
        hole: rows whose keys and values were never written: they read as zeros.

    Returns:
        ``steps`` tensors (batch, rows, draft vocabulary); number k, row b is about token b + 2 + k.
    """
    rows = aux.shape[1]
    later = torch.ones(rows, rows, dtype=torch.bool).triu(1)
    hidden = _linear(weights, "fc", aux)
    cached_k = cached_v = torch.empty(0)
    own: list[tuple[Tensor, Tensor]] = []
    logits = []
    for step in range(steps):
        embed = _norm(shape, weights, "midlayer.input_layernorm", embeds[:, step : step + rows])
        state = _norm(shape, weights, "midlayer.hidden_norm", hidden)
        q, k, v = _qkv(shape, weights, "midlayer", torch.cat((embed, state), dim=-1), step)
        if step == 0:
            cached_k, cached_v = (_dug(k, hole), _dug(v, hole)) if hole else (k, v)
        else:
            own.append((k, v))
        scores = [(q @ cached_k.transpose(-1, -2)).masked_fill(later, -torch.inf)]
        scores += [(q * own_k).sum(-1, keepdim=True) for own_k, _ in own]
        attention = (torch.cat(scores, dim=-1) * shape.head_dim**-0.5).softmax(-1)
        read = attention[..., :rows] @ cached_v
        for i, (_, own_v) in enumerate(own):
            read = read + attention[..., rows + i, None] * own_v
        hidden = hidden + _attention_out(weights, "midlayer", read)
        hidden = hidden + _mlp(shape, weights, "midlayer", hidden)
        logits.append(_linear(weights, "lm_head", _norm(shape, weights, "norm", hidden)))
    return logits


def _new_layer(shape: Shape, generator: torch.Generator, name: str, attention_in: int) -> Weights:
    """What writes to the residual stream starts small, so that a deep stack starts near the identity."""
    wide = shape.heads * shape.head_dim
    small = (2 * shape.layers) ** -0.5
    matrices = {
        "self_attn.q_proj": _matrix(generator, wide, attention_in),
        "self_attn.k_proj": _matrix(generator, wide, attention_in),
        "self_attn.v_proj": _matrix(generator, wide, attention_in),
        "self_attn.o_proj": _matrix(generator, shape.hidden, wide) * small,
        "mlp.gate_proj": _matrix(generator, shape.intermediate, shape.hidden),
        "mlp.up_proj": _matrix(generator, shape.intermediate, shape.hidden),
        "mlp.down_proj": _matrix(generator, shape.hidden, shape.intermediate) * small,
        "input_layernorm": torch.ones(shape.hidden),
        "post_attention_layernorm": torch.ones(shape.hidden),
    }
    return {f"{name}.{key}.weight": value for key, value in matrices.items()}


def _matrix(generator: torch.Generator, rows: int, columns: int) -> Tensor:
    return torch.randn(rows, columns, generator=generator) * columns**-0.5


def _linear(weights: Weights, name: str, x: Tensor) -> Tensor:
    return F.linear(x, weights[f"{name}.weight"])


def _norm(shape: Shape, weights: Weights, name: str, x: Tensor) -> Tensor:
    return F.rms_norm(x, (shape.hidden,), weights[f"{name}.weight"], shape.eps)


def _mlp(shape: Shape, weights: Weights, layer: str, x: Tensor) -> Tensor:
    x = _norm(shape, weights, f"{layer}.post_attention_layernorm", x)
    gate = F.silu(_linear(weights, f"{layer}.mlp.gate_proj", x))
    return _linear(weights, f"{layer}.mlp.down_proj", gate * _linear(weights, f"{layer}.mlp.up_proj", x))


def _qkv(shape: Shape, weights: Weights, layer: str, x: Tensor, first_position: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of ``x`` (batch, tokens, width), each (batch, heads, tokens, head_dim)."""
    q, k, v = (
        _linear(weights, f"{layer}.self_attn.{name}_proj", x).unflatten(-1, (shape.heads, shape.head_dim))
        for name in "qkv"
    )
    cos, sin = (table[first_position : first_position + x.shape[1]] for table in _rope(shape))
    return _rotated(q.transpose(1, 2), cos, sin), _rotated(k.transpose(1, 2), cos, sin), v.transpose(1, 2)


def _attention_out(weights: Weights, layer: str, heads: Tensor) -> Tensor:
    return _linear(weights, f"{layer}.self_attn.o_proj", heads.transpose(1, 2).flatten(2))


@functools.cache
def _rope(shape: Shape) -> tuple[Tensor, Tensor]:
    """Cosines and sines (positions, head_dim), float32."""
    frequency = shape.rope_theta ** (-torch.arange(0, shape.head_dim, 2) / shape.head_dim)
    angle = torch.outer(torch.arange(shape.positions).float(), frequency).repeat(1, 2)
    return angle.cos(), angle.sin()


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right = x.float().chunk(2, dim=-1)
    return (x * cos + torch.cat((-right, left), dim=-1) * sin).to(x.dtype)


def _dug(x: Tensor, hole: slice) -> Tensor:
    x = x.clone()
    x[:, :, hole] = 0.0
    return x
