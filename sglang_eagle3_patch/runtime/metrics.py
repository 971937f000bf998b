"""Prometheus metrics of the gate, beside SGLang's own ``sglang:spec_*``."""

from __future__ import annotations

from typing import Any

from sglang_eagle3_patch.runtime.gate import BatchGate, Mode


class GateMetrics:
    """Counts steps by mode, switches and resumes, and shows the mode of the latest step.

    Build it in the scheduler's process, after SGLang has chosen the folder of its multi-process metrics.
    """

    def __init__(self, labels: dict[str, str]) -> None:
        from prometheus_client import Counter, Gauge

        names = list(labels)
        steps = Counter("sglang:spec_gate_steps", "Decode steps by mode.", [*names, "mode"])
        self._steps = {mode: steps.labels(**labels, mode=mode.value) for mode in Mode}
        self._switches = Counter("sglang:spec_gate_switches", "Changes of mode.", names).labels(**labels)
        self._resumes = Counter(
            "sglang:spec_gate_resumes", "Steps that gave their requests fresh draft state first.", names
        ).labels(**labels)
        plain = Gauge(
            "sglang:spec_gate_plain",
            "1 while decode steps run plain, 0 while they speculate.",
            names,
            multiprocess_mode="mostrecent",
        )
        self._plain = plain.labels(**labels)
        self._seen = BatchGate()

    def update(self, gate: BatchGate) -> None:
        """Bring the metrics up to what ``gate`` has counted; called at every decode log interval."""
        seen = self._seen
        self._steps[Mode.PLAIN].inc(gate.plain_steps - seen.plain_steps)
        self._steps[Mode.SPECULATIVE].inc(gate.speculative_steps - seen.speculative_steps)
        self._switches.inc(gate.switches - seen.switches)
        self._resumes.inc(gate.resumes - seen.resumes)
        self._plain.set(gate.last_mode is Mode.PLAIN)
        seen.plain_steps, seen.speculative_steps = gate.plain_steps, gate.speculative_steps
        seen.switches, seen.resumes = gate.switches, gate.resumes


def build(server_args: Any) -> GateMetrics | None:
    """The gate's metrics where the server serves metrics, else None."""
    if not server_args.enable_metrics:
        return None
    return GateMetrics({"model_name": str(server_args.served_model_name), "tp_rank": "0"})
