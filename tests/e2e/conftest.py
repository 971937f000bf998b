"""What the runs on a real SGLang 0.5.20 share: one patched tree, and one server without speculation to compare with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cpu_reference import environment, tiny_models
from tests.e2e import trees
from tests.e2e.engine import Server, server
from tests.e2e.tokenizer import with_tokenizer
from tests.e2e.turns import Reference

RELEASE = "0.5.20"


@dataclass(frozen=True)
class Setup:
    """What a gated server of this release is started from.

    Attributes:
        upstream: the tree as it is on PyPI.
        patched: a copy with our patch.
        target: the tiny target, with a tokenizer.
        draft: its draft.
        draft_small_vocab: one with half the vocabulary.
    """

    upstream: Path
    patched: Path
    target: Path
    draft: Path
    draft_small_vocab: Path

    def plain_args(self, **over: Any) -> dict[str, Any]:
        """Server arguments without speculation."""
        return {
            "model_path": str(self.target),
            "skip_tokenizer_init": False,
            "sleep_on_idle": True,  # a shared server leaves the processor to the one under test
            "constrained_json_disable_any_whitespace": True,  # the tiny target would say nothing else
            **over,
        }

    def gated_args(
        self,
        threshold: int,
        *,
        steps: int = 3,
        topk: int = 1,
        draft_tokens: int | None = None,
        small_vocab: bool = False,
        **over: Any,
    ) -> dict[str, Any]:
        """Server arguments with EAGLE-3 and the gate."""
        draft = self.draft_small_vocab if small_vocab else self.draft
        return self.plain_args(
            **environment.eagle3_args(draft, steps=steps, topk=topk, draft_tokens=draft_tokens),
            speculative_disable_batch_threshold=threshold,
            **over,
        )


@pytest.fixture(scope="session")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Setup:
    folder = tmp_path_factory.mktemp("sglang")
    upstream, pair = environment.tree(RELEASE), tiny_models.pair()
    return Setup(
        upstream,
        trees.patched(upstream, folder / "patched"),
        with_tokenizer(pair.target, folder / "target"),
        pair.draft,
        pair.draft_small_vocab,
    )


@pytest.fixture(scope="session")
def reference(setup: Setup, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reference]:
    """Upstream's own tree, no speculation."""
    with server(setup.upstream, setup.plain_args(), tmp_path_factory.mktemp("reference")) as running:
        yield Reference(running)


@pytest.fixture(scope="session")
def gated(setup: Setup, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The patched tree with N = 4."""
    with server(setup.patched, setup.gated_args(4), tmp_path_factory.mktemp("gated")) as running:
        yield running
