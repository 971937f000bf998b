"""A stand-in for `sglang.Engine`: no model, but steps, batches and a gate. It serves the tests of the traffic and,
installed as a package named `sglang`, those of the worker process.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

__version__ = "0.0.fake"
STEP_SECONDS = 0.001


@dataclass
class ServerArgs:
    """The arguments that the fake knows; the adaptive mode is not among them."""

    model_path: str = ""
    max_total_tokens: int = 0
    speculative_algorithm: str | None = None
    speculative_disable_batch_threshold: int = 0


class Row:
    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.tokens = 0
        self.chunks: asyncio.Queue[int] = asyncio.Queue()


class Engine:
    """Every step gives each row one token, or two while it speculates."""

    def __init__(self, **args: Any) -> None:
        if os.environ.get("FAKE_ENGINE_DIES"):
            os._exit(3)
        self.args = args
        self.loop = asyncio.new_event_loop()
        self.rows: list[Row] = []
        self.largest_batch = 0
        self._stepper: asyncio.Task[None] | None = None
        self.tokenizer_manager = SimpleNamespace(
            model_config=SimpleNamespace(vocab_size=256), get_internal_state=self._internal_state
        )

    def _tokens_a_step(self) -> int:
        threshold = self.args.get("speculative_disable_batch_threshold", 0)
        speculates = self.args.get("speculative_algorithm") and not 0 < threshold < len(self.rows)
        return 2 if speculates else 1

    async def _step(self) -> None:
        while self.rows:
            await asyncio.sleep(STEP_SECONDS)
            self.largest_batch = max(self.largest_batch, len(self.rows))
            count = self._tokens_a_step()
            for row in list(self.rows):
                row.tokens = min(row.wanted, row.tokens + count)
                row.chunks.put_nowait(row.tokens)
                if row.tokens == row.wanted:
                    self.rows.remove(row)

    async def _chunks(self, row: Row) -> AsyncIterator[dict[str, Any]]:
        tokens = 0
        while tokens < row.wanted:
            tokens = await row.chunks.get()
            yield {"meta_info": {"completion_tokens": tokens}}

    async def async_generate(
        self, *, input_ids: list[int], sampling_params: dict[str, Any], stream: bool = False
    ) -> dict[str, Any] | AsyncIterator[dict[str, Any]]:
        row = Row(sampling_params["max_new_tokens"])
        self.rows.append(row)
        if self._stepper is None or self._stepper.done():
            self._stepper = asyncio.ensure_future(self._step())
        if stream:
            return self._chunks(row)
        answer: dict[str, Any] = {}
        async for chunk in self._chunks(row):
            answer = chunk
        return answer

    async def _internal_state(self) -> list[dict[str, Any]]:
        pinned = os.environ.get("SGLANG_SIMULATE_ACC_LEN")
        return [{"model_path": "an argument", "largest_batch": self.largest_batch, "accept_length": pinned}]

    def get_server_info(self) -> dict[str, Any]:
        return {"version": __version__, "max_total_num_tokens": self.args["max_total_tokens"]}

    def shutdown(self) -> None:
        print("fake engine shut down")  # to stdout, which must not disturb the answers
