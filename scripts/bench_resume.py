#!/usr/bin/env python3
"""What is a resume worth? Acceptance over the tokens after plain steps, against a server that never fell back.

Starts a server that always speculates, a gated one, and a gated one with --speculative-fallback-draft-sync off (the
negative control). On the gated ones other requests hold the batch above the threshold for a given number of plain
steps; on the first the same tokens are speculated. Greedy, so all three produce the same text.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

REPOSITORY = Path(__file__).resolve().parent.parent
SERVERS = ("always", "gated", "off")
console = Console()


@dataclass(frozen=True)
class Job:
    """One server and what it is asked. Lengths are in tokens, `plain_steps` in steps."""

    server: str
    engine: dict[str, Any]
    prompts: list[list[int]]
    plain_steps: list[int]
    tail: int
    threshold: int


@dataclass(frozen=True)
class Sample:
    """One server after one number of plain steps: sums over the requests.

    plain_seen: the fewest and the most plain steps that a request really went through.
    """

    server: str
    plain_steps: int
    verify_steps: int
    correct_drafts: int
    plain_seen: tuple[int, int]
    outputs: list[list[int]]

    @property
    def accept_length(self) -> float:
        """Tokens a verify step yields, the bonus token included."""
        return 1 + self.correct_drafts / self.verify_steps


def generate(engine: Any, prompts: list[list[int]], lengths: list[int]) -> list[dict[str, Any]]:
    """Run the prompts as one batch, `lengths` new tokens each."""
    params = [{"max_new_tokens": length, "ignore_eos": True, "temperature": 0.0} for length in lengths]
    replies: list[dict[str, Any]] = engine.generate(input_ids=prompts, sampling_params=params)
    return replies


def speculated(reply: dict[str, Any]) -> tuple[int, int]:
    """A reply's verify steps and correct drafts; releases before 0.5.13 use older names."""
    meta = reply["meta_info"]
    return meta.get("spec_verify_ct", 0), meta.get("spec_num_correct_drafts", meta.get("spec_accept_token_num", 0))


def always(engine: Any, job: Job, steps: int) -> Sample:
    """The same stretch of text on a server that speculates throughout: the long run less the short one."""
    counts, outputs = [], []
    for length in (steps + 1 + job.tail, steps + 1):
        replies = generate(engine, job.prompts, [length] * len(job.prompts))
        counts.append([sum(column) for column in zip(*map(speculated, replies), strict=True)])
        outputs.append([reply["output_ids"] for reply in replies])
    (verify, correct), (short_verify, short_correct) = counts
    return Sample("always", steps, verify - short_verify, correct - short_correct, (0, 0), outputs[0])


def fell_back(engine: Any, job: Job, steps: int) -> Sample:
    """Waves of `threshold` requests, each held above the threshold by as many others plus one for `steps` steps."""
    verify = correct = 0
    plain: list[int] = []
    outputs: list[list[int]] = []
    for at in range(0, len(job.prompts), job.threshold):
        measured = job.prompts[at : at + job.threshold]
        others = [list(reversed(job.prompts[index % len(job.prompts)])) for index in range(job.threshold + 1)]
        lengths = [steps + 1] * len(others) + [steps + 1 + job.tail] * len(measured)
        for reply in generate(engine, others + measured, lengths)[len(others) :]:
            verified, right = speculated(reply)
            verify, correct = verify + verified, correct + right
            # The first token is the prefill's; the last verify may have yielded more than was left to say.
            plain.append(max(0, len(reply["output_ids"]) - 1 - verified - right))
            outputs.append(reply["output_ids"])
    return Sample(job.server, steps, verify, correct, (min(plain), max(plain)), outputs)


def serve(job_file: Path) -> None:
    """A worker process: one engine, one line of JSON for each number of plain steps."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    job = Job(**json.loads(job_file.read_text()))
    import sglang

    engine = sglang.Engine(**job.engine)
    generate(engine, job.prompts[: job.threshold], [8] * min(job.threshold, len(job.prompts)))
    measure = always if job.server == "always" else fell_back
    for steps in job.plain_steps:
        answers.write(json.dumps(asdict(measure(engine, job, steps))) + "\n")
    answers.write(json.dumps({"version": sglang.__version__}) + "\n")
    engine.shutdown()


def run(job: Job, folder: Path) -> tuple[list[Sample], str]:
    """Run one server; returns its samples and the SGLang version."""
    job_file, log = folder / f"{job.server}.json", folder / f"{job.server}.log"
    job_file.write_text(json.dumps(asdict(job)))
    console.print(f"{datetime.now():%H:%M:%S} {job.server} (log: {log})", markup=False, highlight=False)
    with log.open("w") as stream:
        done = subprocess.run(
            [sys.executable, __file__, "--worker", str(job_file)], stdout=subprocess.PIPE, stderr=stream, text=True
        )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines or "version" not in lines[-1]:
        console.print(f"error: the server '{job.server}' failed; the reason is in {log}", markup=False)
        raise typer.Exit(1)
    return [Sample(**{**line, "plain_seen": tuple(line["plain_seen"])}) for line in lines[:-1]], lines[-1]["version"]


def own_prompts(count: int) -> list[list[int]]:
    """Prompts in the language of the pair that this repository ships."""
    sys.path.insert(0, str(REPOSITORY))
    from tests.models.prompts import make_prompts

    return make_prompts(count, seed=20_000)


def main(
    out: Annotated[Path | None, typer.Option(help="Folder for resume.json and the servers' logs.")] = None,
    model: Annotated[Path, typer.Option(help="Target model.")] = REPOSITORY / "tests/models/target",
    draft: Annotated[Path, typer.Option(help="EAGLE-3 draft model.")] = REPOSITORY / "tests/models/draft",
    prompts: Annotated[Path | None, typer.Option(help="JSON list of prompts as token ids; your own model's.")] = None,
    count: Annotated[int, typer.Option(min=1, help="How many requests are measured.")] = 32,
    plain_steps: Annotated[str, typer.Option(help="Numbers of plain steps before the resume.")] = "1,10,100,500",
    tail: Annotated[int, typer.Option(min=1, help="Tokens measured after the resume.")] = 100,
    threshold: Annotated[int, typer.Option(min=1)] = 8,
    steps: Annotated[int, typer.Option(min=1, help="Draft steps.")] = 3,
    topk: Annotated[int, typer.Option(min=1)] = 1,
    draft_tokens: Annotated[int | None, typer.Option(help="Default steps x topk + 1.")] = None,
    servers: Annotated[str, typer.Option()] = ",".join(SERVERS),
    start_together: Annotated[bool, typer.Option(help="All servers at once; needs memory for all of them.")] = False,
    engine_arg: Annotated[list[str] | None, typer.Option(help="Any server argument, NAME=JSON; repeatable.")] = None,
    worker: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    """Compare acceptance after plain steps with that of a server that never fell back."""
    if worker is not None:
        serve(worker)
        return
    if out is None:
        raise typer.BadParameter("name a folder with --out")
    out.mkdir(parents=True, exist_ok=True)
    texts = json.loads(prompts.read_text()) if prompts else own_prompts(count)
    engine: dict[str, Any] = {
        "model_path": str(model),
        "skip_tokenizer_init": True,
        "max_running_requests": max(2 * threshold + 1, count),
        "disable_radix_cache": True,
        "random_seed": 1,
        "speculative_algorithm": "EAGLE3",
        "speculative_draft_model_path": str(draft),
        "speculative_num_steps": steps,
        "speculative_eagle_topk": topk,
        "speculative_num_draft_tokens": draft_tokens or steps * topk + 1,
    }
    engine |= {name: json.loads(value) for name, _, value in (pair.partition("=") for pair in engine_arg or [])}
    gate: dict[str, Any] = {"speculative_disable_batch_threshold": threshold}
    extra: dict[str, dict[str, Any]] = {
        "always": {},
        "gated": gate,
        "off": {**gate, "speculative_fallback_draft_sync": "off"},
    }
    counts = [int(part) for part in plain_steps.split(",")]
    jobs = [
        Job(server, {**engine, **extra[server]}, texts[:count], counts, tail, threshold)
        for server in servers.split(",")
    ]
    with ThreadPoolExecutor(len(jobs) if start_together else 1) as pool:
        done = list(pool.map(lambda job: run(job, out), jobs))
    samples = {job.server: found for job, (found, _) in zip(jobs, done, strict=True)}
    version = done[0][1]
    report(samples, counts)
    record = {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(sys.argv),
        "sglang": version,
        "engine": engine,
        "samples": [
            {**{k: v for k, v in asdict(sample).items() if k != "outputs"}, "accept_length": sample.accept_length}
            for rows in samples.values()
            for sample in rows
        ],
        "same_outputs": {server: agreement(samples, server) for server in samples},
    }
    (out / "resume.json").write_text(json.dumps(record, indent=1) + "\n")
    console.print(f"Wrote {out / 'resume.json'}", markup=False)


def agreement(samples: dict[str, list[Sample]], server: str) -> str:
    """How many requests said the same as on the server that always speculates."""
    pairs = [
        (ours, theirs)
        for mine, reference in zip(samples[server], samples.get("always", samples[server]), strict=True)
        for ours, theirs in zip(mine.outputs, reference.outputs, strict=True)
    ]
    return f"{sum(ours == theirs for ours, theirs in pairs)} of {len(pairs)}"


def report(samples: dict[str, list[Sample]], counts: list[int]) -> None:
    """One row for each number of plain steps."""
    table = Table(title="Acceptance length over the tokens after the resume")
    for heading in (
        "plain steps",
        *(f"{server}" for server in samples),
        "gated / always",
        "off / always",
        "seen plain",
    ):
        table.add_column(heading, justify="right")
    for index, steps in enumerate(counts):
        row = {server: rows[index] for server, rows in samples.items()}
        lengths = {server: sample.accept_length for server, sample in row.items()}
        ratios = [
            f"{lengths[server] / lengths['always']:.3f}" if {server, "always"} <= lengths.keys() else "-"
            for server in ("gated", "off")
        ]
        seen = "{}..{}".format(*row["gated"].plain_seen) if "gated" in row else "-"
        table.add_row(str(steps), *(f"{length:.3f}" for length in lengths.values()), *ratios, seen)
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
