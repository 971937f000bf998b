"""Servers that several tests share: each test takes a turn on a running one and reads what changed meanwhile."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.e2e.decode_log import DecodeStep, read_steps
from tests.e2e.engine import Run, Server, answers, gate_of
from tests.e2e.workload import IDLE_S, Answer, Request


@dataclass(frozen=True)
class Turn(Run):
    """What one workload did to a server: a run whose log is what was printed meanwhile.

    Attributes:
        before: the gate's figures ahead of the workload; empty for a server without the gate.
    """

    before: dict[str, Any]

    @property
    def steps(self) -> list[DecodeStep]:
        """The decode steps, as the log has them."""
        return read_steps(self.log)

    def count(self, name: str) -> int:
        """How much one of the gate's counts grew: plain_steps, speculative_steps, switches, resumes."""
        grown: int = self.gate[name] - self.before[name]
        return grown


def take_turn(server: Server, requests: Sequence[Request]) -> Turn:
    """Serve ``requests`` and wait until the server was idle: by then it has counted its KV slots."""
    before, mark = gate_of(server.get("/server_info")), len(server.log)
    found = answers(server.generate(requests))
    time.sleep(IDLE_S)
    return Turn(found, server.get("/server_info"), server.log[mark:], before)


class Reference:
    """Answers of a server without speculation, each distinct request asked once."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._known: dict[str, Answer] = {}

    def answers(self, requests: Sequence[Request]) -> list[Answer]:
        """One per request, in their order. When each is sent plays no part: greedy output does not depend on it."""
        unknown = {key: request for request in requests if (key := _key(request)) not in self._known}
        replies = self.server.generate([Request(r.input_ids, r.sampling, more=r.more) for r in unknown.values()])
        self._known |= zip(unknown, answers(replies), strict=True)
        return [self._known[_key(request)] for request in requests]

    def outputs(self, requests: Sequence[Request]) -> list[list[int]]:
        """The new tokens of every request."""
        return [answer.output_ids for answer in self.answers(requests)]


def _key(request: Request) -> str:
    return json.dumps([request.input_ids, request.sampling, request.more], sort_keys=True)
