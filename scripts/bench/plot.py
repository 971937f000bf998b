"""The pictures. Matplotlib is imported here and only when a picture is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.figures import decode_rows, speculating, tokens_between
from bench.records import RampRecord, Results
from bench.settings import Mode

_COLOURS = {
    Mode.NONE: "#555555",
    Mode.ALWAYS: "#d95f02",
    Mode.ADAPTIVE: "#7570b3",
    Mode.GATED: "#1b9e77",
    Mode.UNSYNCED: "#a6cee3",
}


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise RuntimeError(
            "the plots need matplotlib: pip install 'sglang-eagle3-patch[bench]', then --from-json results.json"
        ) from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def plot_crossover(results: Results, path: Path) -> None:
    """Decode rate over batch size (left), and the same over no speculation (right). Bars: smallest to largest round."""
    pyplot = _pyplot()
    rows = decode_rows(results)
    figure, (absolute, relative) = pyplot.subplots(1, 2, figsize=(12, 4.5))
    for mode in Mode:
        points = [(row.batch, row.rates[mode], row.rates.get(Mode.NONE)) for row in rows if mode in row.rates]
        if not points:
            continue
        for axes, points_over in (
            (absolute, [(batch, rate, 1.0) for batch, rate, _ in points]),
            (relative, [(batch, rate, base.median) for batch, rate, base in points if base]),
        ):
            axes.errorbar(
                [batch for batch, *_ in points_over],
                [rate.median / base for _, rate, base in points_over],
                yerr=[
                    [(rate.median - rate.low) / base for _, rate, base in points_over],
                    [(rate.high - rate.median) / base for _, rate, base in points_over],
                ],
                label=mode.label,
                color=_COLOURS[mode],
                marker="o",
                capsize=3,
            )
    absolute.set_yscale("log")
    absolute.set_ylabel("decode tokens/s")
    relative.set_ylabel("over no speculation")
    batches = [row.batch for row in rows]
    for axes in (absolute, relative):
        axes.set_xscale("log", base=2)
        axes.set_xticks(batches, [str(batch) for batch in batches])
        axes.set_xlabel("batch size (running requests)")
        axes.axvline(results.settings["threshold"], color="black", linestyle=":", linewidth=1, label="threshold")
        axes.grid(alpha=0.3)
    absolute.legend()
    figure.suptitle(_title(results))
    _save(pyplot, figure, path)


def plot_ramp(results: Results, path: Path, bin_seconds: float = 1.0) -> None:
    """Tokens/s over time, the number of clients, and where the gated server decoded plainly."""
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(figsize=(12, 4.5))
    for record in results.ramp:
        edges = [index * bin_seconds for index in range(int(record.seconds / bin_seconds) + 1)]
        rates = [tokens / bin_seconds for tokens in tokens_between(record.requests, edges)]
        middles = [edge + bin_seconds / 2 for edge in edges[:-1]]
        axes.plot(middles, rates, label=record.mode.label, color=_COLOURS[record.mode])
        if record.mode is Mode.GATED:
            for start, end in plain_spans(record):
                axes.axvspan(start, end, color=_COLOURS[record.mode], alpha=0.08)
    axes.set_xlabel("seconds (shaded: the gated server decodes plainly)")
    axes.set_ylabel("tokens/s")
    clients = axes.twinx()
    levels = results.ramp[0].levels
    clients.step([time for time, _ in levels], [count for _, count in levels], where="post", color="black", alpha=0.3)
    clients.set_ylabel("clients")
    axes.legend(loc="upper left")
    figure.suptitle(_title(results))
    _save(pyplot, figure, path)


def plain_spans(record: RampRecord) -> list[tuple[float, float]]:
    """(start, end) of the stretches in which the probe saw plain steps."""
    spans: list[tuple[float, float]] = []
    fast = speculating([tokens for *_, tokens in record.probe_steps])
    open_span = False
    for (end, duration, _), speculates in zip(record.probe_steps, fast, strict=True):
        if speculates:
            open_span = False
        elif open_span:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((end - duration, end))
            open_span = True
    return spans


def _title(results: Results) -> str:
    settings = results.settings
    accepted = settings["accept_length"]
    pinned = "" if accepted is None else f", acceptance length simulated at {accepted}"
    gpus = sorted({str(run.machine.get("gpu")) for run in results.runs})
    return f"{Path(settings['model']).name} on {', '.join(gpus)}, {settings['backend'] or 'default'} backend{pinned}"


def _save(pyplot: Any, figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
