"""The one way the installer says no."""

from __future__ import annotations


class Refusal(Exception):
    """Something is not as it must be; nothing was changed. One sentence: what, where, what to do.

    Attributes:
        reasons: the separate findings behind the sentence, for `--json`.
    """

    def __init__(self, sentence: str, reasons: tuple[str, ...] = ()) -> None:
        super().__init__(sentence)
        self.reasons = reasons
