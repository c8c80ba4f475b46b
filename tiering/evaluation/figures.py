"""The figures of an evaluation: the figures of the Data Tiering paper (Min et al., KDD'22), hit rates.

Cumulative accesses over the nodes in the order of a score: one panel per way of sampling (figure 7), and one per score
with a line per depth (figure 9).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tiering.errors import CapabilityError, InputError, MissingError
from tiering.evaluation.cache_order import ORACLE
from tiering.text.progress import printable

if TYPE_CHECKING:
    from tiering.evaluation.result import Evaluation

_BINS = 48  # points of the frequency curves
_COLUMNS = 4  # panels side by side
_PANEL = (3.4, 3.1)  # inches
_ROWS = "feature rows"
_RATES = "Hit rate, with 95 % intervals"
_Panel = tuple[str, Callable[[Any], None]]
# Okabe & Ito's palette, told apart with any color vision; dashes and markers tell lines apart in print.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_DASHES = ("-", "--", "-.", (0, (1, 1)), (0, (7, 3)), (0, (4, 1, 1, 1, 1, 1)))
_MARKERS = "os^Dv>X"  # one more than colors: of seven lines, too, no two look alike
_SPACING = 0.24  # between the markers of a line, as a fraction of the panel's diagonal
_TOP = 102  # percent where an axis ends: a line at 100 is not cut in half


def plot(results: Evaluation | Sequence[Evaluation], path: str | os.PathLike[str]) -> Path:
    """Draw one evaluation, or several next to each other, and return the path.

    One: access frequency by rank, cumulative accesses, hit rate by capacity. Several (depths, or graphs): the latter
    two for each, named by fanouts, and for each score all of them in one panel. The ending of `path` (``.png``,
    ``.svg``, ``.pdf``) chooses the format: `InputError` for another one, `CapabilityError` without matplotlib.
    """
    many = list(results) if isinstance(results, Sequence) else [results]
    if not many:
        raise InputError("plot: expected results of an evaluation, found none")
    path = Path(path)
    figure = open_figure(path)
    if len(many) == 1:
        draw_evaluation(figure, many[0])
    else:
        _draw_many(figure, many)
    figure.savefig(path, dpi=150)
    return path


def open_figure(path: Path) -> Any:
    """Return an empty figure for a file; refuse a name, or a machine, that it cannot be written with."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise CapabilityError("plots need matplotlib: pip install 'tiering[plot]'") from error
    figure = Figure(layout=ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.08))
    formats = FigureCanvasAgg(figure).get_supported_filetypes()
    if path.suffix.lower().lstrip(".") not in formats:
        raise InputError(f"{path}: expected a file name ending in one of {', '.join(f'.{f}' for f in sorted(formats))}")
    if not path.absolute().parent.is_dir():
        raise MissingError(f"{path}: the directory {path.absolute().parent} does not exist; create it first")
    return figure


def draw_frequency(axes: Any, result: Evaluation) -> None:
    """Draw the accesses per row and epoch by rank, both logarithmic; per KiB by bytes where rows have several sizes."""
    by_bytes = _unit(result) != _ROWS
    total, part, unit = (result.num_bytes, 1024, "KiB") if by_bytes else (result.num_rows, 1, "row")
    first = total / max(result.num_rows, 1)
    for name, style in _styles(result, ()).items():
        used, served = result.curve_bytes if by_bytes else result.curve_rows[name], result.curves[name]
        positions = np.unique(np.searchsorted(used, np.geomspace(max(first, 1), max(total, 1), _BINS)))
        chosen = np.unique(np.concatenate([[0], positions]))  # far enough apart to average the noise out
        each = part * np.diff(served[chosen]) * result.accesses / np.maximum(np.diff(used[chosen]), 1)
        places = 100 * used[chosen][1:] / max(total, 1)
        _draw_line(axes, places, np.where(each > 0, each / len(result.epochs), np.nan), name, style)
    axes.set(yscale="log")
    _logarithmic(axes, result, 1e-2, xlabel=f"{_unit(result)}, hottest first", ylabel=f"reads per {unit} per epoch")
    _set_ticks(axes.yaxis, "")


def draw_cumulative(axes: Any, result: Evaluation, names: Sequence[str] = ()) -> None:
    """Draw the percentage of all accesses that goes to the first rows by each score (figure 7)."""
    for name, style in _styles(result, names).items():
        _draw_line(axes, *_points(result, name, 0), name, style)
    _linear(axes, result)


def draw_depths(axes: Any, results: Sequence[Evaluation], labels: Sequence[str], name: str) -> None:
    """Draw the same for one score and several ways of sampling, a line for each (figure 9)."""
    from matplotlib import colormaps

    # The color map's end is too bright on white.
    shades = colormaps["cividis"](np.linspace(0.0, 0.8, max(len(results), 2)))
    for i, (result, label) in enumerate(zip(results, labels, strict=True)):
        _draw_line(axes, *_points(result, name, 0), label, line_style(i, len(results), shades[i]))
    _linear(axes, results[0])


def draw_hit_rates(axes: Any, result: Evaluation, names: Sequence[str] = ()) -> None:
    """Draw the hit rate by capacity, capacity logarithmic; the bands are the 95 % intervals."""
    for name, style in _styles(result, names).items():
        capacity, rates = _points(result, name, 1)
        _draw_line(axes, capacity, rates, name, style)
        if name in result.bands:
            low, high = 100 * result.bands[name][1:].T
            axes.fill_between(capacity, low, high, color=style["color"], alpha=0.25, linewidth=0)
    axes.set(ylim=(0, _TOP))
    _logarithmic(axes, result, 1e-1, xlabel=f"{_unit(result)} in the fast tier", ylabel="hit rate of feature reads")


def draw_evaluation(figure: Any, result: Evaluation) -> None:
    """Draw the three panels of one evaluation on a ``matplotlib.figure.Figure``."""
    figure.set_size_inches(3 * _PANEL[0] + 0.8, _PANEL[1] + 1.1)
    rates = _RATES if result.bands else "Hit rate"
    panels = (("Read frequency", draw_frequency), ("Cumulative reads", draw_cumulative), (rates, draw_hit_rates))
    _draw_panels(figure, [(title, partial(draw, result=result)) for title, draw in panels], 1, 3, sharey=False)
    figure.suptitle(_heading([result]), fontsize=11)


def _draw_many(figure: Any, results: Sequence[Evaluation]) -> None:
    names = [name for name in results[0].hit_rates if all(name in result.hit_rates for result in results)]
    known, labels = list({name: None for r in results for name in r.hit_rates}), [result.fanouts for result in results]
    scores = [(plain_label(n), partial(draw_depths, results=results, labels=labels, name=n)) for n in names]
    blocks: dict[str, Sequence[_Panel]] = {
        "Cumulative reads, by fanouts": [(r.fanouts, partial(draw_cumulative, result=r, names=known)) for r in results],
        "Cumulative reads, by score": scores,
        _RATES: [(r.fanouts, partial(draw_hit_rates, result=r, names=known)) for r in results],
    }
    columns = min(_COLUMNS, max(map(len, blocks.values())))
    heights = [-(-len(panels) // columns) for panels in blocks.values()]
    figure.set_size_inches(columns * _PANEL[0] + 0.4, sum(heights) * _PANEL[1] + len(blocks) * 0.7 + 0.3)
    parts = figure.subfigures(len(blocks), 1, height_ratios=heights)
    for part, (heading, panels), height in zip(parts, blocks.items(), heights, strict=True):
        part.suptitle(heading, fontsize=11, fontweight="bold")
        _draw_panels(part, panels, height, columns, sharey=True)
    figure.suptitle(_heading(results), fontsize=11)


def _draw_panels(figure: Any, panels: Sequence[_Panel], rows: int, columns: int, sharey: bool) -> None:
    grid = figure.subplots(rows, columns, squeeze=False, sharey=sharey).ravel()
    for i, (axes, (title, draw)) in enumerate(zip(grid, panels, strict=False)):
        draw(axes)
        axes.set_title(title, fontsize=10)
        if sharey and i % columns:
            axes.set_ylabel("")
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    lines = {line.get_label(): line for axes in grid[: len(panels)] for line in axes.get_lines()}
    fitting = int(16 * _PANEL[0] * columns) // (max(map(len, lines)) + 12)  # 16 characters an inch, 12 for a line
    look = {"frameon": False, "fontsize": 9, "handlelength": 4, "ncols": max(1, min(len(lines), fitting))}
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", **look)


def _styles(result: Evaluation, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return styles by name, the same in all panels of `names`; the oracle, pale and broad, lies below the others."""
    names = [name for name in names or result.hit_rates if name != ORACLE]
    looks = {name: line_style(i, len(names), COLORS[i % len(COLORS)]) for i, name in enumerate(names)}
    oracle = {"color": "0.72", "linewidth": 4.5, "solid_capstyle": "butt"}
    return {ORACLE: oracle, **{name: look for name, look in looks.items() if name in result.hit_rates}}


def line_style(index: int, count: int, color: Any) -> dict[str, Any]:
    """Return the style of one of `count` lines; where lines coincide, the markers of each stand at other places."""
    markers: dict[str, Any] = {"marker": _MARKERS[index % len(_MARKERS)], "markersize": 6.5, "markeredgecolor": "white"}
    markers |= {"markeredgewidth": 0.6, "markevery": (_SPACING * (index + 0.5) / count, _SPACING)}
    return {"color": color, "linestyle": _DASHES[index % len(_DASHES)], "linewidth": 1.6, **markers}


def _draw_line(axes: Any, x: Any, y: Any, name: str, style: dict[str, Any]) -> None:
    """Draw a line under its name in the legend; a single point is a marker."""
    single = {"marker": style.get("marker", "o"), "markevery": None} if np.isfinite(y).sum() == 1 else {}
    axes.plot(x, y, label=plain_label(name), **style | single)


def plain_label(name: str) -> str:
    """Return a name from a file as a label: matplotlib reads text between two dollar signs as a formula."""
    return printable(name).replace("$", r"\$")


def _set_ticks(axis: Any, unit: str) -> None:
    """Label ticks by plain numbers; a logarithmic axis below two decades has 1, 2 and 5 of each, or what fits."""
    from matplotlib.ticker import LogLocator

    low, high = sorted(axis.get_view_interval())
    if axis.get_scale() == "log" and high < 100 * low:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    number = partial(np.format_float_positional, precision=6, fractional=False, trim="-")
    axis.set_major_formatter(lambda value, _: number(value) + unit)
    axis.set_minor_formatter("")


def _points(result: Evaluation, name: str, first: int) -> tuple[Any, Any]:
    """Return capacity and hit rate in percent, from the point `first` on."""
    return 100 * result.curve_bytes[first:] / max(result.num_bytes, 1), 100 * result.curves[name][first:]


def _linear(axes: Any, result: Evaluation) -> None:
    axes.set(xlim=(0, 100), ylim=(0, _TOP), xticks=range(0, 101, 25), yticks=range(0, 101, 25))
    _decorate(axes, xlabel=f"{_unit(result)}, hottest first", ylabel="cumulative feature reads")


def _logarithmic(axes: Any, result: Evaluation, begin: float, **labels: str) -> None:
    """Format axes whose x axis is logarithmic, from `begin` percent or one row on."""
    axes.set(xscale="log", xlim=(min(max(100 / max(result.num_rows, 1), begin), 50), 100))
    _decorate(axes, **labels)


def _decorate(axes: Any, **labels: str) -> None:
    """Label axes in percent, with a light grid behind the lines and no frame above and to the right."""
    axes.set(**labels)
    axes.grid(True, which="major", color="0.88", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    for axis in (axes.xaxis, axes.yaxis):
        _set_ticks(axis, "%")


def _unit(result: Evaluation) -> str:
    return _ROWS if len({entry.row_bytes for entry in result.types.values()}) <= 1 else "feature bytes"


def _heading(results: Sequence[Evaluation]) -> str:
    first, p = results[0], results[0].parameters
    fanouts = f"fanouts {first.fanouts}, " if len(results) == 1 else ""
    return (
        f"{first.num_rows:,} rows, {sum(p['train_nodes'].values()):,} training nodes, {p['sampler']} sampling, "
        f"{fanouts}batch size {p['batch_size']}, {first.epochs_label}"
    )
