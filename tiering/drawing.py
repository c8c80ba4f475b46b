"""How plots look, and SVG of them for notebooks. matplotlib is optional: without it there are no plots."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from typing import Any

from tiering.progress import printable

# Okabe & Ito's palette, told apart with any colour vision; the dashes tell lines apart in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("-", "--", "-.", (0, (1, 1)), (0, (7, 3)), (0, (4, 1, 1, 1, 1, 1)))
PERCENT = "{x:g}%"
"""Format of tick labels."""
TOP = 102
"""Percent where an axis ends: a line at 100 is not cut in half."""


def line_style(index: int) -> dict[str, Any]:
    """Return colour, dash and width of the line number `index` of a plot."""
    return {"color": COLOURS[index % len(COLOURS)], "linestyle": DASHES[index % len(DASHES)], "linewidth": 1.7}


def plain_label(name: str) -> str:
    """Return a name from a file as a label: matplotlib reads text between two dollar signs as a formula."""
    return printable(name).replace("$", r"\$")


def decorate(axes: Any) -> None:
    """Format axes: percent along x, a light grid behind the lines, no frame above and to the right."""
    axes.xaxis.set_major_formatter(PERCENT)
    axes.grid(True, which="major", color="0.88", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def svg(draw: Callable[[Any], None]) -> str | None:
    """Return SVG of what `draw` draws on a ``matplotlib.figure.Figure``, on white; ``None`` without matplotlib."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        return None
    with rc_context({"svg.hashsalt": "tiering"}):  # the same plot is the same text
        figure = Figure(layout="constrained")
        draw(figure)
        text = StringIO()
        figure.savefig(text, format="svg", facecolor="white", metadata={"Date": None})
    return text.getvalue()
