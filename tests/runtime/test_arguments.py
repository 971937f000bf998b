"""Which arguments are refused, and that the sentence says what to do."""

from __future__ import annotations

import argparse
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_eagle3_patch.runtime import arguments
from sglang_eagle3_patch.runtime.arguments import DRAFT_SYNC_CHOICES, THRESHOLD_FLAG, ThresholdRefused


def server_args(**over: Any) -> SimpleNamespace:
    """What a server with EAGLE-3 and a threshold of 4 is started with."""
    working: dict[str, Any] = {
        "speculative_disable_batch_threshold": 4,
        "speculative_fallback_draft_sync": "auto",
        "speculative_algorithm": "EAGLE3",
        "speculative_draft_model_path": "/draft",
        "enable_dp_attention": False,
        "enable_multi_layer_eagle": False,
        "speculative_adaptive": False,
        "pp_size": 1,
        "disaggregation_mode": "null",
        "enable_pdmux": False,
        "enable_two_batch_overlap": False,
    }
    return SimpleNamespace(**working | over)


# One change that a threshold can't live with, and what the sentence must advise.
UNSUPPORTED: list[tuple[dict[str, Any], str]] = [
    ({"speculative_algorithm": None}, "add --speculative-algorithm EAGLE3"),
    ({"speculative_algorithm": "NGRAM"}, "add --speculative-algorithm EAGLE3"),
    ({"speculative_draft_model_path": None}, "add --speculative-draft-model-path"),
    ({"enable_dp_attention": True}, "--enable-dp-attention: drop one of the two"),
    ({"enable_multi_layer_eagle": True}, "--enable-multi-layer-eagle: drop one of the two"),
    ({"speculative_adaptive": True}, "--speculative-adaptive, which also chooses by batch size: drop one of the two"),
    ({"pp_size": 2}, "set --pp-size 1"),
    ({"disaggregation_mode": "decode"}, "drop --disaggregation-mode"),
    ({"enable_pdmux": True}, "--enable-pdmux: drop one of the two"),
    ({"enable_two_batch_overlap": True}, "--enable-two-batch-overlap: drop one of the two"),
]


@pytest.mark.parametrize(("change", "advice"), UNSUPPORTED, ids=str)
def test_unsupported_is_refused_with_advice_and_off_is_always_fine(change: dict[str, Any], advice: str) -> None:
    with pytest.raises(ThresholdRefused) as refusal:
        arguments.check(server_args(**change))
    assert advice in str(refusal.value)
    assert str(refusal.value).startswith(f"{THRESHOLD_FLAG} 4 ")
    arguments.check(server_args(**change, speculative_disable_batch_threshold=0))


@pytest.mark.parametrize("algorithm", ["EAGLE", "EAGLE3", "eagle3", "NEXTN"])
def test_eagle_is_taken(algorithm: str) -> None:
    arguments.check(server_args(speculative_algorithm=algorithm))


def test_an_argument_that_a_release_does_not_have_is_off() -> None:
    args = server_args()
    for name in ("speculative_adaptive", "enable_pdmux", "enable_two_batch_overlap", "disaggregation_mode"):
        delattr(args, name)
    arguments.check(args)


@pytest.mark.parametrize("value", [-1, 1.5, "4", None, True])
def test_only_a_count_is_a_threshold(value: object) -> None:
    with pytest.raises(ThresholdRefused, match="give a whole number of requests, 0 or larger"):
        arguments.check(server_args(speculative_disable_batch_threshold=value))


def test_draft_sync_is_one_of_four_even_when_off() -> None:
    for choice in DRAFT_SYNC_CHOICES:
        arguments.check(server_args(speculative_fallback_draft_sync=choice))
    with pytest.raises(ThresholdRefused, match="choose one of auto, kv, full, off"):
        arguments.check(server_args(speculative_fallback_draft_sync="some", speculative_disable_batch_threshold=0))


def test_spec_v2_must_be_on_where_it_needs_the_overlap_scheduler() -> None:
    without_overlap = server_args(disable_overlap_schedule=True)
    arguments.check(without_overlap)
    arguments.check(server_args(disable_overlap_schedule=False), spec_v2_needs_overlap=True)
    with pytest.raises(ThresholdRefused, match="needs spec v2: set SGLANG_ENABLE_SPEC_V2=1"):
        arguments.check(without_overlap, spec_v2_needs_overlap=True)


@given(st.integers())
def test_the_command_line_takes_counts(value: int) -> None:
    if value >= 0:
        assert arguments.threshold(str(value)) == value
    else:
        with pytest.raises(argparse.ArgumentTypeError, match="give a whole number"):
            arguments.threshold(str(value))


@given(st.text())
def test_the_command_line_takes_what_python_reads_as_an_integer_and_nothing_else(text: str) -> None:
    try:
        expected = int(text)
    except ValueError:
        expected = -1
    if expected >= 0:
        assert arguments.threshold(text) == expected
    else:
        with pytest.raises(argparse.ArgumentTypeError):
            arguments.threshold(text)


def test_a_threshold_that_can_never_fire_is_warned_about() -> None:
    assert "can never fire: at most 16 requests run at once" in str(arguments.warning(16, 16))
    assert arguments.warning(15, 16) is None
    assert arguments.warning(0, 16) is None
    assert arguments.warning(16, None) is None
