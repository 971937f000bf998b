"""The policy: which mode a decode step runs in, and how many KV slots it may reserve. Pure Python, no torch."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Mode(enum.Enum):
    """How a decode step runs."""

    SPECULATIVE = "speculative"
    PLAIN = "plain"


@dataclass
class BatchGate:
    """Decides each decode step by its real (unpadded) batch size and counts what was decided.

    The decision is a function of the batch size and the threshold alone, both known to every rank (C5); what is
    remembered here only sizes KV reserves and feeds the metrics.
    """

    threshold: int = 0
    last_mode: Mode | None = None
    # Under overlap results are processed one step after the next one was decided; the log speaks of results.
    processed_mode: Mode | None = None
    plain_steps: int = 0
    speculative_steps: int = 0
    switches: int = 0
    resumes: int = 0
    # A draft sync that writes a whole speculative window needs its slots even in a plain step.
    plain_step_writes_window: bool = False

    @property
    def enabled(self) -> bool:
        return self.threshold > 0

    def mode(self, batch_size: int) -> Mode:
        """The mode of a decode step over ``batch_size`` requests."""
        return Mode.PLAIN if self.enabled and batch_size > self.threshold else Mode.SPECULATIVE

    def enter(self, batch_size: int) -> Mode:
        """Decide a step that is about to run, and count it."""
        mode = self.mode(batch_size)
        if mode is Mode.PLAIN:
            self.plain_steps += 1
        else:
            self.speculative_steps += 1
        if self.last_mode is not None and mode is not self.last_mode:
            self.switches += 1
        self.last_mode = mode
        return mode

    def kv_reserve(self, batch_size: int, speculative_reserve: int) -> int:
        """KV slots that each request of the coming step needs beyond its committed length.

        Under overlap the committed length lags by the step in flight. Between two plain steps that is one slot,
        plus the one about to be written. Right after a speculative step it is a whole accepted run, so that step
        still reserves as upstream does.
        """
        plain = self.mode(batch_size) is Mode.PLAIN and self.last_mode is Mode.PLAIN
        if not plain or self.plain_step_writes_window:
            return speculative_reserve
        return min(2, speculative_reserve)

    def state(self) -> dict[str, int | str | None]:
        """What /server_info shows under ``speculative_gate``."""
        return {
            "threshold": self.threshold,
            "mode": self.last_mode.value if self.last_mode else None,
            "plain_steps": self.plain_steps,
            "speculative_steps": self.speculative_steps,
            "switches": self.switches,
            "resumes": self.resumes,
        }


# One scheduler process runs one worker: the scheduler's hooks and the worker share this gate.
GATE = BatchGate()
