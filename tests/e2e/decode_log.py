"""SGLang's decode log lines, one a step at ``decode_log_interval=1``, with what our patch adds to them."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE = re.compile(
    r"Decode batch.*?#running-req: (?P<batch>\d+)"
    r"(?:.*?accept len: (?P<accept_len>[\d.]+))?"
    r"(?:.*?gate: (?P<mode>plain|speculative))?"
    r"(?:.*? graph: (?P<graph>True|False))?"
    r".*?gen throughput \(token/s\): (?P<throughput>[\d.]+)"
)


@dataclass(frozen=True)
class DecodeStep:
    """One decode step.

    Attributes:
        batch: running requests.
        mode: "plain" or "speculative", as our patch logs it; None without the gate.
        accept_len: tokens a request gained, as SGLang counts them; None without speculation.
        graph: whether a captured graph ran; None where the log does not say.
        throughput: tokens a second since the step before.
    """

    batch: int
    mode: str | None
    accept_len: float | None
    graph: bool | None
    throughput: float


def read_steps(log: str) -> list[DecodeStep]:
    """All decode steps of a server's log, in order."""
    return [
        DecodeStep(
            batch=int(line["batch"]),
            mode=line["mode"],
            accept_len=None if line["accept_len"] is None else float(line["accept_len"]),
            graph=None if line["graph"] is None else line["graph"] == "True",
            throughput=float(line["throughput"]),
        )
        for line in _LINE.finditer(log)
    ]
