"""Prometheus metrics of the gate, beside SGLang's own ``sglang:spec_*``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sglang_eagle3_patch.runtime.gate import BatchGate, Mode


@dataclass
class GateMetrics:
    """Steps by mode, switches, resumes, and the mode of the latest step (1 while it is plain)."""

    steps: dict[Mode, Any]
    switches: Any
    resumes: Any
    plain: Any
    seen: BatchGate = field(default_factory=BatchGate)

    def update(self, gate: BatchGate) -> None:
        """Bring the metrics up to what ``gate`` has counted; called at every decode log interval."""
        seen = self.seen
        self.steps[Mode.PLAIN].inc(gate.plain_steps - seen.plain_steps)
        self.steps[Mode.SPECULATIVE].inc(gate.speculative_steps - seen.speculative_steps)
        self.switches.inc(gate.switches - seen.switches)
        self.resumes.inc(gate.resumes - seen.resumes)
        self.plain.set(gate.last_mode is Mode.PLAIN)
        seen.plain_steps, seen.speculative_steps = gate.plain_steps, gate.speculative_steps
        seen.switches, seen.resumes = gate.switches, gate.resumes


def build(server_args: Any) -> GateMetrics | None:
    """The gate's metrics where the server serves metrics, else None.

    Called in the scheduler's process, once SGLang has chosen the folder of its multi-process metrics.
    """
    if not server_args.enable_metrics:
        return None
    from prometheus_client import Counter, Gauge

    labels = {"model_name": str(server_args.served_model_name)}
    steps = Counter("sglang:spec_gate_steps", "Decode steps by mode.", [*labels, "mode"])
    switches = Counter("sglang:spec_gate_switches", "Changes of mode.", [*labels])
    resumes = Counter("sglang:spec_gate_resumes", "Steps that gave their requests fresh draft state first.", [*labels])
    plain = Gauge(
        "sglang:spec_gate_plain",
        "1 while decode steps run plain, 0 while they speculate.",
        [*labels],
        multiprocess_mode="mostrecent",
    )
    return GateMetrics(
        {mode: steps.labels(**labels, mode=mode.value) for mode in Mode},
        switches.labels(**labels),
        resumes.labels(**labels),
        plain.labels(**labels),
    )
