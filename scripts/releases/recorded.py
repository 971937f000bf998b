"""What was run, as the runs themselves wrote it down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CPU_RUNS = ROOT / "docs" / "releases.json"
BENCHMARKS = ROOT / "docs" / "benchmarks"


def cpu_runs() -> dict[str, dict[str, Any]]:
    """By release: what an end-to-end run on the CPU reference counted."""
    runs: dict[str, dict[str, Any]] = json.loads(CPU_RUNS.read_text()) if CPU_RUNS.exists() else {}
    return runs


def record_cpu_run(release: str, figures: dict[str, Any]) -> None:
    """Keep the figures of a run that passed."""
    runs = cpu_runs() | {release: figures}
    CPU_RUNS.write_text(json.dumps(runs, indent=2, sort_keys=True) + "\n")


def gpu_runs() -> dict[str, set[str]]:
    """By release: GPU and attention backend of the benchmarks that ran with the gate."""
    found: dict[str, set[str]] = {}
    for file in sorted(BENCHMARKS.glob("*/results.json")):
        document = json.loads(file.read_text())
        gpus = {run["run"]: run["machine"]["gpu"] for run in document.get("runs", [])}
        for engine in document.get("engines", []):
            if engine["mode"] == "gated" and engine["run"] in gpus:
                report = engine["report"]
                gpu = gpus[engine["run"]].removeprefix("NVIDIA ")
                found.setdefault(report["versions"]["sglang"], set()).add(f"{gpu} ({report['attention_backend']})")
    return found
