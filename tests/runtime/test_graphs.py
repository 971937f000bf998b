"""Which graphs a plain step gets, and that the verify graphs are back after it."""

from __future__ import annotations

import enum
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from sglang_eagle3_patch.runtime.generations.base import Generation, logger
from sglang_eagle3_patch.runtime.graphs import PlainGraphs, plain_runner_class


class Algorithm(enum.Enum):
    NONE = 0
    EAGLE3 = 1


class Upstream:
    """As upstream's runner: sizes and modes are assigned by the constructor, then everything is captured."""

    def __init__(self, sizes: list[int], attn_backend: str = "target's") -> None:
        self.attn_backend = attn_backend
        self.hidden_mode = "none"
        self.capture_bs = sizes
        self.max_bs = max(self.capture_bs)
        self.captured = dict.fromkeys(self.capture_bs, self.hidden_mode)


def test_only_sizes_above_the_threshold_are_captured_and_the_settings_stay() -> None:
    runner = plain_runner_class(Upstream, {"hidden_mode": "full"}, floor=4)([1, 2, 4, 5, 8])
    assert runner.captured == {5: "full", 8: "full"}
    assert runner.max_bs == 8
    assert Upstream([1, 8]).captured == {1: "none", 8: "none"}


def test_two_thresholds_do_not_share_a_class() -> None:
    low, high = (plain_runner_class(Upstream, {}, floor) for floor in (1, 4))
    assert (low([1, 2, 8]).capture_bs, high([1, 2, 8]).capture_bs) == ([2, 8], [8])


@pytest.mark.parametrize("fails", [False, True])
def test_the_verify_graphs_are_back_whatever_happened(fails: bool) -> None:
    model_runner = SimpleNamespace(graph_runner="verify", attn_backend="target's")
    try:
        with PlainGraphs("plain", "own", "graph_runner").installed(model_runner):
            assert (model_runner.graph_runner, model_runner.attn_backend) == ("plain", "own")
            if fails:
                raise RuntimeError("a step that failed")
    except RuntimeError:
        assert fails
    assert (model_runner.graph_runner, model_runner.attn_backend) == ("verify", "target's")


class ModelRunner(SimpleNamespace):
    """As upstream's, as far as a capture asks; it is passed to the runner as its list of sizes."""

    def __init__(self, verify_runner: Any, fault: str | None = None) -> None:
        super().__init__(decode_cuda_graph_runner=verify_runner, spec_algorithm=Algorithm.EAGLE3)
        self.fault, self.init_new_workspace = fault, "target's"
        self.seen: list[Algorithm] = []

    def _get_attention_backend(self) -> str:
        self.init_new_workspace = "own"
        return "own"

    def __iter__(self) -> Any:
        self.seen.append(self.spec_algorithm)
        if self.fault:
            raise RuntimeError(self.fault)
        return iter([1, 4, 6])


class OnNoDevice(Generation):
    def plain_runner_settings(self) -> dict[str, Any]:
        return {"hidden_mode": "full"}

    def free_memory(self) -> int:
        return 0


def test_a_capture_has_its_own_backend_and_leaves_the_model_runner_as_it_was() -> None:
    model_runner = ModelRunner(Upstream([1, 4, 6]))
    graphs = OnNoDevice().capture_plain_graphs(model_runner, threshold=4)
    assert graphs is not None
    assert (graphs.runner.captured, graphs.runner.attn_backend, graphs.attn_backend) == ({6: "full"}, "own", "own")
    assert set(model_runner.seen) == {Algorithm.NONE}
    assert (model_runner.spec_algorithm, model_runner.init_new_workspace) == (Algorithm.EAGLE3, "target's")


def test_a_failed_capture_names_the_flags_and_leaves_the_model_runner_as_it_was() -> None:
    model_runner = ModelRunner(Upstream([1, 4, 6]), fault="out of memory")
    with pytest.raises(RuntimeError, match=r"failed \(out of memory\): lower .* --cuda-graph-max-bs-decode, or"):
        OnNoDevice().capture_plain_graphs(model_runner, threshold=4)
    assert (model_runner.spec_algorithm, model_runner.init_new_workspace) == (Algorithm.EAGLE3, "target's")


def test_no_capture_without_graphs_or_without_one_that_is_large_enough(caplog: pytest.LogCaptureFixture) -> None:
    assert OnNoDevice().capture_plain_graphs(ModelRunner(None), threshold=4) is None
    with caplog.at_level(logging.INFO, logger.name):
        assert OnNoDevice().capture_plain_graphs(ModelRunner(Upstream([1, 4, 6])), threshold=6) is None
    assert caplog.messages == [
        "EAGLE-3 batch gate: no decode graph is larger than the threshold, plain steps run eagerly"
    ]
