"""The two server arguments: what they mean, and every combination that is refused while arguments are parsed."""

from __future__ import annotations

import argparse
from typing import Any

THRESHOLD_FLAG = "--speculative-disable-batch-threshold"
THRESHOLD_HELP = (
    "Decode steps whose batch is larger than this run as plain decoding, without speculation, at the speed of a "
    "server without it; smaller batches speculate. 0 (the default) turns the gate off: every step speculates."
)
DRAFT_SYNC_FLAG = "--speculative-fallback-draft-sync"
DRAFT_SYNC_CHOICES = ["auto", "kv", "full", "off"]
DRAFT_SYNC_HELP = (
    "How the draft's KV cache is kept while steps run plain: kv writes only keys and values, full runs a whole draft "
    "extend, auto takes kv where it is exact and full elsewhere, off keeps nothing, which costs nearly all acceptance "
    "of the requests that lived through it."
)


class ThresholdRefused(ValueError):
    """The batch gate can't run with these server arguments; the message says why and what to do."""


def threshold(text: str) -> int:
    """Parse the flag's value on a command line; argparse shows the sentence as it stands."""
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(_not_a_count(text)) from None
    if value < 0:
        raise argparse.ArgumentTypeError(_not_a_count(text))
    return value


def check(args: Any, *, spec_v2_needs_overlap: bool = False) -> None:
    """Refuse a threshold that could not work with the other server arguments.

    Args:
        args: SGLang's ``ServerArgs`` (or its resolving view) once the speculative algorithm is resolved.
        spec_v2_needs_overlap: without the overlap scheduler the release runs its older worker (up to 0.5.12).

    Raises:
        ThresholdRefused: with one sentence that says what to change.
    """
    value = args.speculative_disable_batch_threshold
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ThresholdRefused(_not_a_count(value))
    if args.speculative_fallback_draft_sync not in DRAFT_SYNC_CHOICES:
        raise ThresholdRefused(
            f"{DRAFT_SYNC_FLAG} is {args.speculative_fallback_draft_sync!r}: choose one of "
            f"{', '.join(DRAFT_SYNC_CHOICES)}."
        )
    if value == 0:
        return
    for unsupported, why in _refusals(args, spec_v2_needs_overlap):
        if unsupported:
            raise ThresholdRefused(f"{THRESHOLD_FLAG} {value} {why}")


def _not_a_count(value: object) -> str:
    return f"{THRESHOLD_FLAG} is {value!r}: give a whole number of requests, 0 or larger (0 turns the gate off)."


def _refusals(args: Any, spec_v2_needs_overlap: bool) -> list[tuple[bool, str]]:
    def read(name: str, default: Any = None) -> Any:
        return getattr(args, name, default)

    spec_v2_off = spec_v2_needs_overlap and bool(read("disable_overlap_schedule"))
    return [
        (
            str(read("speculative_algorithm")).upper() not in ("EAGLE", "EAGLE3", "NEXTN"),
            "needs EAGLE speculation: add --speculative-algorithm EAGLE3, or drop the threshold.",
        ),
        (
            read("speculative_draft_model_path") is None,
            "needs a draft model: add --speculative-draft-model-path, or drop the threshold.",
        ),
        (
            spec_v2_off,
            "needs spec v2: set SGLANG_ENABLE_SPEC_V2=1 in the environment and take --speculative-eagle-topk 1 with "
            "the overlap scheduler on, or drop the threshold.",
        ),
        (bool(read("enable_dp_attention")), "can't run with --enable-dp-attention: drop one of the two."),
        (bool(read("enable_multi_layer_eagle")), "can't run with --enable-multi-layer-eagle: drop one of the two."),
        (
            bool(read("speculative_adaptive")),
            "can't run with --speculative-adaptive, which also chooses by batch size: drop one of the two.",
        ),
        ((read("pp_size") or 1) > 1, "can't run with pipeline parallelism: set --pp-size 1, or drop the threshold."),
        (
            read("disaggregation_mode", "null") not in (None, "null"),
            "can't run on one server of a disaggregated pair: drop --disaggregation-mode, or the threshold.",
        ),
        (bool(read("enable_pdmux")), "can't run with --enable-pdmux: drop one of the two."),
        (bool(read("enable_two_batch_overlap")), "can't run with --enable-two-batch-overlap: drop one of the two."),
    ]


def warning(threshold: int, max_running_requests: int | None) -> str | None:
    """The start-up warning for a threshold that can never fire, if it can't."""
    if threshold and max_running_requests is not None and threshold >= max_running_requests:
        return (
            f"{THRESHOLD_FLAG} {threshold} can never fire: at most {max_running_requests} requests run at once; "
            "lower the threshold or raise --max-running-requests."
        )
    return None
