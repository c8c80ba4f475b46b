"""Plots: one evaluation, several depths, and what is refused."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
from judged_graphs import import_graph

from tiering.errors import CapabilityError, InputError
from tiering.evaluation import ORACLE, evaluate
from tiering.evaluation.figures import _styles, draw_cumulative, draw_depths, draw_frequency, draw_hit_rates, plot

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def depths(shared_data, tmp_path_factory):
    graph = import_graph(shared_data / "cora", tmp_path_factory.mktemp("cora") / "graph")
    scores = {f"score {k}": {"node": np.roll(np.arange(graph.num_nodes()), k)} for k in range(5)}
    return [evaluate(graph, scores, [10] * hops, batch_size=32, epochs=2) for hops in (2, 3, 4, 5)]


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_one(depths, tmp_path, ending):
    assert plot(depths[0], tmp_path / f"one.{ending}").stat().st_size > 10_000


@pytest.mark.slow
def test_several(depths, tmp_path):
    text = plot(depths, tmp_path / "many.svg").read_text()
    for words in ("10,10,10,10,10", "score 4", "Cumulative reads, by score", "95 % intervals"):
        assert f"<!-- {words} -->" in text or words in text


def test_lines_are_the_curves(depths):
    """The cumulative panel of a score runs through its hit rates; every line is labeled."""
    from matplotlib.figure import Figure

    axes = Figure().subplots(1, 4)
    draw_cumulative(axes[0], depths[0])
    names = [line.get_label() for line in axes[0].get_lines()]
    assert sorted(names) == ["oracle", *(f"score {k}" for k in range(5))]
    line = axes[0].get_lines()[names.index("score 3")]
    np.testing.assert_allclose(line.get_ydata(), 100 * depths[0].curves["score 3"])
    np.testing.assert_allclose(line.get_xdata(), 100 * depths[0].curve_bytes / depths[0].num_bytes)
    draw_depths(axes[1], depths, [each.fanouts for each in depths], "score 3")
    assert [line.get_label() for line in axes[1].get_lines()][1] == "10,10,10"
    draw_hit_rates(axes[2], depths[0])
    assert len(axes[2].collections) == 5  # bands of all scores but the oracle
    draw_frequency(axes[3], depths[0])
    highest = np.nanmax(axes[3].get_lines()[0].get_ydata())
    assert 0 < highest <= depths[0].batches / 2


def test_curves_that_coincide_are_told_apart(tmp_path, shared_data):
    """Each of seven equal scores, and the oracle where they reach it, leaves marks of its own in each panel."""
    from matplotlib.colors import to_rgb
    from matplotlib.image import imread

    graph = import_graph(shared_data / "cora", tmp_path / "graph")
    scores = {f"score {k}": {"node": np.arange(graph.num_nodes()) * (k + 1.0)} for k in range(7)}
    found = evaluate(graph, scores, [10, 10], batch_size=32, epochs=2)
    picture = imread(plot(found, tmp_path / "same.png"))[:, :, :3]
    looks = [style for name, style in _styles(found, ()).items() if name != ORACLE]
    assert len({(style["color"], style["linestyle"], style["marker"]) for style in looks}) == 7
    for panel in np.array_split(picture[: picture.shape[0] * 4 // 5], 3, axis=1):
        for style in looks:
            assert (np.abs(panel - to_rgb(style["color"])).max(axis=2) < 0.02).sum() > 50


def test_rows_of_several_sizes_are_counted_by_bytes(tmp_path, shared_data):
    """The skew is reads per KiB: its integral over the bytes of all rows is the reads of an epoch, of each score."""
    from matplotlib.figure import Figure

    graph = import_graph(shared_data / "cora", tmp_path / "graph")
    found = evaluate(graph, {"degree": {"node": np.arange(graph.num_nodes())}}, [10], batch_size=32, epochs=2)
    entry = found.types["node"]
    mixed = replace(found, types={"node": entry, "other": replace(entry, row_bytes=2 * entry.row_bytes)})
    axes = Figure().subplots(1, 4)
    for at, draw in enumerate((draw_frequency, draw_cumulative, draw_hit_rates)):
        draw(axes[at], mixed)
        assert "feature bytes" in axes[at].get_xlabel()
    assert axes[0].get_ylabel().startswith("reads per KiB per epoch")
    draw_frequency(axes[3], found)
    assert axes[3].get_ylabel().startswith("reads per row per epoch") and "feature rows" in axes[3].get_xlabel()
    for panel, unit in ((axes[0], found.num_bytes / 1024), (axes[3], found.num_rows)):
        x, y = next(line for line in panel.get_lines() if line.get_label() == "degree").get_data()
        reads = np.nansum(y * np.diff(np.concatenate([[0], x]))) / 100 * unit
        assert reads == pytest.approx(found.accesses / len(found.epochs), rel=1e-6)


def test_refusals(depths, tmp_path, monkeypatch):
    with pytest.raises(InputError, match="expected a file name ending in one of"):
        plot(depths[0], tmp_path / "curves.doc")
    with pytest.raises(InputError, match="expected results"):
        plot([], tmp_path / "a.png")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(CapabilityError, match=r"pip install 'tiering\[plot\]'"):
        plot(depths[0], tmp_path / "again.png")
