"""Draw an `Evaluation`: how skewed the accesses are, and what each score would have served."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from tiering.errors import CapabilityError, InputError
from tiering.scores.evaluate import ORACLE, Evaluation

# Okabe & Ito's palette, told apart with any colour vision; the dashes tell lines apart in print.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_DASHES = ("-", "--", "-.", (0, (1, 1.2)), (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)))

_BINS = 48  # points of the frequency curves
_LEFT = {"rank": 1e-2, "capacity": 1e-1}  # where the axes begin, in percent


def plot(result: Evaluation, path: str | os.PathLike[str], *, title: str | None = None) -> Path:
    """Draw access frequency by rank, and hit rate by capacity.

    Parameters
    ----------
    result
        From `tiering.scores.evaluate.evaluate`.
    path
        File to write; the ending (``.png``, ``.svg``, ``.pdf``) chooses the format.
    title
        Heading; the sampling parameters by default.

    Returns
    -------
    pathlib.Path
        `path`.

    Raises
    ------
    CapabilityError
        If matplotlib is not installed.
    InputError
        If the ending names no format that matplotlib writes.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise CapabilityError("plots need matplotlib: pip install 'tiering[plot]'") from error
    path = Path(path)
    figure = Figure(figsize=(11, 4.4), layout="constrained")
    formats = FigureCanvasAgg(figure).get_supported_filetypes()
    if path.suffix.lower().lstrip(".") not in formats:
        raise InputError(f"{path}: expected a file name ending in one of {', '.join(sorted(formats))}")
    left, right = figure.subplots(1, 2)
    for name, style in _styles(result).items():
        _draw_frequency(left, result, name, style)
        capacity = 100 * result.curve_rows[1:] / result.num_rows
        right.plot(capacity, 100 * result.curves[name][1:], label=name, **style)
    _decorate(left, right, result)
    figure.suptitle(title or _heading(result), fontsize=11)
    figure.savefig(path, dpi=150)
    return path


def _styles(result: Evaluation) -> dict[str, dict[str, Any]]:
    """Line styles by name, the oracle first so that the others lie above it."""
    styles: dict[str, dict[str, Any]] = {ORACLE: {"color": "black", "linewidth": 2.2}}
    for i, (name, _) in enumerate(result.rows()[:-1]):
        colour, dash = _COLOURS[i % len(_COLOURS)], _DASHES[i % len(_DASHES)]
        styles[name] = {"color": colour, "linestyle": dash, "linewidth": 1.7}
    return styles


def _draw_frequency(axes: Any, result: Evaluation, name: str, style: dict[str, Any]) -> None:
    """Mean accesses per row and epoch between points of the curve, far enough apart to average the noise out."""
    chosen = np.unique(np.searchsorted(result.curve_rows, np.geomspace(1, result.num_rows, _BINS)))
    rows, covered = result.curve_rows[chosen], result.curves[name][chosen]
    rows, covered = np.concatenate([[0], rows]), np.concatenate([[0], covered])
    per_row = np.diff(covered) * result.accesses / np.diff(rows) / result.parameters["epochs"]
    axes.plot(100 * rows[1:] / result.num_rows, np.where(per_row > 0, per_row, np.nan), label=name, **style)


def _decorate(left: Any, right: Any, result: Evaluation) -> None:
    for axes, begin in ((left, _LEFT["rank"]), (right, _LEFT["capacity"])):
        axes.set_xscale("log")
        axes.set_xlim(min(max(100 / result.num_rows, begin), 50), 100)
        axes.grid(True, which="major", color="0.88", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}%")
    left.set_yscale("log")
    left.set_xlabel("rank of the row, by score")
    left.set_ylabel("accesses per row and epoch")
    left.set_title("Access frequency", fontsize=10)
    right.set_ylim(0, 100)
    right.yaxis.set_major_formatter(lambda value, _: f"{value:g}%")
    right.set_xlabel("feature rows in the fast tier")
    right.set_ylabel("accesses served (hit rate)")
    right.set_title("Hit rate", fontsize=10)
    right.legend(frameon=False, loc="upper left")


def _heading(result: Evaluation) -> str:
    p = result.parameters
    fanouts = ",".join(str(f) if isinstance(f, int) else "{...}" for f in p["fanouts"])
    return (
        f"{result.num_rows:,} rows, {sum(p['train_nodes'].values()):,} training nodes, "
        f"fanouts {fanouts}, batch size {p['batch_size']}, {p['epochs']} epochs"
    )
