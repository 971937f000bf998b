"""What to ask of an engine, and in which order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

# Seconds to leave an engine idle: the scheduler then counts its KV slots, and ends the engine if one is missing.
IDLE_S = 1.0


@dataclass(frozen=True)
class Request:
    """One generation.

    Attributes:
        input_ids: the prompt, as token ids.
        sampling: SGLang's sampling parameters.
        after: indices of the requests that have to end before this one is sent.
        delay_s: seconds to wait then.
        abort_after_s: seconds after which the client aborts it; None never.
        more: further arguments of SGLang's generate call, such as ``return_logprob``.
    """

    input_ids: list[int]
    sampling: dict[str, Any]
    after: tuple[int, ...] = ()
    delay_s: float = 0.0
    abort_after_s: float | None = None
    more: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """What came back: the new tokens and SGLang's ``meta_info``."""

    output_ids: list[int]
    meta_info: dict[str, Any]


Reply = dict[str, Any]
Send = Callable[[Request, str], Awaitable[Reply]]
Abort = Callable[[str], Awaitable[None]]


def greedy(max_new_tokens: int) -> dict[str, Any]:
    """Sampling parameters: the argmax, exactly ``max_new_tokens`` of them."""
    return {"temperature": 0.0, "max_new_tokens": max_new_tokens, "ignore_eos": True}


def prompt(length: int, seed: int, vocab: int = 256) -> list[int]:
    """Random token ids, without the special ones (0 to 2)."""
    chance = random.Random(seed)
    return [chance.randrange(3, vocab) for _ in range(length)]


def shrinking_then_growing(
    n: int = 8, *, first: int = 16, step: int = 12, say: Callable[[int, int], list[int]] = prompt
) -> list[Request]:
    """A batch that shrinks from ``n`` to 1, grows to ``n`` again and shrinks to 1 once more.

    Request i of a wave is ``step`` tokens longer than request i - 1; the last one of the first wave lives on alone
    until the second wave has joined it and is through. ``say`` makes a prompt from a length and a seed.
    """
    lengths = [first + step * i for i in range(n - 1)]
    survivor = 4 * lengths[-1]
    waves = [Request(say(5 + 4 * i, i), greedy(length)) for i, length in enumerate(lengths)]
    waves.append(Request(say(9, n), greedy(survivor)))
    but_the_survivor = tuple(range(n - 1))
    waves += [
        Request(say(7 + 3 * i, 100 + i), greedy(length), after=but_the_survivor) for i, length in enumerate(lengths)
    ]
    return waves


async def drive(requests: Sequence[Request], send: Send, abort: Abort) -> list[Reply]:
    """Send every request at its time, side by side, and return the replies in the order of ``requests``."""
    ended = [asyncio.Event() for _ in requests]

    async def one(index: int, request: Request) -> Reply:
        for earlier in request.after:
            await ended[earlier].wait()
        await asyncio.sleep(request.delay_s)
        rid = f"request-{index:04}"  # of one width: SGLang aborts whoever's id starts with the given one
        reply = asyncio.ensure_future(send(request, rid))
        if request.abort_after_s is not None:
            await asyncio.wait([reply], timeout=request.abort_after_s)
            if not reply.done():
                await abort(rid)
        try:
            return await reply
        finally:
            ended[index].set()

    return list(await asyncio.gather(*(one(i, request) for i, request in enumerate(requests))))
