"""Figures of evaluations: the skew of the accesses, what each score would have served, the effect of depth.

The curves are those of the Data Tiering paper (Min et al., KDD'22): cumulative accesses over the nodes in the order of
a score, one panel per way of sampling (figure 7) and one per score with a line per depth (figure 9); and hit rates over
the capacity on a logarithmic scale, with the intervals as bands.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tiering.description import DASHES, PERCENT, TOP, decorate, line_style, plain_label
from tiering.errors import CapabilityError, InputError
from tiering.evaluation.result import ORACLE, Evaluation

_DEPTHS = (0.0, 0.8)  # range of the colour map `cividis` for the depths: its end is too bright on white
_BINS = 48  # points of the frequency curves
_LEFT = {"rank": 1e-2, "capacity": 1e-1}  # where the logarithmic axes begin, in percent
_COLUMNS = 4  # panels side by side
_PANEL = (3.4, 3.1)  # inches
_LABEL = 28  # characters
_RATES = "Hit rate, with 95 % intervals"


def plot(
    results: Evaluation | Sequence[Evaluation],
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    labels: Sequence[str] | None = None,
) -> Path:
    """Draw one evaluation, or several next to each other, and return the path.

    Parameters
    ----------
    results
        One: access frequency by rank, cumulative accesses, hit rate by capacity. Several (depths, or graphs): the
        latter two for each, and for each score all of them in one panel.
    path
        File to write; its ending (``.png``, ``.svg``, ``.pdf``) chooses the format. `InputError` for another one,
        `CapabilityError` without matplotlib.
    title
        Heading; the sampling parameters by default.
    labels
        Names of several results; their fanouts by default.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise CapabilityError("plots need matplotlib: pip install 'tiering[plot]'") from error
    path = Path(path)
    many = [results] if isinstance(results, Evaluation) else list(results)
    names = [fanouts_label(result) for result in many] if labels is None else list(labels)
    if not many or len(names) != len(many):
        raise InputError(f"plot: expected results, and a label for each, found {len(many)} and {len(names)} labels")
    figure = Figure(layout=ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.08))
    formats = FigureCanvasAgg(figure).get_supported_filetypes()
    if path.suffix.lower().lstrip(".") not in formats:
        raise InputError(f"{path}: expected a file name ending in one of {', '.join(sorted(formats))}")
    if len(many) == 1:
        draw_evaluation(figure, many[0], title)
    else:
        _draw_many(figure, many, names)
        figure.suptitle(title or _heading(many), fontsize=11)
    figure.savefig(path, dpi=150)
    return path


def draw_frequency(axes: Any, result: Evaluation) -> None:
    """Draw the accesses per row and epoch by rank, both logarithmic."""
    for name, style in _styles(result).items():
        rows, served = result.curve_rows[name], result.curves[name]
        positions = np.unique(np.searchsorted(rows, np.geomspace(1, max(result.num_rows, 1), _BINS)))
        chosen = np.unique(np.concatenate([[0], positions]))  # far enough apart to average the noise out
        per_row = np.diff(served[chosen]) * result.accesses / np.maximum(np.diff(rows[chosen]), 1)
        ranks = 100 * rows[chosen][1:] / max(result.num_rows, 1)
        axes.plot(ranks, np.where(per_row > 0, per_row / len(result.epochs), np.nan), label=plain_label(name), **style)
    _logarithmic(axes, result, _LEFT["rank"])
    axes.set(yscale="log", xlabel="rank of the row, by score", ylabel="reads per row and epoch")
    axes.yaxis.set_major_formatter("{x:g}")


def draw_cumulative(axes: Any, result: Evaluation, names: Sequence[str] | None = None) -> None:
    """Draw the percentage of all accesses that goes to the first rows by each score (figure 7)."""
    for name, style in _styles(result).items():
        if names is None or name in names:
            axes.plot(*_points(result, name, 0), label=plain_label(name), **style)
    _linear(axes, result)


def draw_depths(axes: Any, results: Sequence[Evaluation], labels: Sequence[str], name: str) -> None:
    """Draw the same for one score and several ways of sampling, a line for each (figure 9)."""
    from matplotlib import colormaps

    shades = np.linspace(*_DEPTHS, max(len(results), 2))
    for i, (result, label) in enumerate(zip(results, labels, strict=True)):
        style = {"color": colormaps["cividis"](shades[i]), "linestyle": DASHES[i % len(DASHES)], "linewidth": 1.7}
        axes.plot(*_points(result, name, 0), label=label, **style)
    _linear(axes, results[0])


def draw_hit_rates(axes: Any, result: Evaluation) -> None:
    """Draw the hit rate by capacity, capacity logarithmic; the bands are the 95 % intervals."""
    for name, style in _styles(result).items():
        axes.plot(*_points(result, name, 1), label=plain_label(name), **style)
        if name in result.bands:
            low, high = 100 * result.bands[name][1:].T
            axes.fill_between(_points(result, name, 1)[0], low, high, color=style["color"], alpha=0.25, linewidth=0)
    _logarithmic(axes, result, _LEFT["capacity"])
    axes.set(ylim=(0, TOP), xlabel=f"{_unit(result)} in the fast tier", ylabel="reads served (hit rate)")
    axes.yaxis.set_major_formatter(PERCENT)


def fanouts_label(result: Evaluation) -> str:
    """Return the fanouts of an evaluation in a few characters: ``10,10``; those per relation are cut short."""
    parts = []
    for hop in result.parameters["fanouts"]:
        parts.append(",".join(f"{r}={n}" for r, n in hop.items()) if isinstance(hop, dict) else str(hop))
    text = (";" if any("=" in part for part in parts) else ",").join(parts)
    return text if len(text) <= _LABEL else text[: _LABEL - 1] + "…"


def draw_evaluation(figure: Any, result: Evaluation, heading: str | None = None) -> None:
    """Draw the three panels of one evaluation on a ``matplotlib.figure.Figure``."""
    figure.set_size_inches(3 * _PANEL[0] + 0.8, _PANEL[1] + 1.1)
    rates = _RATES if result.bands else "Hit rate"
    panels = (("Read frequency", draw_frequency), ("Cumulative reads", draw_cumulative), (rates, draw_hit_rates))
    grid = figure.subplots(1, len(panels))
    for axes, (title, draw) in zip(grid, panels, strict=True):
        draw(axes, result)
        axes.set_title(title, fontsize=10)
    _legend(figure, grid[-1])
    figure.suptitle(heading or _heading([result]), fontsize=11)


def _draw_many(figure: Any, results: Sequence[Evaluation], labels: Sequence[str]) -> None:
    names = [name for name in results[0].scores if all(name in result.scores for result in results)]
    pairs = list(zip(labels, results, strict=True))
    by_score = [(plain_label(n), partial(draw_depths, results=results, labels=labels, name=n)) for n in names]
    blocks: list[tuple[str, list[tuple[str, Callable[[Any], None]]]]] = [
        ("Cumulative reads, by fanouts", [(label, partial(draw_cumulative, result=r)) for label, r in pairs]),
        ("Cumulative reads, by score", [*by_score]),
        (_RATES, [(label, partial(draw_hit_rates, result=r)) for label, r in pairs]),
    ]
    columns = min(_COLUMNS, max(len(panels) for _, panels in blocks))
    heights = [-(-len(panels) // columns) for _, panels in blocks]
    figure.set_size_inches(columns * _PANEL[0] + 0.4, sum(heights) * _PANEL[1] + len(blocks) * 0.7 + 0.3)
    parts = figure.subfigures(len(blocks), 1, height_ratios=heights)
    for part, (heading, panels), height in zip(parts, blocks, heights, strict=True):
        part.suptitle(heading, fontsize=11, fontweight="bold")
        grid = part.subplots(height, columns, squeeze=False, sharey=True).ravel()
        for i, (axes, (title, draw)) in enumerate(zip(grid, panels, strict=False)):
            draw(axes)
            axes.set_title(title, fontsize=10)
            if i % columns:
                axes.set_ylabel("")
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        _legend(part, grid[0])


def _styles(result: Evaluation) -> dict[str, dict[str, Any]]:
    """Return line styles by name; the oracle comes first so that the others lie above it."""
    styles: dict[str, dict[str, Any]] = {ORACLE: {"color": "black", "linewidth": 2.2}}
    for i, name in enumerate(name for name in result.scores if name != ORACLE):
        styles[name] = line_style(i)
    return styles


def _points(result: Evaluation, name: str, first: int) -> tuple[Any, Any]:
    """Return capacity and hit rate in percent, from the point `first` on."""
    capacity = 100 * result.curve_bytes[first:] / max(result.num_bytes, 1)
    return capacity, 100 * result.curves[name][first:]


def _linear(axes: Any, result: Evaluation) -> None:
    axes.set(xlim=(0, 100), ylim=(0, TOP), xticks=range(0, 101, 25), yticks=range(0, 101, 25))
    axes.set(xlabel=f"{_unit(result)}, in the order of the score", ylabel="reads, cumulative")
    axes.yaxis.set_major_formatter(PERCENT)
    decorate(axes)


def _logarithmic(axes: Any, result: Evaluation, begin: float) -> None:
    axes.set(xscale="log", xlim=(min(max(100 / max(result.num_rows, 1), begin), 50), 100))
    decorate(axes)


def _unit(result: Evaluation) -> str:
    sizes = {entry.row_bytes for entry in result.types.values()}
    return "feature rows" if len(sizes) <= 1 else "feature bytes"


def _legend(figure: Any, axes: Any) -> None:
    """Draw one legend for a row of panels, below them."""
    lines, names = axes.get_legend_handles_labels()
    columns = min(len(names), 8)
    figure.legend(lines, names, loc="outside lower center", ncols=columns, frameon=False, fontsize=9, handlelength=3)


def _heading(results: Sequence[Evaluation]) -> str:
    p = results[0].parameters
    fanouts = f"fanouts {fanouts_label(results[0])}, " if len(results) == 1 else ""
    epochs = results[0].epochs
    counted = f"epoch {epochs.start}" if len(epochs) == 1 else f"epochs {epochs.start} to {epochs.stop - 1}"
    return (
        f"{results[0].num_rows:,} rows, {sum(p['train_nodes'].values()):,} training nodes, {p['sampler']} sampling, "
        f"{fanouts}batch size {p['batch_size']}, {counted}"
    )
