"""Which request rows hold draft state that a speculative step may start from. Pure Python, no torch."""

from __future__ import annotations

from collections.abc import Iterable


class StaleRows:
    """Rows of the request pool whose draft state is older than their last token.

    A plain step makes its rows stale; a prefill or a resume makes its rows fresh. The rule is kept by pool row, as
    SGLang keeps draft state by pool row, and on the CPU, so that a speculative step knows without a device sync
    whether it must resume first. A row that a new request takes over is prefilled first, so it never inherits.
    """

    def __init__(self) -> None:
        self._rows: set[int] = set()

    def mark(self, rows: Iterable[int]) -> None:
        self._rows.update(rows)

    def clear(self, rows: Iterable[int]) -> None:
        self._rows.difference_update(rows)

    def any_of(self, rows: Iterable[int]) -> bool:
        return bool(self._rows) and not self._rows.isdisjoint(rows)
