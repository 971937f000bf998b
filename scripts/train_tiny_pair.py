#!/usr/bin/env python3
"""Train the tiny target and its EAGLE-3 drafts that tests and quick start use, and measure them. CPU, minutes.

.cache/venv/bin/python scripts/train_tiny_pair.py [FOLDER]
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm  # type: ignore[import-untyped]

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.models import checkpoint
from tests.models.acceptance import acceptance_length, greedy_share
from tests.models.checkpoint import Draft
from tests.models.networks import Shape, Weights, new_draft, new_target, run_draft, run_target
from tests.models.prompts import KEYS, VOCAB, continuation, make_prompts, text

HELD_OUT_SEED = 1_000_000  # training seeds are small
PROMPT = 2 * KEYS
RESUME_WINDOW = 100  # tokens over which acceptance after a resume is measured


@dataclass(frozen=True)
class Settings:
    """What the result depends on, besides torch's build and the processor."""

    seed: int = 0
    threads: int = 1  # the matrices are too small for more, and a busy machine makes two threads wait for each other
    target_steps: int = 700
    draft_steps: int = 600
    small_draft_steps: int = 100
    batch: int = 8
    length: int = 4 * KEYS
    learning_rate: float = 3e-3
    warmup: int = 50
    draft_ahead: int = 4  # draft tokens a row in training: one more than the usual three
    small_vocab: int = 352


@dataclass
class Report:
    """What report.json holds."""

    settings: dict[str, Any]
    torch: str
    shape: dict[str, Any]
    parameters: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    losses: dict[str, float] = field(default_factory=dict)
    target: dict[str, float] = field(default_factory=dict)
    acceptance: dict[str, dict[str, Any]] = field(default_factory=dict)


def main() -> None:
    """Train, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(checkpoint.__file__).parent)
    for name, default in asdict(Settings()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default, help=f"({default})")
    given = vars(parser.parse_args())
    folder: Path = given.pop("folder")
    settings = Settings(**given)
    torch.set_num_threads(settings.threads)
    torch.use_deterministic_algorithms(True)
    shape = Shape(vocab=VOCAB)
    report = Report(asdict(settings), torch.__version__, asdict(shape))

    target = checkpoint.rounded(train_target(shape, settings, report))
    draft = train_draft(shape, settings, report, target)
    small = train_small_draft(shape, settings, report, target, draft)
    checkpoint.save_target(folder / "target", shape, target)
    checkpoint.save_draft(folder / "draft", shape, draft)
    checkpoint.save_draft(folder / "draft_small_vocab", shape, small)

    measure_target(shape, target, report)
    for name, one in (("draft", draft), ("draft_small_vocab", small)):
        report.acceptance[name] = measure_draft(shape, target, one, name)
    report.parameters = {
        name: sum(tensor.numel() for tensor in weights.values())
        for name, weights in (("target", target), ("draft", draft.weights), ("draft_small_vocab", small.weights))
    }
    (folder / "report.json").write_text(json.dumps(asdict(report), indent=1) + "\n")
    print(json.dumps({key: value for key, value in asdict(report).items() if key != "shape"}, indent=1))


def batches(settings: Settings, stage: int, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Texts (batch, length) and which of their tokens can be known (bool): all but the drawn ones.

    The last fifth of ``steps`` gets half as many texts, twice as long: more old rounds that must not be believed.
    """
    rng = random.Random(settings.seed + stage)
    for step in range(steps):
        longer = 2 if step >= 0.8 * steps else 1
        length = longer * settings.length
        drawn = [KEYS if rng.random() < 0.5 else rng.randrange(KEYS) for _ in range(settings.batch // longer)]
        texts = [text(rng, length, first) for first in drawn]
        yield torch.tensor(texts), torch.arange(length) >= torch.tensor(drawn)[:, None]


def fit(
    label: str, weights: Weights, loss: Callable[[], Tensor], steps: int, settings: Settings, report: Report
) -> None:
    """Minimise ``loss`` with AdamW and a cosine schedule, in place."""
    started = time.perf_counter()
    parameters = [tensor.requires_grad_() for tensor in weights.values()]
    optimizer = torch.optim.AdamW(parameters, lr=settings.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min(1.0, (step + 1) / settings.warmup) * (0.5 + 0.5 * math.cos(math.pi * step / steps)),
    )
    smooth = 0.0
    with tqdm(range(steps), desc=label, mininterval=1.0) as bar:
        for step in bar:
            value = loss()
            optimizer.zero_grad()
            value.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            schedule.step()
            smooth = value.item() if step == 0 else 0.95 * smooth + 0.05 * value.item()
            bar.set_postfix(loss=f"{smooth:.4f}", refresh=False)
    report.seconds[label] = round(time.perf_counter() - started, 1)
    report.losses[label] = round(smooth, 5)


def train_target(shape: Shape, settings: Settings, report: Report) -> Weights:
    """The target: cross-entropy on every token that can be known."""
    weights = new_target(shape, torch.Generator().manual_seed(settings.seed))
    data = batches(settings, 1, settings.target_steps)

    def loss() -> Tensor:
        texts, knowable = next(data)
        logits, _ = run_target(shape, weights, texts[:, :-1])
        return F.cross_entropy(logits[knowable[:, 1:]], texts[:, 1:][knowable[:, 1:]])

    fit("target", weights, loss, settings.target_steps, settings, report)
    return weights


def draft_loss(shape: Shape, settings: Settings, target: Weights, draft: Draft, texts: Tensor) -> Tensor:
    """Cross-entropy with the target's own distribution, over all draft steps (EAGLE-3's training-time test)."""
    rows = texts.shape[1] - settings.draft_ahead
    with torch.no_grad():
        logits, aux = run_target(shape, target, texts)
        says = logits.softmax(-1)[..., draft.token_ids]
        embeds = F.embedding(texts[:, 1:], target["model.embed_tokens.weight"])
    drafted = run_draft(shape, draft.weights, aux[:, :rows], embeds, settings.draft_ahead)
    losses = [-(says[:, 1 + k : 1 + k + rows] * step.log_softmax(-1)).sum(-1).mean() for k, step in enumerate(drafted)]
    return torch.stack(losses).mean()


def train_draft(shape: Shape, settings: Settings, report: Report, target: Weights) -> Draft:
    """The draft with the target's whole vocabulary."""
    generator = torch.Generator().manual_seed(settings.seed + 1)
    draft = Draft(new_draft(shape, generator), torch.arange(shape.vocab))
    data = batches(settings, 2, settings.draft_steps)

    def loss() -> Tensor:
        return draft_loss(shape, settings, target, draft, next(data)[0])

    fit("draft", draft.weights, loss, settings.draft_steps, settings, report)
    return Draft(checkpoint.rounded(draft.weights), draft.token_ids)


def train_small_draft(shape: Shape, settings: Settings, report: Report, target: Weights, full: Draft) -> Draft:
    """The same draft with only the most frequent tokens in its vocabulary, trained on from there."""
    data = batches(settings, 3, settings.small_draft_steps)
    seen = Counter(token_id for texts, _ in batches(settings, 4, 100) for token_id in texts.flatten().tolist())
    token_ids = torch.tensor(sorted(token_id for token_id, _ in seen.most_common(settings.small_vocab)))
    weights = {name: tensor.clone() for name, tensor in full.weights.items()}
    weights["lm_head.weight"] = weights["lm_head.weight"][token_ids]
    draft = Draft(weights, token_ids)

    def loss() -> Tensor:
        return draft_loss(shape, settings, target, draft, next(data)[0])

    fit("draft_small_vocab", draft.weights, loss, settings.small_draft_steps, settings, report)
    return Draft(checkpoint.rounded(draft.weights), token_ids)


def held_out(n: int, prompt: int, length: int) -> Tensor:
    """``n`` unseen prompts with what follows: (n, length)."""
    prompts = make_prompts(n, HELD_OUT_SEED + prompt, prompt)
    return torch.tensor([one + continuation(one, length - prompt) for one in prompts])


def measure_target(shape: Shape, target: Weights, report: Report) -> None:
    """Is the greedy text the language's, from long and short prompts, and how far does a bigram get?"""
    for prompt in (4, KEYS // 2, PROMPT):
        texts = held_out(16, prompt, 1024)
        report.target[f"greedy_right_after_{prompt}_tokens"] = greedy_share(shape, target, texts, prompt)
    halved = {name: tensor.to(torch.bfloat16) for name, tensor in target.items()}
    report.target["greedy_right_in_bfloat16"] = greedy_share(shape, halved, held_out(16, PROMPT, 1024), PROMPT)
    report.target["bigram_right"] = round(bigram_share(), 4)


def bigram_share() -> float:
    """Share of the tokens that the best guess from the last token alone gets right, counted on texts of its own."""
    counted, judged = held_out(200, PROMPT, 512)[:, PROMPT:].chunk(2)
    follows: dict[int, Counter[int]] = {}
    for last, following in bigrams(counted):
        follows.setdefault(last, Counter())[following] += 1
    guess = {last: counts.most_common(1)[0][0] for last, counts in follows.items()}
    right = [guess.get(last) == following for last, following in bigrams(judged)]
    return sum(right) / len(right)


def bigrams(texts: Tensor) -> Iterator[tuple[int, int]]:
    """Every token with the one after it."""
    for one in texts.tolist():
        yield from pairwise(one)


def measure_draft(shape: Shape, target: Weights, draft: Draft, label: str) -> dict[str, Any]:
    """Acceptance length on unseen texts: along a generation, and after plain steps that wrote no draft KV."""
    halved = Draft({name: tensor.to(torch.bfloat16) for name, tensor in draft.weights.items()}, draft.token_ids)
    halved_target = {name: tensor.to(torch.bfloat16) for name, tensor in target.items()}
    texts = held_out(16, PROMPT, 1024)
    along = {
        f"{said}_to_{said + 100}_tokens": round(acceptance_length(shape, target, draft, texts, PROMPT + said, 100), 3)
        for said in tqdm((0, 200, 400, 600), desc=f"{label}: along", leave=False)
    }
    in_bfloat16 = acceptance_length(shape, halved_target, halved, texts, PROMPT, 700)
    resumes = {}
    for missing in tqdm((1, 10, 100, 500), desc=f"{label}: resume", leave=False):
        first = PROMPT + missing
        warm, cold = (
            acceptance_length(shape, target, draft, texts, first, RESUME_WINDOW, missing=gap) for gap in (0, missing)
        )
        resumes[f"after_{missing}"] = {"warm": round(warm, 3), "cold": round(cold, 3), "ratio": round(cold / warm, 3)}
    return {"along": along, "700_tokens_in_bfloat16": round(in_bfloat16, 3), "draft_kv_not_written": resumes}


if __name__ == "__main__":
    main()
