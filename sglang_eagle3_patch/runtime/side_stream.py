"""A stream beside the forward stream, for work that nobody waits for soon."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class SideStream:
    """Runs work beside what the forward stream does next, until ``join``.

    A decode step is bound by memory in its attention and by launches between its kernels: work beside it fills what it
    leaves idle, where in front of it the same work would only take time.
    """

    def __init__(self, device: torch.device) -> None:
        self._module: Any = None
        self._stream: Any = None
        # What the work reads lives on the forward stream: it may be freed only once that stream has waited.
        self._reads: tuple[Any, ...] = ()
        self._module = torch.get_device_module(device)
        self._stream = self._module.Stream()

    def launch(self, work: Callable[[], None], *reads: Any) -> None:
        """Start ``work`` once everything is done that the current stream holds so far.

        Args:
            work: launches kernels; its results are there for others after ``join``.
            reads: the tensors that it reads.
        """
        self.join()
        self._stream.wait_stream(self._module.current_stream())
        with self._module.stream(self._stream):
            work()
        self._reads = reads

    def join(self) -> None:
        """Make the current stream wait for the work. Costs nothing when there is none."""
        if self._reads:
            self._module.current_stream().wait_stream(self._stream)
            self._reads = ()
