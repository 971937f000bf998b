"""The gate's Prometheus metrics, as a server serves them."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

import pytest

from tests.e2e.conftest import Setup
from tests.e2e.engine import server
from tests.e2e.workload import shrinking_then_growing

pytestmark = pytest.mark.e2e


def read(text: str, metric: str, **labels: str) -> float:
    """The value of one sample of a /metrics page."""
    values = [
        float(value)
        for found, value in re.findall(rf"^{metric}\{{(.*?)\}} (\S+)$", text, re.MULTILINE)
        if all(f'{name}="{label}"' in found for name, label in labels.items())
    ]
    assert len(values) == 1, f"{metric} {labels}: {values}"
    return values[0]


def test_metrics_follow_the_gate(setup: Setup, tmp_path: Path) -> None:
    args = setup.gated_args(4, enable_metrics=True, decode_log_interval=1)
    with server(setup.patched, args, tmp_path) as running:
        running.generate(shrinking_then_growing(8))
        gate = running.get("/server_info")["internal_states"][0]["speculative_gate"]
        with urllib.request.urlopen(f"{running.url}/metrics", timeout=30) as page:
            text = page.read().decode()
    assert gate["plain_steps"] > 0 < gate["speculative_steps"]
    # A step is counted when it is launched and its metrics are updated when it is done: one may be under way.
    plain = read(text, "sglang:spec_gate_steps_total", mode="plain")
    speculative = read(text, "sglang:spec_gate_steps_total", mode="speculative")
    assert plain == gate["plain_steps"]
    assert gate["speculative_steps"] - 1 <= speculative <= gate["speculative_steps"]
    assert read(text, "sglang:spec_gate_resumes_total") == gate["resumes"] > 0
    assert read(text, "sglang:spec_gate_switches_total") == gate["switches"]
    assert read(text, "sglang:spec_gate_plain") == 0
