"""Acceptance length of a draft, measured in plain PyTorch: also with a draft KV cache that was left behind.

Greedy speculation along a chain of ``steps`` draft tokens, from the target's own greedy text. As the text is known, all
drafts from all rows run at once; the walk then counts the steps that a server would have taken.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.models.checkpoint import Draft
from tests.models.networks import Shape, Weights, run_draft, run_target


def greedy_share(shape: Shape, target: Weights, texts: Tensor, first: int) -> float:
    """Share of the tokens from number ``first`` on that are the target's argmax. At 1.0 ``texts`` (batch, tokens) is
    what the target says after the first ``first`` tokens."""
    with torch.no_grad():
        logits, _ = run_target(shape, target, texts)
    return float((logits[:, first - 1 : -1].argmax(-1) == texts[:, first:]).float().mean())


def acceptance_length(
    shape: Shape, target: Weights, draft: Draft, texts: Tensor, first: int, count: int, steps: int = 3, missing: int = 0
) -> float:
    """Tokens a verify step yields (1 to steps + 1) while a server says ``count`` tokens of ``texts``.

    Args:
        texts: the target's greedy texts (batch, at least first + count + steps tokens).
        first: tokens known when speculation starts, or starts again.
        count: tokens to say from there.
        steps: draft tokens a step.
        missing: tokens before ``first`` that were decoded plainly, with nothing written to the draft's KV cache. The
            newest row is written: a resume runs the draft on it.
    """
    newest = first - 2  # row p reads token p + 1
    rows = newest + count + 1
    hole = slice(newest - missing, newest) if missing else None
    with torch.no_grad():
        _, aux = run_target(shape, target, texts[:, :rows])
        embeds = F.embedding(texts[:, 1 : rows + steps], target["model.embed_tokens.weight"])
        logits = run_draft(shape, draft.weights, aux, embeds, steps, hole)
    right = [draft.token_ids[step.argmax(-1)] == texts[:, 2 + k : 2 + k + rows] for k, step in enumerate(logits)]
    yields = 1 + torch.stack(right, dim=-1).int().cumprod(-1).sum(-1)
    said = taken = 0
    for row_yields in yields[:, newest:].tolist():
        at = 0
        while at < count:
            at += row_yields[at]
            taken += 1
        said += at
    return said / taken
