"""What a benchmark writes: flat lists of records, so that results of separate calls merge by appending."""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.settings import Mode

SCHEMA = 1


@dataclass
class Run:
    """One call of the script."""

    run: str  # its start time, ISO 8601; every record names its run
    command: str
    machine: dict[str, Any]
    side_by_side: bool


@dataclass
class EngineRecord:
    """One start of one engine."""

    run: str
    mode: Mode
    report: dict[str, Any]  # start-up seconds, versions, server arguments, memory, the gate's state


@dataclass
class DecodeRecord:
    """One measured round of one batch. Seconds; tokens of all rows."""

    run: str
    mode: Mode
    batch: int
    round: int
    seconds: float
    first_seconds: float | None  # the same batch with one token a row
    window_seconds: float
    tokens: int
    window_tokens: int
    step_seconds: list[float]  # of the probe row, which gets one chunk a step
    step_tokens: list[int]

    @property
    def rate(self) -> float:
        """Decode tokens/s of all rows, between the end of the batch's prefill and its last token."""
        return self.window_tokens / self.window_seconds


@dataclass
class RampRecord:
    """One arrival ramp; times count from its start."""

    run: str
    mode: Mode
    seconds: float
    levels: list[tuple[float, int]]  # (time, clients from then on)
    requests: list[tuple[float, float, int]]  # (start, end, new tokens)
    probe_steps: list[tuple[float, float, int]]  # (end, duration, new tokens)
    state_before: dict[str, Any]
    state_after: dict[str, Any]


@dataclass
class CrossingRecord:
    """One crossing of the threshold, up and down, as one row of the batch saw it."""

    run: str
    mode: Mode
    round: int
    resident: int
    joiners: int
    joined: int
    steps: list[tuple[float, int]]


@dataclass
class Results:
    """All records of one configuration (`settings`), from one run or merged from several."""

    settings: dict[str, Any]
    runs: list[Run] = field(default_factory=list)
    engines: list[EngineRecord] = field(default_factory=list)
    decode: list[DecodeRecord] = field(default_factory=list)
    ramp: list[RampRecord] = field(default_factory=list)
    crossing: list[CrossingRecord] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)  # mode -> why it did not run

    def write(self, path: Path, summary: dict[str, Any]) -> None:
        """Write everything and the figures derived from it; a reader never sees half a file."""
        document = {"schema": SCHEMA, "summary": summary, **dataclasses.asdict(self)}
        temporary = path.with_suffix(".tmp")
        temporary.write_text(_dump(document) + "\n")
        os.replace(temporary, path)


def read(path: Path) -> Results:
    """Raises ValueError when the file is not one of ours."""
    try:
        document = json.loads(path.read_text())
        schema = document["schema"]
    except (OSError, json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a result of bench_fallback.py ({error}); pass its results.json") from error
    if schema != SCHEMA:
        raise ValueError(f"{path} has schema {schema} and this script reads {SCHEMA}; measure again")

    def records(kind: type[Any], name: str) -> list[Any]:
        return [kind(**{**entry, "mode": Mode(entry["mode"])}) for entry in document[name]]

    return Results(
        settings=document["settings"],
        runs=[Run(**entry) for entry in document["runs"]],
        engines=records(EngineRecord, "engines"),
        decode=records(DecodeRecord, "decode"),
        ramp=records(RampRecord, "ramp"),
        crossing=records(CrossingRecord, "crossing"),
        skipped=document["skipped"],
    )


# Where the files lie and how much room an engine takes may differ between calls without changing what is measured.
_MAY_DIFFER = {"model", "draft", "mem_fraction", "max_batch"}


def merge(parts: list[Results]) -> Results:
    """Append the records of several results. Raises ValueError when they were measured with different settings."""
    whole = Results(settings=parts[0].settings)
    for part in parts:
        for name in sorted(whole.settings.keys() | part.settings.keys()):
            one, other = whole.settings.get(name), part.settings.get(name)
            if name in _MAY_DIFFER:  # the same model in another folder is the same model
                one, other = (Path(value).name if isinstance(value, str) else None for value in (one, other))
            if one != other:
                raise ValueError(
                    f"results differ in '{name}' ({one} and {other}); merge runs of one configuration only"
                )
        whole.runs += part.runs
        whole.engines += part.engines
        whole.decode += part.decode
        whole.ramp += part.ramp
        whole.crossing += part.crossing
        whole.skipped.update(part.skipped)
    measured = {record.mode for record in whole.engines}
    whole.skipped = {mode: why for mode, why in whole.skipped.items() if Mode(mode) not in measured}
    return whole


def _dump(document: dict[str, Any]) -> str:
    """JSON with a line for each record: small enough to commit, and readable."""

    def short(value: Any) -> Any:
        if isinstance(value, float):
            return round(value, 6)  # a microsecond
        if isinstance(value, dict):
            return {name: short(entry) for name, entry in value.items()}
        if isinstance(value, list | tuple):
            return [short(entry) for entry in value]
        return value

    lines = []
    for name, value in short(document).items():
        if isinstance(value, list):
            rows = ",\n".join("  " + json.dumps(entry, default=str) for entry in value)
            lines.append(f"{json.dumps(name)}: [\n{rows}\n ]")
        else:
            lines.append(f"{json.dumps(name)}: {json.dumps(value, indent=1, default=str)}")
    return "{\n " + ",\n ".join(lines) + "\n}"
