"""What an engine died of, in its own words."""

from __future__ import annotations

_TAIL_LINES = 15


class EngineDied(RuntimeError):
    """The engine ended before its work was done.

    Attributes:
        status: exit status of the process; None if it ran out of time.
        log: everything it printed.
    """

    def __init__(self, cause: str, status: int | None, log: str) -> None:
        tail = "\n".join(log.splitlines()[-_TAIL_LINES:])
        super().__init__(f"{cause}\n--- last lines of the engine's log ---\n{tail}")
        self.cause = cause
        self.status = status
        self.log = log


def original_error(log: str, status: int | None, timeout_s: float) -> str:
    """The scheduler's exception, or else the first in the log, as Python prints it; what follows is the fall-out."""
    lines = log.splitlines()
    crash = next((i for i, line in enumerate(lines) if "Scheduler hit an exception" in line), 0)
    for start, line in enumerate(lines[crash:], crash):
        if "Traceback (most recent call last):" not in line:
            continue
        for end in range(start + 1, len(lines)):
            if lines[end] and not lines[end][0].isspace():
                return lines[end]
    if status is None:
        return f"The engine was not done after {timeout_s:.0f} s."
    return f"The engine ended with status {status} and printed no exception."
