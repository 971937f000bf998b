"""Everything that a patched SGLang calls. Each hook is one line there and one small function here."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from sglang_eagle3_patch.runtime import arguments, metrics
from sglang_eagle3_patch.runtime.gate import GATE, Mode

logger = logging.getLogger("sglang.eagle3_batch_gate")
# Served by rank 0 of a server that has its gate and its metrics on.
_metrics: list[metrics.GateMetrics] = []


def check_arguments(args: Any, *, spec_v2_needs_overlap: bool = False) -> None:
    """Called once the speculative arguments are resolved, in every process that builds ``ServerArgs``."""
    arguments.check(args, spec_v2_needs_overlap=spec_v2_needs_overlap)


def announce(server_args: Any, rank: int) -> None:
    """Log the start-up line, off or on, so that its absence means something. Called in each scheduler process.

    Args:
        rank: in the tensor-parallel group. Every rank would say the same: the first one of each host speaks.
    """
    GATE.threshold = server_args.speculative_disable_batch_threshold
    if rank % max(1, server_args.tp_size // server_args.nnodes):
        logger.setLevel(logging.ERROR)
        return
    if GATE.enabled:
        sync = server_args.speculative_fallback_draft_sync
        logger.info("EAGLE-3 batch gate: threshold=%d (on, draft sync %s)", GATE.threshold, sync)
        if rank == 0 and (built := metrics.build(server_args)):
            _metrics.append(built)
    else:
        logger.info("EAGLE-3 batch gate: threshold=0 (off)")


def warn_if_idle(max_running_requests: int) -> None:
    """Warn once about a threshold that can never fire; called when the scheduler knows its real limit."""
    if message := arguments.warning(GATE.threshold, max_running_requests):
        logger.warning("%s", message)


def worker_class(upstream: type, series: str) -> type:
    """The worker class to build: upstream's own when the gate is off, so that off means untouched.

    Args:
        upstream: SGLang's ``EAGLEWorkerV2``.
        series: the release whose patch series was applied; its contract is checked here, on the live classes.

    Raises:
        ContractError: this SGLang is not what the series was made for.
    """
    if not GATE.enabled:
        return upstream
    from sglang_eagle3_patch.runtime import contract_check
    from sglang_eagle3_patch.runtime.worker import gated_worker

    return gated_worker(upstream, contract_check.demand(series))


def is_plain_step(result: Any) -> bool:
    """Whether a result is that of a plain step: it counts as no speculative step (C6)."""
    return getattr(result, "plain_decode", False)


def unless_plain(result: Any, count: Callable[..., None]) -> Callable[..., None]:
    """``count`` itself, or nothing in its place for the result of a plain step. Notes the step's mode for the log."""
    GATE.processed_mode = Mode.PLAIN if is_plain_step(result) else Mode.SPECULATIVE
    return count if GATE.processed_mode is Mode.SPECULATIVE else _count_nothing


def _count_nothing(*_args: Any, **_kwargs: Any) -> None:
    pass


def output_stride(result: Any, speculative_stride: int) -> int:
    """Tokens a request occupies in the flat output of a step."""
    return 1 if is_plain_step(result) else speculative_stride


def relay_bonus_token(future_map: Any, rows: Any, result: Any) -> bool:
    """Relay a plain step to the next one: its token only, since its draft state is stale. False for other steps.

    Args:
        future_map: the scheduler's relay of values between steps, indexed by pool row.
        rows: [batch], pool rows.
    """
    if not is_plain_step(result) or result.draft_state_fresh:
        return False
    future_map.output_tokens_buf[rows] = result.next_token_ids
    return True


def relay_verified_id(future_map: Any, slots: slice, result: Any, tokens: str = "verified_id_buf") -> bool:
    """As ``relay_bonus_token``, for a relay that is a circular buffer and carries the lengths too (up to 0.5.12).

    Args:
        future_map: the scheduler's relay of values between steps.
        slots: where the step's values go in its buffers, [batch].
        tokens: its buffer for the bonus tokens.
    """
    if not is_plain_step(result) or result.draft_state_fresh:
        return False
    getattr(future_map, tokens)[slots] = result.next_token_ids
    future_map.new_seq_lens_buf[slots] = result.next_draft_input.new_seq_lens
    return True


def kv_reserve(batch_size: int, speculative_reserve: int) -> int:
    """KV slots to reserve for each request of the coming decode step, beyond its committed length."""
    return GATE.kv_reserve(batch_size, speculative_reserve)


def log_suffix() -> str:
    """Text for the decode log line: the mode of the step it reports; nothing when the gate is off.

    The metrics are brought up to date at the same interval.
    """
    for served in _metrics:
        served.update(GATE)
    return f"gate: {GATE.processed_mode.value}, " if GATE.enabled and GATE.processed_mode else ""


def internal_state() -> dict[str, int | str | None]:
    """The ``speculative_gate`` entry of /server_info."""
    return GATE.state()


def speculated_tokens(threshold: int, completion_tokens: int, verify_ct: int, num_correct_drafts: int) -> int:
    """Tokens of a request that count towards its acceptance length: with the gate on, not those of plain steps.

    Upstream divides every completion token by the verify steps, which is the same thing only while each token came
    from a verify step.
    """
    return verify_ct + num_correct_drafts if threshold else completion_tokens
