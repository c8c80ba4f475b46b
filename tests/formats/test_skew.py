"""Skew of scores: against sums in plain Python, and from a sample of values too many to sort."""

import numpy as np
import pytest

from tiering.formats.skew import SAMPLED, sample_values, skew_curve, skew_plot


def test_the_hottest_hold_what_their_sum_is():
    values = np.random.default_rng(0).pareto(1.2, 3000)
    nodes, held = skew_curve(values)
    ordered = sorted(values.tolist(), reverse=True)
    for share, part in zip(nodes, held, strict=True):
        assert part == pytest.approx(sum(ordered[: round(share * 3000)]) / sum(ordered))
    assert nodes[0] == 1 / 3000 and nodes[-1] == held[-1] == 1


def test_few_values_are_all_looked_at():
    assert np.array_equal(sample_values(np.arange(1000.0), 1024), np.arange(1000.0))


@pytest.mark.parametrize("ordered", [True, False])
def test_a_sample_tells_what_all_values_tell(ordered):
    values = np.random.default_rng(1).pareto(2.0, 3_000_000)
    if ordered:
        values.sort()
    sample = sample_values(values, SAMPLED)
    assert sample.size <= SAMPLED
    nodes, held = skew_curve(sample)
    everything = np.cumsum(np.sort(values)[::-1]) / values.sum()
    for share in (0.01, 0.1, 0.5):
        expected = everything[int(share * values.size) - 1]
        assert np.interp(share, nodes, held) == pytest.approx(expected, abs=0.03)


def test_drawing_reads_a_sample_only():
    """A vector of 2^40 values that takes no memory: whoever looked at all would not end."""
    figure_module = pytest.importorskip("matplotlib.figure")
    huge = np.broadcast_to(np.float64(2), 1 << 40)
    plot = skew_plot({"paper": huge, "author": np.arange(5.0), "unread": np.zeros(7)})
    figure = figure_module.Figure()
    plot.draw(figure)
    lines = {line.get_label(): line for line in figure.axes[0].get_lines()}
    assert set(lines) == {"paper", "author"}
    np.testing.assert_allclose(lines["author"].get_ydata(), [40, 70, 90, 100, 100])
    np.testing.assert_allclose(lines["paper"].get_xdata(), lines["paper"].get_ydata())
    assert "102,400 of 1,099,511,627,788 values" in plot.title


def test_of_many_types_the_largest_are_drawn():
    figure_module = pytest.importorskip("matplotlib.figure")
    plot = skew_plot({f"t{size}": np.ones(size) for size in (3, 90, 20, 5, 60, 70, 80, 10)})
    figure = figure_module.Figure()
    plot.draw(figure)
    assert [line.get_label() for line in figure.axes[0].get_lines()] == ["t90", "t20", "t60", "t70", "t80", "t10"]
    assert "6 largest" in plot.title
