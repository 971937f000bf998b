"""What one benchmark run fixes, and how each mode turns it into SGLang server arguments."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Collection
from enum import StrEnum
from pathlib import Path
from typing import Any


class Mode(StrEnum):
    """The servers that can be compared."""

    NONE = "none"
    ALWAYS = "always"
    ADAPTIVE = "adaptive"
    GATED = "gated"
    UNSYNCED = "unsynced"

    @property
    def label(self) -> str:
        return _LABELS[self]


_LABELS = {
    Mode.NONE: "no speculation",
    Mode.ALWAYS: "EAGLE-3 always",
    Mode.ADAPTIVE: "SGLang adaptive, zero-step tier",
    Mode.GATED: "gated",
    Mode.UNSYNCED: "gated, draft sync off",
}
DEFAULT_MODES = (Mode.NONE, Mode.ALWAYS, Mode.ADAPTIVE, Mode.GATED)
# 'The better of the first two' is what every other mode is held against.
BASELINES = (Mode.NONE, Mode.ALWAYS)


class UnsupportedMode(Exception):
    """This SGLang cannot run the mode; the message says why in one sentence."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """Everything that must be equal for two records to be comparable. Lengths are in tokens."""

    model: str
    draft: str
    load_format: str  # 'auto', or 'dummy' for random weights
    backend: str | None  # attention backend; None leaves the choice to SGLang
    prompt_tokens: int
    new_tokens: int
    ramp_tokens: int  # new tokens of one request in the arrival ramp
    ramp_clients: int  # at the ramp's top
    ramp_hold: float  # seconds of each level
    steps: int
    topk: int
    draft_tokens: int
    accept_length: float | None  # None: as accepted; a number: pinned with SGLANG_SIMULATE_ACC_LEN
    threshold: int
    max_batch: int  # the largest batch any measurement builds
    mem_fraction: float
    engine_args: dict[str, Any]  # the user's own server arguments; they win

    @property
    def pool_tokens(self) -> int:
        """KV slots for `max_batch` full-length requests, each with the reserve that a speculative step takes."""
        longest = max(self.new_tokens, self.ramp_tokens)
        reserve = 2 * max(self.steps * self.topk, self.draft_tokens)
        return self.max_batch * (self.prompt_tokens + longest + reserve + 16) + 4096

    def environment(self, mode: Mode) -> dict[str, str]:
        """Variables of the engine's process; SGLang reads SGLANG_SIMULATE_ACC_LEN while it is imported."""
        variables: dict[str, str] = {}
        if mode is not Mode.NONE and self.accept_length is not None:
            variables["SGLANG_SIMULATE_ACC_LEN"] = str(self.accept_length)
        if self.load_format == "dummy":
            variables["HF_HUB_OFFLINE"] = "1"
        if self.backend == "flashinfer":  # verify batches above 128 overflow the default of 384 MiB
            name = "SGLANG_FLASHINFER_WORKSPACE_SIZE"
            variables[name] = os.environ.get(name, str(2 << 30))
        return variables

    def server_args(self, mode: Mode, known: Collection[str], folder: Path) -> dict[str, Any]:
        """Arguments for `sglang.Engine`.

        known: the names that this release's ServerArgs takes. folder: where the adaptive configuration is written.
        Raises UnsupportedMode when the release lacks what the mode needs.
        """
        args: dict[str, Any] = {
            "model_path": self.model,
            "load_format": self.load_format,
            "skip_tokenizer_init": True,
            "mem_fraction_static": self.mem_fraction,
            # The same pool and the same limit for every mode, and room for several engines on one GPU.
            "max_total_tokens": self.pool_tokens,
            "max_running_requests": self.max_batch,
            "disable_radix_cache": True,
            "random_seed": 1,
            "log_level": "info",
        }
        if self.backend is not None:
            args["attention_backend"] = self.backend
        optional: dict[str, Any] = {
            "cuda_graph_max_bs_decode": self.max_batch,
            "cuda_graph_max_bs": self.max_batch,
            "disable_prefill_cuda_graph": True,
            "grammar_backend": "none",
            "sampling_backend": "pytorch",  # greedy takes the argmax in any backend
        }
        args.update({name: value for name, value in optional.items() if name in known})
        args.update(self._speculation(mode, known, folder))
        args.update(self.engine_args)
        return args

    def _speculation(self, mode: Mode, known: Collection[str], folder: Path) -> dict[str, Any]:
        if mode is Mode.NONE:
            return {}
        args: dict[str, Any] = {
            "speculative_algorithm": "EAGLE3",
            "speculative_draft_model_path": self.draft,
            "speculative_num_steps": self.steps,
            "speculative_eagle_topk": self.topk,
            "speculative_num_draft_tokens": self.draft_tokens,
        }
        if mode in (Mode.GATED, Mode.UNSYNCED):
            if "speculative_disable_batch_threshold" not in known:
                raise UnsupportedMode(
                    "this SGLang has no --speculative-disable-batch-threshold: run 'sglang-eagle3-patch apply' first"
                )
            args["speculative_disable_batch_threshold"] = self.threshold
        if mode is Mode.UNSYNCED:
            args["speculative_fallback_draft_sync"] = "off"
        if mode is Mode.ADAPTIVE:
            if "speculative_adaptive_config" not in known:
                raise UnsupportedMode("this SGLang release has no --speculative-adaptive")
            if self.topk != 1:
                raise UnsupportedMode(f"--speculative-adaptive takes topk 1 only, not {self.topk}")
            path = folder / "adaptive.json"
            tiers = {"1": {"candidate_steps": [self.steps]}, str(self.threshold + 1): {"candidate_steps": [0]}}
            path.write_text(json.dumps(tiers) + "\n")
            args.update(speculative_adaptive=True, speculative_adaptive_config=str(path))
        return args
