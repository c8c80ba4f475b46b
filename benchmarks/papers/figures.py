"""A figure of a paper made again: lines in panels, and the paper's own numbers next to ours; drawn by one function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from benchmarks.pages import markdown
from benchmarks.papers.inputs import Inputs
from tiering.evaluation.figures import open_figure

OURS, PAPER = "ours", "paper"
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS, _DASHES = "os^Dv>X", ("-", "--", "-.", ":", (0, (7, 3)), (0, (4, 1, 1, 1)), "-")
_PANEL, _WIDEST = (3.0, 2.7), 4
"""Inches of a panel, and panels side by side at most."""
_DPI, _SHADES = 100, 48

Values: TypeAlias = "Sequence[float] | Sequence[str]"
Claim: TypeAlias = "tuple[str, ...]"


@dataclass(frozen=True)
class Line:
    """One line, or one group of bars where `x` are names; `origin` says whose numbers they are, ours or the paper's."""

    name: str
    x: Values
    y: Sequence[float]
    origin: str = OURS


@dataclass(frozen=True)
class Panel:
    """Lines over one axis; `log` names the axes that are logarithmic: ``""``, ``"x"``, ``"y"`` or ``"xy"``."""

    title: str
    x: str
    y: str
    lines: Sequence[Line]
    log: str = ""


@dataclass(frozen=True)
class Figure:
    """A figure: the setting in a sentence, panels, and what the paper says next to what is measured here.

    An entry of `claims` has what is compared, the paper's number and ours, as text; where the figure has a second,
    local training set, also the number with that set (`side_by_side`).
    """

    title: str
    setting: str
    panels: Sequence[Panel]
    claims: Sequence[Claim]

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Figure:
        """Return the figure that `to_json` gave."""
        panels = [
            Panel(**{**panel, "lines": [Line(**line) for line in panel["lines"]]}) for panel in document["panels"]
        ]
        return cls(document["title"], document["setting"], panels, [tuple(claim) for claim in document["claims"]])

    def to_json(self) -> dict[str, Any]:
        """Return the figure as JSON holds it, numbers to five digits."""
        return {**asdict(self), "panels": [_rounded(asdict(panel)) for panel in self.panels]}

    def table(self) -> str:
        """Return the paper's numbers and ours in Markdown."""
        heads = ["quantity", "paper", "tiering", "tiering, local training nodes"][
            : max(map(len, self.claims), default=3)
        ]
        return markdown(heads, [[*claim, *["-"] * (len(heads) - len(claim))] for claim in self.claims], left=1)


FigureMaker: TypeAlias = Callable[[Inputs], Figure]
"""Computes a figure; lies in the table ``FIGURES`` of its paper's module."""


def _rounded(panel: dict[str, Any]) -> dict[str, Any]:
    def short(values: Values) -> list[Any]:
        return [value if isinstance(value, str) else float(f"{float(value):.5g}") for value in values]

    return {**panel, "lines": [{**line, "x": short(line["x"]), "y": short(line["y"])} for line in panel["lines"]]}


def side_by_side(uniform: Sequence[Claim], local: Sequence[Claim]) -> list[Claim]:
    """Return the claims with uniform training nodes, and behind each the number of that with local training nodes."""
    ours = {claim[0]: claim[2] for claim in local}
    return [(*claim, ours[claim[0]]) if claim[0] in ours else claim for claim in uniform]


def percent(fraction: float, digits: int = 0) -> str:
    """Return a fraction as text in percent."""
    return f"{100 * fraction:.{digits}f} %"


def save(figure: Figure, path: Path) -> None:
    """Draw a figure into a small PNG on white."""
    from PIL import Image

    canvas = open_figure(path)
    draw(figure, canvas)
    canvas.savefig(path, dpi=_DPI, facecolor="white")
    with Image.open(path) as picture:
        few = picture.convert("RGB").quantize(_SHADES, dither=Image.Dither.NONE)
    few.save(path, optimize=True)


def draw(figure: Figure, canvas: Any) -> None:
    """Draw the panels on a ``matplotlib.figure.Figure``, one legend below; the paper's numbers are stars or hatched."""
    columns = min(_WIDEST, len(figure.panels))
    rows = -(-len(figure.panels) // columns)
    canvas.set_size_inches(columns * (_PANEL[0] + (0.9, 0.3)[min(columns, 2) - 1]), rows * _PANEL[1] + 0.5)
    grid = canvas.subplots(rows, columns, squeeze=False).ravel()
    names = [line.name for panel in figure.panels for line in panel.lines if line.origin == OURS]
    styles = {name: number for number, name in enumerate(dict.fromkeys(names))}
    for axes, panel in zip(grid, figure.panels, strict=False):
        _draw_panel(axes, panel, styles)
    for axes in grid[len(figure.panels) :]:
        axes.set_axis_off()
    handles: dict[str, Any] = {}
    for axes in grid:
        found = zip(*axes.get_legend_handles_labels(), strict=True)
        handles = {label: handle for handle, label in found} | handles
    fitting = max(1, int(17 * _PANEL[0] * columns) // (max(map(len, handles)) + 9))
    look = {"frameon": False, "fontsize": 8.5, "handlelength": 3, "ncols": min(len(handles), fitting)}
    canvas.legend(handles.values(), handles.keys(), loc="outside lower center", **look)


def _draw_panel(axes: Any, panel: Panel, styles: Mapping[str, int]) -> None:
    bars = any(isinstance(value, str) for line in panel.lines for value in line.x)
    (_draw_bars if bars else _draw_lines)(axes, panel, styles)
    if "x" in panel.log:
        axes.set_xscale("log")
    if "y" in panel.log:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    for axis in (axes.yaxis, *(() if bars else (axes.xaxis,))):
        _set_ticks(axis)
    axes.set_title(panel.title, fontsize=10)
    axes.set_xlabel(panel.x, fontsize=9)
    axes.set_ylabel(panel.y, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(True, axis="y" if bars else "both", which="major", color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _set_ticks(axis: Any) -> None:
    from matplotlib.ticker import LogLocator

    low, high = sorted(axis.get_view_interval())
    if axis.get_scale() == "log" and high < 200 * low:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    axis.set_minor_formatter("")


def _draw_lines(axes: Any, panel: Panel, styles: Mapping[str, int]) -> None:
    for line in panel.lines:
        number = styles.get(line.name)
        color = "0.5" if number is None else _COLORS[number % len(_COLORS)]
        if line.origin == PAPER:
            look: dict[str, Any] = {"color": color, "linestyle": "none", "marker": "*", "markersize": 13, "zorder": 5}
            look |= {"markeredgecolor": "black", "markeredgewidth": 0.7}
        else:
            look = {"color": color, "linestyle": _DASHES[(number or 0) % len(_DASHES)], "linewidth": 1.6}
            look |= {"marker": _MARKERS[(number or 0) % len(_MARKERS)], "markersize": 5}
            look["markevery"] = max(1, len(line.x) // 8)
        axes.plot(line.x, line.y, label=_label(line), **look)


def _draw_bars(axes: Any, panel: Panel, styles: Mapping[str, int]) -> None:
    places = list(dict.fromkeys(str(value) for line in panel.lines for value in line.x))
    width = 0.84 / len(panel.lines)
    for at, line in enumerate(panel.lines):
        where = np.array([places.index(str(value)) for value in line.x]) + (at - (len(panel.lines) - 1) / 2) * width
        number = styles.get(line.name)
        color = "0.5" if number is None else _COLORS[number % len(_COLORS)]
        look: dict[str, Any] = {"color": color}
        if line.origin == PAPER:
            look = {"color": "white", "edgecolor": color, "hatch": "////", "linewidth": 1.0}
        axes.bar(where, line.y, width * 0.92, label=_label(line), **look)
    long = max(map(len, places)) > 6 and len(places) > 3
    axes.set_xticks(range(len(places)), places)
    axes.tick_params(axis="x", rotation=20 if long else 0)


def _label(line: Line) -> str:
    return f"{line.name} (paper)" if line.origin == PAPER else line.name
