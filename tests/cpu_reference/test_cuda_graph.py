"""The stand-in for CUDA graphs: a replay repeats operations on the captured tensors, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from cpu_reference.cuda_graph import CpuGraph, capture, kernel
from torch import Tensor


def captured(body: Callable[[], Tensor]) -> tuple[CpuGraph, Tensor]:
    graph = CpuGraph()
    with torch.inference_mode(), capture(graph, pool=None, stream=None):
        return graph, body()


def test_a_replay_reads_the_static_buffer_and_writes_the_captured_output() -> None:
    buffer = torch.ones(4)
    graph, output = captured(lambda: (buffer[:2] * 3).relu_())
    buffer[:2] = torch.tensor([5.0, -1.0])
    graph.replay()
    assert output.tolist() == [15, 0]


def test_a_replay_runs_no_python() -> None:
    """An attribute that is looked up while capturing is an address from then on, as on a GPU."""
    owner = {"buffer": torch.ones(2)}
    graph, output = captured(lambda: owner["buffer"] + 1)
    owner["buffer"] = torch.full((2,), 7.0)
    graph.replay()
    assert output.tolist() == [2, 2]


def test_a_view_that_has_to_copy_is_copied_again() -> None:
    buffer = torch.zeros(2, 3)
    graph, output = captured(lambda: buffer.t().reshape(-1))
    buffer += torch.arange(6).view(2, 3)
    graph.replay()
    assert output.tolist() == [0, 3, 1, 4, 2, 5]


def test_graphs_over_one_buffer_do_not_disturb_each_other() -> None:
    buffer = torch.zeros(4)
    large, all_four = captured(lambda: buffer.cumsum(0))
    small, first_two = captured(lambda: buffer[:2] - 1)
    buffer += 2
    small.replay()
    assert first_two.tolist() == [1, 1]
    assert all_four.tolist() == [0, 0, 0, 0]
    large.replay()
    assert all_four.tolist() == [2, 4, 6, 8]


def test_a_kernel_is_one_launch_that_may_read_values() -> None:
    lengths, out = torch.tensor([1, 2]), torch.zeros(2)

    @kernel
    def fill(lengths: Tensor, out: Tensor) -> None:
        for row, length in enumerate(lengths.tolist()):
            out[row] = float(torch.arange(length + 1).sum().item())

    def body() -> Tensor:
        fill(lengths, out)
        return out + 1

    graph, output = captured(body)
    lengths.copy_(torch.tensor([3, 4]))
    graph.replay()
    assert output.tolist() == [7, 11]


def test_reading_a_value_while_capturing_is_refused_as_on_a_gpu() -> None:
    value = torch.ones(1)
    with pytest.raises(RuntimeError, match="not permitted when stream is capturing"):
        captured(lambda: torch.zeros(2) + value.sum().item())
    assert CpuGraph.capturing is None
