"""Which batch sizes the plain decode graphs are captured for."""

from __future__ import annotations

import pytest

from sglang_eagle3_patch.runtime.graphs import plain_runner_class


class Upstream:
    """As SGLang's runner: its constructor assigns the buckets, ascending, and takes their largest."""

    def __init__(self, buckets: list[int]) -> None:
        self.capture_bs = buckets
        self.max_bs = max(self.capture_bs)


@pytest.mark.parametrize(
    ("floor", "captured"),
    [(0, [8, 16, 24]), (8, [16, 24]), (15, [16, 24]), (24, [24]), (30, [24])],
    ids=["no floor", "on a bucket", "between two", "on the largest", "above all"],
)
def test_only_sizes_that_a_plain_step_can_have(floor: int, captured: list[int]) -> None:
    runner = plain_runner_class(Upstream, {}, floor)([8, 16, 24])
    assert runner.capture_bs == captured
    assert runner.max_bs == 24
