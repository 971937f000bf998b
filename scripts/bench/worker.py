"""One engine in a process of its own: `python -m bench.worker MODE SETTINGS_JSON FOLDER`.

Commands come as JSON lines on stdin, answers go as JSON lines to what was stdout at the start. Everything that SGLang
and its children print goes to stderr, which the parent sends to a log file.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import Any

from bench import traffic
from bench.settings import Mode, Settings, UnsupportedMode

_PACKAGES = ("sglang", "torch", "triton", "sglang-kernel", "flashinfer-python", "transformers")


def _versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    try:
        import sglang_eagle3_patch  # may lie beside SGLang without being installed
    except ImportError:
        return found
    return {**found, "sglang-eagle3-patch": sglang_eagle3_patch.__version__}


class Bench:
    """The engine under test and the commands it answers."""

    def __init__(self, mode: Mode, settings: Settings, folder: Path) -> None:
        import sglang
        from sglang.srt.server_args import ServerArgs

        self.settings = settings
        self._known = set(inspect.signature(ServerArgs).parameters)
        args = settings.server_args(mode, self._known, folder)
        start = perf_counter()
        self.engine: Any = sglang.Engine(**args)
        self._run: Callable[[Any], Any] = self.engine.loop.run_until_complete
        self.vocabulary = min(30000, int(self.engine.tokenizer_manager.model_config.vocab_size))
        self._warm: set[int] = set()
        info = self.engine.get_server_info()
        self.pool = int(info.get("max_total_num_tokens") or settings.pool_tokens)
        self.ready = {
            "startup_seconds": perf_counter() - start,
            "versions": {**_versions(), "sglang": str(info.get("version", _versions().get("sglang")))},
            "server_args": args,
            "attention_backend": info.get("attention_backend"),
            "kv_pool_tokens": self.pool,
            "state": self.state(),
        }

    def state(self) -> dict[str, Any]:
        """What the scheduler reports beside its arguments: memory, throughput, the gate's counters if it has any."""
        states = self._run(self.engine.tokenizer_manager.get_internal_state())
        return {name: value for name, value in states[0].items() if name not in self._known}

    def _prompts(self, count: int, new_tokens: int) -> list[traffic.Prompt]:
        need = count * (self.settings.prompt_tokens + new_tokens)
        if need > self.pool:
            raise ValueError(
                f"{count} requests need {need} KV slots and this engine has {self.pool}; "
                "use smaller batches, shorter requests, or raise --mem-fraction"
            )
        return traffic.make_prompts(count, self.settings.prompt_tokens, self.vocabulary)

    def _warm_up(self, prompts: list[traffic.Prompt]) -> None:
        """Compile the kernels of this batch size before a measured round needs them."""
        if len(prompts) not in self._warm:
            self._run(traffic.decode(self.engine, prompts, 16))
            self._warm.add(len(prompts))

    def decode(self, batch: int, cross_check: bool) -> dict[str, Any]:
        new_tokens = self.settings.new_tokens
        prompts = self._prompts(batch, new_tokens)
        self._warm_up(prompts)
        first = self._run(traffic.first_tokens(self.engine, prompts)) if cross_check else None
        return {"first_seconds": first, **asdict(self._run(traffic.decode(self.engine, prompts, new_tokens)))}

    def ramp(self, clients: list[int], hold: float) -> dict[str, Any]:
        new_tokens = self.settings.ramp_tokens
        prompts = self._prompts(max(clients), new_tokens)
        self._warm_up(prompts)
        before = self.state()
        run = self._run(traffic.ramp(self.engine, prompts, clients, hold, new_tokens))
        return {**asdict(run), "state_before": before, "state_after": self.state()}

    def crossing(self, resident: int, joiners: int, settle_tokens: int) -> dict[str, Any]:
        prompts = self._prompts(resident + joiners, 4 * settle_tokens)
        self._warm_up(prompts)
        load = traffic.crossing(self.engine, prompts[:resident], prompts[resident:], settle_tokens)
        return asdict(self._run(load))

    def shutdown(self) -> None:
        self.engine.shutdown()


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)  # not inherited by SGLang's children
    os.dup2(2, 1)
    mode, settings, folder = Mode(sys.argv[1]), Settings(**json.loads(sys.argv[2])), Path(sys.argv[3])

    def answer(**fields: Any) -> None:
        answers.write(json.dumps(fields, default=str) + "\n")

    try:
        bench = Bench(mode, settings, folder)
    except UnsupportedMode as reason:
        answer(unsupported=str(reason))
        return
    answer(result=bench.ready)
    for line in sys.stdin:
        command = json.loads(line)
        name = command.pop("command")
        try:
            answer(result=getattr(bench, name)(**command))
        except ValueError as reason:
            answer(refused=str(reason))
    bench.shutdown()


if __name__ == "__main__":
    main()
