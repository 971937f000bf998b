"""The files that are shipped, measured anew in plain PyTorch. What SGLang makes of them is tests/e2e's matter."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.models import DRAFT, DRAFT_SMALL_VOCAB, TARGET, checkpoint
from tests.models.acceptance import acceptance_length, greedy_share
from tests.models.prompts import KEYS, VOCAB, continuation, make_prompts, text

PROMPT = 2 * KEYS
SHIPPED = pytest.mark.parametrize("folder", [DRAFT, DRAFT_SMALL_VOCAB], ids=lambda folder: folder.name)


def texts(n: int = 8, prompt: int = PROMPT, length: int = 1024) -> Tensor:
    return torch.tensor([one + continuation(one, length - prompt) for one in make_prompts(n, 77_000, prompt)])


def test_a_text_goes_on_as_it_was_made() -> None:
    whole = text(random.Random(5), 5 * KEYS)
    assert continuation(whole[:KEYS], 4 * KEYS) == whole[KEYS:]
    assert all(0 <= token_id < VOCAB for token_id in whole)


@pytest.mark.parametrize("prompt", [3, KEYS // 2, PROMPT])
def test_the_target_speaks_the_language_up_to_1024_tokens(prompt: int) -> None:
    shape, target = checkpoint.load_target(TARGET)
    assert greedy_share(shape, target, texts(prompt=prompt), prompt) > 0.999


def test_the_target_looks_back() -> None:
    shape, target = checkpoint.load_target(TARGET)
    whole = texts()
    forgetful = torch.cat([torch.roll(whole[:, :PROMPT], 1, dims=0), whole[:, PROMPT:]], dim=1)[:, : PROMPT + KEYS]
    assert greedy_share(shape, target, forgetful, PROMPT) < 0.3  # somebody else's prompt: the values must be guessed


@SHIPPED
@pytest.mark.parametrize("said", [0, 300, 600])
def test_the_draft_is_accepted_all_along(folder: Path, said: int) -> None:
    shape, target = checkpoint.load_target(TARGET)
    draft = checkpoint.load_draft(folder)
    assert acceptance_length(shape, target, draft, texts(), PROMPT + said, 100) > 2.5


@SHIPPED
@pytest.mark.parametrize("missing", [100, 500])
def test_the_draft_needs_its_kv_cache(folder: Path, missing: int) -> None:
    shape, target = checkpoint.load_target(TARGET)
    draft = checkpoint.load_draft(folder)
    first = PROMPT + missing
    warm, cold = (acceptance_length(shape, target, draft, texts(), first, 100, missing=rows) for rows in (0, missing))
    assert cold < 0.6 * warm


def test_the_small_vocabulary_is_smaller() -> None:
    full, small = checkpoint.load_draft(DRAFT), checkpoint.load_draft(DRAFT_SMALL_VOCAB)
    assert full.token_ids.tolist() == list(range(VOCAB))
    assert set(small.token_ids.tolist()) < set(range(VOCAB))
    assert len(small.weights["lm_head.weight"]) == len(small.token_ids)


def test_it_stays_small() -> None:
    shipped = sum(file.stat().st_size for folder in (TARGET, DRAFT, DRAFT_SMALL_VOCAB) for file in folder.iterdir())
    assert shipped < 5_000_000
