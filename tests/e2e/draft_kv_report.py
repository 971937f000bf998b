"""What draft_kv_probe.py found in a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from tests.e2e import draft_kv_probe


class Resumed(NamedTuple):
    """One request at a resume.

    Attributes:
        positions: how many positions plain steps had committed since its last speculative step.
        differences: for each, the largest difference of K and of V from a full draft extend.
    """

    positions: int
    differences: list[list[float]]


def report_to(folder: Path) -> dict[str, str]:
    """The variables that put the probe into an engine; it reports to ``folder``."""
    return {"CPU_REFERENCE_HOOKS": str(draft_kv_probe.__file__), "DRAFT_KV_REPORT": str(folder)}


def resumes(folder: Path) -> list[Resumed]:
    """Every request of every resume, on every rank."""
    lines = (line for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().splitlines())
    return [Resumed(**json.loads(line)) for line in lines]
