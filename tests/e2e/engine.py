"""Start a real SGLang on the CPU reference, in a process of its own, and feed it a workload.

``run_engine`` uses the offline Engine, ``run_server`` the HTTP server (``python -m sglang.launch_server``). Both return
a ``Run``, or raise ``EngineDied`` with the error that SGLang itself reported: a lost KV slot is one, for SGLang counts
them whenever it is idle.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from tests.e2e.errors import EngineDied, original_error
from tests.e2e.host import Host, cpu
from tests.e2e.workload import IDLE_S, Answer, Reply, Request, drive

DEFAULT_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Run:
    """One engine's life.

    Attributes:
        answers: one per request, in their order.
        server_info: what /server_info says once the engine is idle.
        log: everything the engine's processes printed.
    """

    answers: list[Answer]
    server_info: dict[str, Any]
    log: str

    @property
    def outputs(self) -> list[list[int]]:
        """The new tokens of every request."""
        return [answer.output_ids for answer in self.answers]

    @property
    def internal_state(self) -> dict[str, Any]:
        """The first scheduler's part of ``server_info``."""
        state: dict[str, Any] = self.server_info["internal_states"][0]
        return state

    @property
    def gate(self) -> dict[str, Any]:
        """Our own figures: threshold, mode, plain_steps, speculative_steps, resumes."""
        return gate_of(self.server_info)


def gate_of(server_info: Mapping[str, Any]) -> dict[str, Any]:
    """The gate's figures in a /server_info; empty without the gate."""
    figures: dict[str, Any] = server_info["internal_states"][0].get("speculative_gate", {})
    return figures


def run_engine(
    tree: Path,
    server_args: Mapping[str, Any],
    requests: Sequence[Request],
    *,
    variables: Mapping[str, str] | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    host: Host | None = None,
) -> Run:
    """Serve ``requests`` with an ``sglang.Engine`` of ``tree``, then let it go idle and shut it down.

    Args:
        tree: folder that holds ``sglang/``.
        server_args: arguments of the engine, on top of the host's; ``model_path`` is a must.
        requests: what to ask.
        variables: environment variables on top of the host's.
        timeout_s: seconds for all of it.
        host: where it runs; the CPU reference if left out.

    Raises:
        EngineDied: it ended before it answered everything, or ran out of time.
    """
    host = host or cpu()
    with tempfile.TemporaryDirectory(prefix="engine-") as folder:
        job, result = Path(folder) / "job.json", Path(folder) / "result.json"
        args = host.server_args(tree, **server_args)
        job.write_text(json.dumps({"server_args": args, "requests": [asdict(r) for r in requests]}, default=str))
        command = [str(host.python), "-m", "tests.e2e.engine_child", str(job), str(result)]
        with _process(command, host.variables(tree) | dict(variables or {}), Path(folder)) as (process, log):
            try:
                status: int | None = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                status = None
        text = log.read_text(errors="replace")
        if status != 0 or not result.exists():
            raise EngineDied(original_error(text, status, timeout_s), status, text)
        outcome = json.loads(result.read_text())
        return Run(answers(outcome["replies"]), outcome["server_info"], text)


def run_server(
    tree: Path,
    server_args: Mapping[str, Any],
    requests: Sequence[Request],
    *,
    variables: Mapping[str, str] | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    host: Host | None = None,
) -> Run:
    """As ``run_engine``, through HTTP: ``python -m sglang.launch_server`` and its /generate."""
    with tempfile.TemporaryDirectory(prefix="server-") as folder:
        with server(tree, server_args, Path(folder), variables=variables, timeout_s=timeout_s, host=host) as running:
            replies = running.generate(requests)
            time.sleep(IDLE_S)
            info = running.get("/server_info")
        return Run(answers(replies), info, running.log)


class Server:
    """A running HTTP server. Every method raises EngineDied if it has ended meanwhile."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, log_file: Path, timeout_s: float) -> None:
        self._process = process
        self._log_file = log_file
        self._timeout_s = timeout_s
        self.url = url

    @property
    def log(self) -> str:
        """Everything printed so far."""
        return self._log_file.read_text(errors="replace")

    def get(self, path: str) -> dict[str, Any]:
        """The JSON object at ``path``."""
        return self._ask(path, None)

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """POST a JSON object to ``path``; returns the JSON object that comes back."""
        return self._ask(path, body)

    def generate(self, requests: Sequence[Request], on_reply: Callable[[], None] = lambda: None) -> list[Reply]:
        """Serve a workload; the replies come in the order of ``requests``. ``on_reply`` is called after each."""
        with ThreadPoolExecutor(max_workers=len(requests) + 1) as pool:

            async def ask(path: str, body: Mapping[str, Any]) -> Reply:
                return await asyncio.get_running_loop().run_in_executor(pool, self.post, path, body)

            async def send(request: Request, rid: str) -> Reply:
                body = {"input_ids": request.input_ids, "sampling_params": request.sampling, "rid": rid}
                reply = await ask("/generate", body | request.more)
                on_reply()
                return reply

            async def abort(rid: str) -> None:
                await ask("/abort_request", {"rid": rid})

            return asyncio.run(drive(requests, send, abort))

    def wait_until_ready(self) -> None:
        """Return once /health answers."""
        end = time.monotonic() + self._timeout_s
        while True:
            self._raise_if_ended()
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/health", timeout=5):
                return
            if time.monotonic() > end:
                raise EngineDied(original_error(self.log, None, self._timeout_s), None, self.log)
            time.sleep(0.2)

    def _ask(self, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s) as reply:
                text = reply.read()
        except OSError as error:
            # The server has a moment to end: its own error says more than a broken connection.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
            self._raise_if_ended()
            detail = error.read().decode(errors="replace") if isinstance(error, urllib.error.HTTPError) else str(error)
            raise RuntimeError(f"{path} failed: {detail}") from error
        found: dict[str, Any] = json.loads(text) if text else {}
        return found

    def _raise_if_ended(self) -> None:
        status = self._process.poll()
        if status is not None:
            raise EngineDied(original_error(self.log, status, self._timeout_s), status, self.log)


@contextlib.contextmanager
def server(
    tree: Path,
    server_args: Mapping[str, Any],
    folder: Path,
    *,
    variables: Mapping[str, str] | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    host: Host | None = None,
) -> Iterator[Server]:
    """A ready HTTP server, ended with all its processes at exit. Its log goes to ``folder``."""
    host = host or cpu()
    port = _free_port()
    args = host.server_args(tree, **server_args, host="127.0.0.1", port=port)
    command = [str(host.python), "-m", "sglang.launch_server", *_flags(args)]
    with _process(command, host.variables(tree) | dict(variables or {}), folder) as (process, log):
        running = Server(process, f"http://127.0.0.1:{port}", log, timeout_s)
        running.wait_until_ready()
        yield running


def answers(replies: Sequence[Reply]) -> list[Answer]:
    """Replies of SGLang's generate call, typed."""
    return [Answer(reply["output_ids"], reply["meta_info"]) for reply in replies]


def _flags(args: Mapping[str, Any]) -> list[str]:
    """Server arguments as command-line flags; False and None are left out, as they are everybody's default."""
    flags = []
    for name, value in args.items():
        if value is None or value is False:
            continue
        flags.append("--" + name.replace("_", "-"))
        if value is not True:
            flags += map(str, value if isinstance(value, list) else [value])
    return flags


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def _process(
    command: Sequence[str], variables: Mapping[str, str], folder: Path
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A process in a session of its own, output to a file; the whole session is gone at exit."""
    log_file = folder / "log.txt"
    log: IO[bytes]
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield process, log_file
        finally:
            _end_session(process.pid)
            process.wait()


def _end_session(session: int) -> None:
    """Kill every process of a session: SGLang starts several, and some change their process group."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getsid(int(entry.name)) == session:
                    os.kill(int(entry.name), signal.SIGKILL)
