"""Feature rows that lie in no file of their own are written into the graph, once, and stay there through all stages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from toy_datasets import tree_bytes

import tiering
from tiering import pipeline
from tiering.artifacts import checksum
from tiering.errors import InputError, StorageError
from tiering.formats.dataset import Dataset, EdgeData, FeatureStream, GraphSoFar, NodeData
from tiering.graph.build import build_graph
from tiering.graph.plan import plan_import
from tiering.memory import Budget

ROWS, DIM = 300, 7
PAPERS = np.random.default_rng(1).standard_normal((ROWS, DIM)).astype(np.float16)


class Counted:
    """A stream that says which rows it was asked for, and may break off."""

    def __init__(self, rows: np.ndarray[Any, Any], step: int = 11, stop: int | None = None) -> None:
        self.rows, self.step, self.stop = rows, step, stop
        self.asked: list[int] = []

    def pieces(self, begin: int, graph: GraphSoFar) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
        self.asked.append(begin)
        for first in range(begin // self.step * self.step, self.rows.shape[0], self.step):
            if self.stop is not None and first >= self.stop:
                raise StorageError(5, "the source broke off")
            yield first, self.rows[first : first + self.step]

    def stream(self) -> FeatureStream:
        rows, dim = self.rows.shape
        return FeatureStream(rows, dim, self.rows.dtype.name, self.pieces, memory=1000, read=77)


def _dataset(source: Counted) -> Dataset:
    random = np.random.default_rng(0)
    edges = EdgeData(("paper", "cites", "paper"), random.integers(0, ROWS, 900), random.integers(0, ROWS, 900))
    nodes = NodeData(ROWS, source.stream(), splits={"train": np.arange(0, ROWS, 3)})
    return Dataset("papers", "test", {"paper": nodes}, [edges])


def test_rows_of_a_stream_lie_in_the_graph_and_go_through_reorder_and_layout(tmp_path):
    graph = build_graph(_dataset(Counted(PAPERS)), tmp_path / "graph")
    assert tiering.check(graph.path, "full") == []
    table = graph.feature_table("paper")
    assert table is not None
    assert table.path == graph.path / "features" / "tables" / "paper"
    np.testing.assert_array_equal(table.open(), PAPERS)
    alone = tiering.open(graph.path).feature_table("paper")  # of a graph that nobody holds
    assert alone is not None
    np.testing.assert_array_equal(alone.open(), PAPERS)
    scores = pipeline.score_graph(graph, tmp_path / "scores", "degree")
    reordered = pipeline.reorder_graph(graph, scores, tmp_path / "reordered")
    kept = reordered.feature_table("paper")
    assert kept is not None and kept.row_order == "original"
    assert kept.path.stat().st_ino == table.path.stat().st_ino, "the rows were copied"
    assert tiering.check(reordered.path, "full") == []
    ranked = pipeline.reorder_graph(graph, scores, tmp_path / "ranked", features=True)
    written = ranked.feature_table("paper")
    assert written is not None
    np.testing.assert_array_equal(written.open(), PAPERS[reordered.new_to_old("paper")])
    pipeline.layout(reordered, tmp_path / "layout", gpu=50 * DIM * 2, cpu=ROWS * DIM * 2)
    with tiering.open(tmp_path / "layout") as layout:
        ranks = np.arange(ROWS)
        rows = layout.features("paper").gather(ranks)
        np.testing.assert_array_equal(np.asarray(rows), PAPERS[reordered.new_to_old("paper")])


def test_a_stopped_import_goes_on_from_the_rows_that_are_there(tmp_path, monkeypatch):
    monkeypatch.setattr(checksum, "BLOCK_BYTES", 512)
    whole = build_graph(_dataset(Counted(PAPERS)), tmp_path / "whole")
    with pytest.raises(StorageError, match="broke off"):
        build_graph(_dataset(Counted(PAPERS, stop=200)), tmp_path / "graph")
    assert not (tmp_path / "graph").exists()
    again = Counted(PAPERS)
    graph = build_graph(_dataset(again), tmp_path / "graph")
    assert again.asked and 100 < again.asked[0] < 200
    assert tree_bytes(graph.path) == tree_bytes(whole.path)


def test_a_stream_that_is_refused_leaves_nothing(tmp_path):
    def refused(begin: int, graph: GraphSoFar) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
        yield 0, PAPERS[:10]
        raise InputError("damaged archive")

    dataset = _dataset(Counted(PAPERS))
    dataset.nodes["paper"].features = FeatureStream(ROWS, DIM, "float16", refused)
    with pytest.raises(InputError, match="damaged archive"):
        build_graph(dataset, tmp_path / "graph")
    assert list(tmp_path.iterdir()) == []


def test_a_stream_reads_the_adjacency_and_the_tables_that_it_needs(tmp_path):
    def doubled(begin: int, graph: GraphSoFar) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
        indptr, indices = graph.csc(("paper", "cites", "paper"))
        assert indptr[-1] == len(indices) == 900
        yield begin, 2 * graph.rows("paper")[begin:]

    dataset = _dataset(Counted(PAPERS))
    dataset.nodes["author"] = NodeData(ROWS, FeatureStream(ROWS, DIM, "float16", doubled, needs=("paper",)))
    graph = build_graph(dataset, tmp_path / "graph")
    table = graph.feature_table("author")
    assert table is not None
    np.testing.assert_array_equal(table.open(), 2 * PAPERS)
    assert list(graph.features.manifest.body["tables"]) == ["author", "paper"]  # type: ignore[union-attr]


def test_a_dry_run_counts_what_is_read_and_written(tmp_path):
    plan = plan_import(_dataset(Counted(PAPERS)), Budget(1 << 40, "test"), out=tmp_path / "graph")
    stage = plan.stage(tmp_path / "graph")
    step = next(step for step in stage.steps if step.name == "features of paper")
    assert (step.disk_read, step.disk_written, step.memory) == (77, PAPERS.nbytes, 1000 + PAPERS.nbytes)
    graph = build_graph(_dataset(Counted(PAPERS)), tmp_path / "graph")
    raw = [path for path in graph.path.rglob("*") if path.is_file() and path.name not in ("manifest.json", "checksums")]
    assert stage.left[tmp_path / "graph"] == sum(path.stat().st_size for path in raw)
    assert plan.shape.tables["paper"].path == graph.feature_table("paper").path  # type: ignore[union-attr]
