"""The tables on the terminal."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.figures import (
    DecodeRow,
    Ratio,
    Spread,
    SwitchSummary,
    bases,
    crossover,
    decode_rows,
    level_rates,
    ramp_rate,
    ramp_switches,
    switch_summary,
)
from bench.records import RampRecord, Results
from bench.settings import BASELINES, Mode


def print_report(results: Results, console: Console) -> None:
    """All tables that the records allow, and what to know when reading them."""
    console.print(_heading(results))
    rows = decode_rows(results)
    if rows:
        console.print(_decode_table(rows))
        pays, loses = crossover(rows)
        if pays and loses:
            console.print(
                f"EAGLE-3 pays up to batch {pays} and loses at {loses}: a threshold from {pays} to {loses - 1}."
            )
        worst = max(rows, key=lambda row: row.disagreement)
        if worst.disagreement:
            console.print(
                f"Check: (tokens - first tokens) / (full run - one-token run) agrees to {worst.disagreement:.1%} "
                f"or better (largest difference at batch {worst.batch})."
            )
    if results.ramp:
        console.print(_ramp_table(results.ramp))
    crossed = [mode for mode in Mode if mode not in BASELINES and any(r.mode is mode for r in results.crossing)]
    if crossed:
        console.print(_switch_table([switch_summary(results, mode) for mode in crossed]))
    for mode, why in results.skipped.items():
        console.print(f"Not measured: {Mode(mode).label}: {why}.", markup=False)


def _heading(results: Results) -> str:
    settings = results.settings
    weights = "random weights" if settings["load_format"] == "dummy" else "real weights"
    accepted = settings["accept_length"]
    pinned = "as the draft earns it" if accepted is None else f"SIMULATED, pinned at {accepted} tokens a step"
    gpus = sorted({str(run.machine.get("gpu")) for run in results.runs})
    model = Path(settings["model"]).name if settings["load_format"] == "dummy" else settings["model"]
    return (
        f"{model} ({weights}) on {', '.join(gpus)}, backend {settings['backend'] or 'as SGLang chooses'}, "
        f"{settings['prompt_tokens']} prompt + {settings['new_tokens']} new tokens, greedy\n"
        f"acceptance {pinned}; {settings['steps']} steps, topk {settings['topk']}, threshold {settings['threshold']}"
    )


def _rate(spread: Spread | None) -> str:
    return "-" if spread is None else f"{spread.median:,.0f} ±{spread.half_width:.1%}"


def _ratio(ratio: Ratio | None) -> str:
    if ratio is None:
        return "-"
    return f"{ratio.value:.3f}" + ("" if ratio.low is None else f" ({ratio.low:.3f}..{ratio.high:.3f})")


def _decode_table(rows: list[DecodeRow]) -> Table:
    modes = [mode for mode in Mode if any(mode in row.rates for row in rows)]
    others = [mode for mode in modes if mode not in BASELINES]
    table = Table(title="Decode tokens/s (median, half of the range); ratios (range over rounds side by side)")
    table.add_column("batch", justify="right")
    for mode in modes:
        table.add_column(mode.label, justify="right")
    for mode in others:
        for base in bases(mode):
            if base in modes:
                table.add_column(f"{mode} / {base}", justify="right")
        table.add_column(f"{mode} / better", justify="right", style="bold")
    for row in rows:
        cells = [str(row.batch), *(_rate(row.rates.get(mode)) for mode in modes)]
        for mode in others:
            cells += [_ratio(row.ratios.get((mode, base))) for base in bases(mode) if base in modes]
            better = row.ratios.get((mode, row.better)) if row.better else None
            cells.append("-" if better is None else f"{better.value:.3f}")
        table.add_row(*cells)
    return table


def _ramp_table(records: list[RampRecord]) -> Table:
    """Levels of the same position compare: the ramp's schedule is the same for all modes."""
    table = Table(title="Arrival ramp, closed loop: tokens/s in each level")
    table.add_column("clients", justify="right")
    for record in records:
        table.add_column(record.mode.label, justify="right")
    rates = [level_rates(record) for record in records]
    for index, (_, clients) in enumerate(records[0].levels):
        table.add_row(str(clients), *(f"{mode_rates[index]:,.0f}" for mode_rates in rates))
    table.add_section()
    totals = [ramp_rate(record) for record in records]
    table.add_row("all", *(f"{total:,.0f}" for total in totals))
    bases = [total for total, record in zip(totals, records, strict=True) if record.mode in BASELINES]
    if bases:
        table.add_row("of the better", *(f"{total / max(bases):.3f}" for total in totals))
    table.add_row("switches", *(str(ramp_switches(record)) for record in records))
    return table


def _switch_table(summaries: list[SwitchSummary]) -> Table:
    table = Table(title="Cost of a switch in extra steps: median (smallest..largest)")
    table.add_column("mode")
    table.add_column("crossings", justify="right")
    table.add_column("to plain decode", justify="right")
    table.add_column("to speculation", justify="right")

    def cell(spread: Spread | None) -> str:
        return "not seen" if spread is None else f"{spread.median:+.2f} ({spread.low:+.2f}..{spread.high:+.2f})"

    for entry in summaries:
        note = "" if entry.prefill is not None else " with the joiners' prefill: measure 'always' too"
        table.add_row(entry.mode.label, str(entry.crossings), cell(entry.fallback) + note, cell(entry.resume))
    return table
