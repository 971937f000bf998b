"""The order in which a workload is sent, and what is read from logs. No SGLang needed."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from tests.e2e.decode_log import DecodeStep, read_steps
from tests.e2e.errors import EngineDied, original_error
from tests.e2e.workload import Reply, Request, drive, greedy, prompt, shrinking_then_growing


class FakeEngine:
    """Decodes one token per tick for every running request, and remembers the batch of each tick."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.aborted: set[str] = set()
        self._running = 0

    async def send(self, request: Request, rid: str) -> Reply:
        self._running += 1
        done = 0
        while done < request.sampling["max_new_tokens"] and rid not in self.aborted:
            await asyncio.sleep(0)
            self.batches.append(self._running)
            done += 1
        self._running -= 1
        return {"rid": rid, "tokens": done}

    async def abort(self, rid: str) -> None:
        self.aborted.add(rid)


def run(requests: list[Request]) -> tuple[FakeEngine, list[Reply]]:
    engine = FakeEngine()
    return engine, asyncio.run(drive(requests, engine.send, engine.abort))


def test_the_batch_shrinks_to_one_grows_again_and_shrinks_again() -> None:
    engine, replies = run(shrinking_then_growing(8))
    turns = [batch for i, batch in enumerate(engine.batches) if i == 0 or batch != engine.batches[i - 1]]
    assert turns == [8, 7, 6, 5, 4, 3, 2, 1, 8, 7, 6, 5, 4, 3, 2, 1]
    assert [reply["rid"] for reply in replies] == [f"request-{i:04}" for i in range(15)]


def test_a_request_waits_for_all_it_names() -> None:
    short, long = Request(prompt(3, seed=0), greedy(2)), Request(prompt(3, seed=1), greedy(9))
    engine, _ = run([short, long, replace(short, after=(0, 1))])
    assert max(engine.batches[-2:]) == 1


def test_an_abort_ends_a_request_early() -> None:
    engine, replies = run([Request([3], greedy(10**9), abort_after_s=0.01)])
    assert engine.aborted == {"request-0000"}
    assert replies[0]["tokens"] < 10**9


def test_decode_log_with_and_without_the_gate() -> None:
    gated = (
        "[2026-01-01 00:00:00] Decode batch, #running-req: 5, #token: 176, token usage: 0.04, accept len: 0.00, accept "
        "rate: 0.00, gate: plain, cpu graph: False, gen throughput (token/s): 127.17, #queue-req: 0"
    )
    plain = (
        "Decode batch, #running-req: 3, #token: 9, token usage: 0.04, cpu graph: False, gen throughput (token/s): 8.0"
    )
    assert read_steps(f"{gated}\n{plain}\n") == [
        DecodeStep(batch=5, mode="plain", accept_len=0.0, graph=False, throughput=127.17),
        DecodeStep(batch=3, mode=None, accept_len=None, graph=False, throughput=8.0),
    ]


def test_the_first_exception_is_the_cause() -> None:
    log = (
        "Traceback (most recent call last):\n"
        '  File "warmup.py", line 1, in f\n'
        "ConnectionRefusedError: the server is not up yet\n"
        "[t] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "a.py", line 1, in f\n'
        "    g()\n"
        "AttributeError: 'A' object has no attribute 'b'\n"
        "Traceback (most recent call last):\n"
        '  File "b.py", line 1, in f\n'
        "EOFError\n"
    )
    assert original_error(log, 1, 300) == "AttributeError: 'A' object has no attribute 'b'"
    assert "not done after 300 s" in original_error("", None, 300)
    assert "status -9" in original_error("no traceback here\n", -9, 300)
    assert "EOFError" in str(EngineDied("x", 1, log))
