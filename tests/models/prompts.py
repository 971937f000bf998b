"""The language that the trained pair speaks, and prompts in it. Pure Python: tests, quick start and benchmark use it.

A text is a ring of ``KEYS`` counters, read aloud. Every token names a key and its value, and each time round every
value goes up by one (modulo ``VALUES``):

    round 1:  (k, 3) (k+1, 0) (k+2, 7) ...      the values are drawn: only this text has them
    round 2:  (k, 4) (k+1, 1) (k+2, 0) ...      each value has to be looked up KEYS tokens back

Who sees only the last token knows the next key but not its value, and is right once in ``VALUES``. Who looks further
back than the last round finds an outdated value. A key that the prompt did not reach starts at 0, so that a prompt of
any length goes on in one way only.
"""

from __future__ import annotations

import random

KEYS = 48
VALUES = 8
# The ids below are the special ones (padding 0, beginning 1, end 2, spare) and never occur in a text.
FIRST_ID = 8
VOCAB = FIRST_ID + KEYS * VALUES


def token(key: int, value: int) -> int:
    """The id of the token that says: counter ``key`` (modulo ``KEYS``) stands at ``value`` (modulo ``VALUES``)."""
    return FIRST_ID + (key % KEYS) * VALUES + value % VALUES


def text(rng: random.Random, length: int, drawn: int = KEYS) -> list[int]:
    """A text of ``length`` token ids whose first ``drawn`` counters start at random values, the others at 0."""
    start = rng.randrange(KEYS)
    first = [rng.randrange(VALUES) if i < drawn else 0 for i in range(KEYS)]
    return [token(start + i, first[i % KEYS] + i // KEYS) for i in range(length)]


def prompt(length: int, seed: int) -> list[int]:
    """A text of ``length`` token ids, the same one for the same ``seed``."""
    return text(random.Random(seed), length)


def make_prompts(n: int, seed: int, length: int = 2 * KEYS) -> list[list[int]]:
    """``n`` prompts of ``length`` token ids each, the same ones for the same ``seed``."""
    rng = random.Random(seed)
    return [text(rng, length) for _ in range(n)]


def continuation(prompt: list[int], length: int) -> list[int]:
    """The ``length`` token ids after ``prompt``, as a model that makes no mistake says them."""
    known = list(prompt)
    for _ in range(length):
        if len(known) >= KEYS:
            key, value = divmod(known[-KEYS] - FIRST_ID, VALUES)
            known.append(token(key, value + 1))
        else:
            known.append(token((known[-1] - FIRST_ID) // VALUES + 1, 0))
    return known[len(prompt) :]
