"""How a mode becomes server arguments."""

import dataclasses
import json
from pathlib import Path

import pytest
from bench.settings import Mode, Settings, UnsupportedMode
from bench.shapes import SHAPES, write_shape

SETTINGS = Settings(
    model="target",
    draft="draft",
    load_format="dummy",
    backend="triton",
    prompt_tokens=256,
    new_tokens=256,
    ramp_tokens=128,
    ramp_clients=32,
    ramp_hold=4.0,
    steps=3,
    topk=1,
    draft_tokens=4,
    accept_length=2.5,
    threshold=8,
    max_batch=32,
    mem_fraction=0.8,
    engine_args={},
)
ALL = {"speculative_disable_batch_threshold", "speculative_adaptive_config", "cuda_graph_max_bs_decode"}


def test_all_modes_get_the_same_pool_and_limits(tmp_path: Path) -> None:
    kinds = [SETTINGS.server_args(mode, ALL, tmp_path) for mode in Mode]
    for name in ("max_total_tokens", "max_running_requests", "cuda_graph_max_bs_decode", "attention_backend"):
        assert len({kind[name] for kind in kinds}) == 1
    assert kinds[0]["max_total_tokens"] >= 32 * (256 + 256)


def test_unsynced_is_gated_without_draft_sync(tmp_path: Path) -> None:
    gated, unsynced = (SETTINGS.server_args(mode, ALL, tmp_path) for mode in (Mode.GATED, Mode.UNSYNCED))
    assert unsynced == {**gated, "speculative_fallback_draft_sync": "off"}


def test_only_speculative_modes_speculate(tmp_path: Path) -> None:
    plain = SETTINGS.server_args(Mode.NONE, ALL, tmp_path)
    assert not [name for name in plain if name.startswith("speculative")]
    gated = SETTINGS.server_args(Mode.GATED, ALL, tmp_path)
    always = SETTINGS.server_args(Mode.ALWAYS, ALL, tmp_path)
    assert gated == {**always, "speculative_disable_batch_threshold": 8}


def test_the_adaptive_mode_has_a_zero_step_tier_above_the_threshold(tmp_path: Path) -> None:
    args = SETTINGS.server_args(Mode.ADAPTIVE, ALL, tmp_path)
    tiers = json.loads(Path(args["speculative_adaptive_config"]).read_text())
    assert tiers == {"1": {"candidate_steps": [3]}, "9": {"candidate_steps": [0]}}


@pytest.mark.parametrize(
    ("mode", "known", "topk", "why"),
    [
        (Mode.GATED, set(), 1, "sglang-eagle3-patch apply"),
        (Mode.ADAPTIVE, set(), 1, "no --speculative-adaptive"),
        (Mode.ADAPTIVE, ALL, 4, "topk 1 only"),
    ],
)
def test_what_a_release_lacks_is_said(tmp_path: Path, mode: Mode, known: set[str], topk: int, why: str) -> None:
    settings = dataclasses.replace(SETTINGS, topk=topk)
    with pytest.raises(UnsupportedMode, match=why):
        settings.server_args(mode, known, tmp_path)


def test_the_users_own_arguments_win(tmp_path: Path) -> None:
    settings = dataclasses.replace(SETTINGS, engine_args={"max_running_requests": 3, "page_size": 16})
    args = settings.server_args(Mode.NONE, ALL, tmp_path)
    assert (args["max_running_requests"], args["page_size"]) == (3, 16)


def test_acceptance_is_pinned_for_speculative_modes_only() -> None:
    assert "SGLANG_SIMULATE_ACC_LEN" not in SETTINGS.environment(Mode.NONE)
    assert SETTINGS.environment(Mode.GATED)["SGLANG_SIMULATE_ACC_LEN"] == "2.5"
    free = dataclasses.replace(SETTINGS, accept_length=None)
    assert "SGLANG_SIMULATE_ACC_LEN" not in free.environment(Mode.GATED)


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_is_a_target_and_a_one_layer_draft_of_its_width(tmp_path: Path, name: str) -> None:
    target, draft = (json.loads((path / "config.json").read_text()) for path in write_shape(name, tmp_path))
    assert draft["architectures"] == ["LlamaForCausalLMEagle3"]
    assert draft["num_hidden_layers"] == 1
    assert draft["hidden_size"] == target["hidden_size"]
    assert draft["draft_vocab_size"] <= target["vocab_size"]


def test_an_unknown_shape_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="choose one of 8b"):
        write_shape("9z", tmp_path)
