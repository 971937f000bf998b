"""What a server's log says about the gate, and what it means that the start-up line is not there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

START_LINE = re.compile(r"EAGLE-3 batch gate: threshold=\d+ \((?:off|on)[^)\n]*\)")
MISSING_ATTRIBUTE = re.compile(r"AttributeError: '(\w+)' object has no attribute '(\w+)'")
FIRST_ERROR = re.compile(r"^(?:\[[^\]]*\] ?)*((?:\w+\.)*\w*(?:Error|Exception|Interrupt)\b.*)$", re.MULTILINE)


@dataclass(frozen=True)
class LogReport:
    """What was found in a log.

    Attributes:
        file: the log.
        start_line: the gate's start-up line, or None.
        first_error: the first exception in it, or None.
        meaning: one sentence each.
    """

    file: Path
    start_line: str | None
    first_error: str | None
    meaning: tuple[str, ...]


def read_log(file: Path, active: bool, owners: dict[str, list[str]]) -> LogReport:
    """Read a server's log.

    Args:
        file: the log.
        active: the tree is patched, and is the one that this Python imports.
        owners: by class of ours, the attributes that it defines.

    Raises:
        OSError: the log can't be read.
    """
    text = file.read_text(encoding="utf-8", errors="replace")
    start = START_LINE.search(text)
    error = FIRST_ERROR.search(text)
    meaning: list[str] = []
    if start:
        meaning.append("the gate is in the server that wrote this log, and its constructor was reached")
    else:
        meaning.append("no start-up line: it is logged at every start, off or on, so the patched code did not run")
        if not active:
            meaning.append("the tree that Python imports is not patched: run `apply` on it")
        if error and (not start or error.start() < start.start()):
            meaning.append(f"or the server died before that line, of: {error[1]}")
        meaning.append(
            "or the server imported another SGLang (its working directory comes first), or logs no INFO lines"
        )
    for owner, attribute in MISSING_ATTRIBUTE.findall(text):
        defined = [name for name, attributes in owners.items() if attribute in attributes]
        who = f"{', '.join(defined)} defines it" if defined else "no class of sglang_eagle3_patch defines it"
        meaning.append(f"{owner} has no attribute {attribute}: {who} (docs/crash.md)")
    return LogReport(file, start[0] if start else None, error[1] if error else None, tuple(dict.fromkeys(meaning)))
