"""The skew of scores: the fraction of their sum that the hottest nodes hold. From a sample, at any size."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from tiering.description import PERCENT, TOP, Plot, decorate, line_style, plain_label
from tiering.units import format_count

FloatArray: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"
SAMPLED = 102_400  # values read, of all types together
MOST_LINES = 6  # types drawn, those with the most nodes; as many as there are colours
_BLOCK = 8  # values that are read together: those that one access to memory brings
_POINTS = 200
_LEFT = 1e-2  # where the logarithmic axis begins at the earliest, in percent


def sample_values(values: FloatArray, most: int) -> FloatArray:
    """Return some `most` of the values, or all if there are no more: a block of 8 at random in each of equal parts."""
    count = max(1, most // _BLOCK)
    if values.size <= count * _BLOCK:
        return np.array(values)
    places = (np.arange(count) + np.random.default_rng(0).random(count)) / count
    begins = (places * (values.size - _BLOCK + 1)).astype(np.int64)
    return np.array(values[begins[:, None] + np.arange(_BLOCK)]).ravel()


def skew_curve(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return at most 200 fractions of the nodes, ascending, and the fractions of the sum that the hottest so many hold.

    `values`: shape (nodes,), in any order; not negative, with a sum above 0.
    """
    hottest = np.sort(values)[::-1]
    places = np.unique(np.geomspace(1, hottest.size, _POINTS).round().astype(np.int64))
    sums = np.cumsum(hottest)
    return places / hottest.size, sums[places - 1] / sums[-1]


def skew_plot(values: Mapping[str, FloatArray]) -> Plot:
    """Return a plot of the skew by node type; `values` by type, of which a sample is read when it is drawn."""
    largest = sorted(values, key=lambda name: -values[name].size)[:MOST_LINES]
    shown = {name: values[name] for name in values if name in largest}
    total = sum(array.size for array in shown.values())
    sampled = f", from {format_count(SAMPLED)} of {format_count(total)} values" if total > SAMPLED else ""
    of = f", the {MOST_LINES} largest types" if len(shown) < len(values) else ""
    return Plot(f"Skew{of}{sampled}", partial(_draw, shown))


def _draw(values: Mapping[str, FloatArray], figure: Any) -> None:
    figure.set_size_inches(4.2, 2.6)
    axes = figure.subplots()
    least, most = 100.0, SAMPLED // max(1, len(values))
    for index, (name, array) in enumerate(values.items()):
        sample = sample_values(array, most)
        if sample.sum() > 0:
            nodes, held = skew_curve(sample)
            least = min(least, 100 * nodes[0])
            axes.plot(100 * nodes, 100 * held, label=plain_label(name), **line_style(index))
    axes.set(xscale="log", xlim=(min(max(least, _LEFT), 50), 100), ylim=(0, TOP))
    axes.set(xlabel="hottest nodes", ylabel="of the sum")
    axes.yaxis.set_major_formatter(PERCENT)
    decorate(axes)
    if len(axes.get_lines()) > 1:
        axes.legend(frameon=False, fontsize=8)
