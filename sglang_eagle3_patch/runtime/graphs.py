"""The target's own decode graphs: captured in DECODE mode, one token a request, beside the verify graphs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass
class PlainGraphs:
    """A decode graph runner and the attention backend whose buffers its graphs were captured over.

    A backend owns one set of graph buffers, and the verify graphs hold the target's: a second capture over them would
    overwrite what the first reads, so the plain graphs bring their own.
    """

    runner: Any
    attn_backend: Any
    runner_attribute: str

    @contextlib.contextmanager
    def installed(self, model_runner: Any) -> Iterator[None]:
        """Let ``model_runner`` replay these graphs, and put the verify graphs back whatever happens."""
        verify = getattr(model_runner, self.runner_attribute), model_runner.attn_backend
        setattr(model_runner, self.runner_attribute, self.runner)
        model_runner.attn_backend = self.attn_backend
        try:
            yield
        finally:
            setattr(model_runner, self.runner_attribute, verify[0])
            model_runner.attn_backend = verify[1]


def plain_runner_class(upstream: type, settings: Mapping[str, Any], floor: int) -> type:
    """A decode graph runner that captures hidden states, and only batch sizes that a plain step can have.

    Args:
        upstream: SGLang's decode graph runner class.
        settings: attributes that keep their value whatever its constructor assigns to them.
        floor: the threshold; a bucket of this size or smaller can't be reached.
    """

    class PlainDecodeGraphRunner(upstream):  # type: ignore[misc]
        """Upstream's runner with the settings pinned."""

        _buckets: Sequence[int] = ()  # upstream's constructor assigns it, through the property

        @property
        def capture_bs(self) -> Sequence[int]:
            return self._buckets

        @capture_bs.setter
        def capture_bs(self, buckets: Sequence[int]) -> None:
            # Ranks that gather need buckets that they divide, and those of the verify graphs are of wider steps: there
            # may be none left. Upstream's constructor wants one.
            self._buckets = [size for size in buckets if size > floor] or buckets[-1:]

    for name, value in settings.items():
        setattr(PlainDecodeGraphRunner, name, _pinned(value))
    return PlainDecodeGraphRunner


def _pinned(value: Any) -> property:
    return property(lambda self: value, lambda self, assigned: None)
