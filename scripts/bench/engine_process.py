"""The parent's handle on a worker process."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from bench.settings import Mode, Settings, UnsupportedMode


class EngineFailed(Exception):
    """The engine's process ended or refused a command; the message is one sentence and names the log."""


class EngineProcess:
    """Starts one engine; `wait` returns its start-up report. Use as a context manager.

    folder: for the engine's log and generated configuration. cores: all that its processes may use; empty for any.
    """

    def __init__(self, mode: Mode, settings: Settings, folder: Path, cores: Collection[int] = ()) -> None:
        self.mode = mode
        self.log = folder / f"{mode}.log"
        here = Path(__file__).resolve().parent.parent
        path = os.pathsep.join(filter(None, [str(here), os.environ.get("PYTHONPATH", "")]))
        command = [sys.executable, "-m", "bench.worker", mode, json.dumps(dataclasses.asdict(settings)), str(folder)]
        # What is pinned is what the results say: a variable left over in the shell must not change it.
        environment = {name: value for name, value in os.environ.items() if name != "SGLANG_SIMULATE_ACC_LEN"}
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**environment, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **settings.environment(mode)},
            )
        if cores:
            os.sched_setaffinity(self._process.pid, cores)  # its children inherit them

    def wait(self) -> dict[str, Any]:
        """Block until the engine serves; raises UnsupportedMode or EngineFailed."""
        return self._answer()

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Run one of `Bench`'s commands; raises EngineFailed."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"command": command, **arguments}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # the missing answer says it better
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            raise EngineFailed(f"the engine '{self.mode.label}' ended with code {code}; the reason is in {self.log}")
        answer: dict[str, Any] = json.loads(line)
        if "unsupported" in answer:
            raise UnsupportedMode(answer["unsupported"])
        if "refused" in answer:
            raise EngineFailed(f"the engine '{self.mode.label}' refused: {answer['refused']}")
        result: dict[str, Any] = answer["result"]
        return result

    def close(self) -> None:
        """Let the engine shut down by itself; kill it if it does not within a minute."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
