"""The requests that load an engine: a fixed batch, an arrival ramp, a controlled crossing of the threshold.

Times are seconds on the caller's clock. One request of each load, the probe, streams: its chunks are the engine's
steps, one chunk a step. All others report when they finish, so that no measurement pays for 256 token streams.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Protocol

Prompt = list[int]


class Engine(Protocol):
    """The part of `sglang.Engine` that the loads use."""

    async def async_generate(
        self, *, input_ids: Prompt, sampling_params: dict[str, Any], stream: bool = False
    ) -> dict[str, Any] | AsyncIterator[dict[str, Any]]: ...


@dataclass
class Probe:
    """What a streaming request saw: when each step's tokens came, and how many it had by then."""

    seconds: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    @property
    def steps(self) -> list[tuple[float, int]]:
        """(time since the chunk before, new tokens) of every chunk after the first."""
        times = zip(self.seconds, self.seconds[1:], strict=False)
        counts = zip(self.tokens, self.tokens[1:], strict=False)
        return [(t1 - t0, n1 - n0) for (t0, t1), (n0, n1) in zip(times, counts, strict=True)]


def make_prompts(count: int, length: int, vocabulary: int, seed: int = 0) -> list[Prompt]:
    """Random prompts that share no prefix. Ids stay above 9, clear of special tokens."""
    rng = random.Random(seed)
    return [[rng.randrange(10, vocabulary) for _ in range(length)] for _ in range(count)]


def _greedy(new_tokens: int) -> dict[str, Any]:
    return {"max_new_tokens": new_tokens, "ignore_eos": True, "temperature": 0}


async def ask(engine: Engine, prompt: Prompt, new_tokens: int) -> int:
    """One request; returns its new tokens."""
    answer: Any = await engine.async_generate(input_ids=prompt, sampling_params=_greedy(new_tokens))
    return int(answer["meta_info"]["completion_tokens"])


async def watch(engine: Engine, prompt: Prompt, new_tokens: int, probe: Probe) -> int:
    """One streaming request that fills `probe` as it runs; returns its new tokens."""
    chunks: Any = await engine.async_generate(input_ids=prompt, sampling_params=_greedy(new_tokens), stream=True)
    async for chunk in chunks:
        probe.seconds.append(perf_counter())
        probe.tokens.append(int(chunk["meta_info"]["completion_tokens"]))
    return probe.tokens[-1]


@dataclass
class DecodeRun:
    """One batch from submission to its last token."""

    seconds: float  # whole run
    window_seconds: float  # from the probe's first token to the last row's last
    tokens: int  # all rows
    window_tokens: int
    steps: list[tuple[float, int]]


async def decode(engine: Engine, prompts: Sequence[Prompt], new_tokens: int) -> DecodeRun:
    """Run all prompts at once. The probe is submitted last, so its first token marks the end of the batch's prefill."""
    probe = Probe()
    start = perf_counter()
    rows = [asyncio.ensure_future(ask(engine, prompt, new_tokens)) for prompt in prompts[:-1]]
    rows.append(asyncio.ensure_future(watch(engine, prompts[-1], new_tokens, probe)))
    tokens = sum(await asyncio.gather(*rows))
    end = perf_counter()
    return DecodeRun(
        seconds=end - start,
        window_seconds=end - probe.seconds[0],
        tokens=tokens,
        window_tokens=tokens - len(prompts) * probe.tokens[0],
        steps=probe.steps,
    )


async def first_tokens(engine: Engine, prompts: Sequence[Prompt]) -> float:
    """Seconds that the same batch takes for one token a row: prefill and nothing else."""
    start = perf_counter()
    await asyncio.gather(*(ask(engine, prompt, 1) for prompt in prompts))
    return perf_counter() - start


@dataclass
class RampRun:
    """An arrival ramp. Times count from its start."""

    levels: list[tuple[float, int]] = field(default_factory=list)  # (time, clients from then on)
    requests: list[tuple[float, float, int]] = field(default_factory=list)  # (start, end, new tokens)
    probe_steps: list[tuple[float, float, int]] = field(default_factory=list)  # (end, duration, new tokens)
    seconds: float = 0.0


async def ramp(
    engine: Engine,
    prompts: Sequence[Prompt],
    clients: Sequence[int],
    hold: float,
    new_tokens: int,
    on_level: Callable[[int], None] = lambda clients: None,
) -> RampRun:
    """Closed loop: each client sends its next request when the last one ends; level after level lasts `hold` seconds.

    A client that a level has no room for finishes its request and leaves. Client 0 lives in every level and streams.
    """
    run = RampRun()
    start = perf_counter()
    wanted = 0
    live: dict[int, asyncio.Future[None]] = {}

    async def client(index: int) -> None:
        sent = 0
        while index < wanted:
            prompt = prompts[(index + sent * len(clients)) % len(prompts)]
            sent += 1
            begin = perf_counter() - start
            if index == 0:
                probe = Probe()
                tokens = await watch(engine, prompt, new_tokens, probe)
                ends = [second - start for second in probe.seconds[1:]]
                run.probe_steps += [(end, *step) for end, step in zip(ends, probe.steps, strict=True)]
            else:
                tokens = await ask(engine, prompt, new_tokens)
            run.requests.append((begin, perf_counter() - start, tokens))

    for wanted in clients:
        on_level(wanted)
        run.levels.append((perf_counter() - start, wanted))
        for index in range(wanted):
            if index not in live or live[index].done():
                live[index] = asyncio.ensure_future(client(index))
        await asyncio.sleep(hold)
    wanted = 0
    run.seconds = perf_counter() - start
    await asyncio.gather(*live.values())
    return run


@dataclass
class CrossingRun:
    """The probe's view of a batch that grows over the threshold and shrinks again. Indices are into `steps`."""

    steps: list[tuple[float, int]]
    joined: int  # the first step that ends after the joiners were sent


async def crossing(
    engine: Engine, resident: Sequence[Prompt], joiners: Sequence[Prompt], settle_tokens: int
) -> CrossingRun:
    """`resident` requests run throughout; once the probe among them has `settle_tokens`, the joiners come and go."""
    probe = Probe()
    long = 4 * settle_tokens
    rows = [asyncio.ensure_future(ask(engine, prompt, long)) for prompt in resident[:-1]]
    rows.append(asyncio.ensure_future(watch(engine, resident[-1], long, probe)))
    while not rows[-1].done() and (not probe.tokens or probe.tokens[-1] < settle_tokens):
        await asyncio.sleep(0.001)
    joined = max(0, len(probe.seconds) - 1)
    rows += [asyncio.ensure_future(ask(engine, prompt, settle_tokens)) for prompt in joiners]
    await asyncio.gather(*rows)
    return CrossingRun(steps=probe.steps, joined=joined)
