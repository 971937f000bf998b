"""Runs in its own process: a real sglang.Engine serves one workload. engine.py starts it and reads what it wrote."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from tests.e2e.workload import IDLE_S, Reply, Request, drive


def main(job_file: Path, result_file: Path) -> None:
    """Serve the workload in ``job_file`` and write answers and server info (JSON) to ``result_file``."""
    import sglang

    job = json.loads(job_file.read_text())
    requests = [Request(**request) for request in job["requests"]]
    engine = sglang.Engine(**job["server_args"])

    async def send(request: Request, rid: str) -> Reply:
        reply = await engine.async_generate(
            input_ids=request.input_ids, sampling_params=request.sampling, rid=rid, **request.more
        )
        return dict(reply)

    async def abort(rid: str) -> None:
        engine.tokenizer_manager.abort_request(rid=rid)

    async def serve() -> list[Reply]:
        replies = await drive(requests, send, abort)
        await asyncio.sleep(IDLE_S)
        return replies

    replies = engine.loop.run_until_complete(serve())
    info: Any = engine.get_server_info()
    result_file.write_text(json.dumps({"replies": replies, "server_info": info}, default=str))
    engine.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
