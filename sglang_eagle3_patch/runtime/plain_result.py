"""The result of a plain step, told apart from a speculative one by its type."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from sglang.srt.managers.utils import GenerationBatchResult


@dataclasses.dataclass
class PlainDecodeResult(GenerationBatchResult):  # type: ignore[misc]
    """Runs through the scheduler as a speculative result, and is counted as none (C6)."""

    plain_decode: ClassVar[bool] = True
    # Whether next_draft_input holds draft state worth relaying to the next step, beside the bonus token.
    draft_state_fresh: bool = False
