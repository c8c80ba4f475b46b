"""Reorder within a memory budget: the same bytes for any budget, chunk and number of threads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import peaks
import pytest
from fresh_process import in_warm_process
from memory_group import memory_group
from toy_datasets import Leaves, tree_bytes

from benchmarks.rmat import rmat_edges
from tiering import native, pipeline
from tiering.artifacts import checksum
from tiering.artifacts.file_writer import FileWriter
from tiering.errors import BudgetError
from tiering.formats.dataset import Dataset, EdgeData, NodeData
from tiering.formats.features import FeatureTable
from tiering.formats.graph import Graph
from tiering.formats.scores import Scores
from tiering.graph.build import build_graph
from tiering.memory import Budget, own_memory
from tiering.reorder import arrays, rank
from tiering.reorder import graph as reordering
from tiering.reorder.adjacency import RelabelSizes
from tiering.reorder.arrays import NodeArrays, PieceSizes
from tiering.reorder.graph import reorder_graph
from tiering.reorder.rank import nodes_per_run, sort_bytes
from tiering.reorder.table_reader import plan_reading
from tiering.run.job import Carrier, Job
from tiering.run.options import ClusterOptions

MIB = 1 << 20


SMALL = PieceSizes(block=1024, entries=400, nodes=100, node_bytes=10, scores=12, min_ranked=20, chunk=4096, free=0)


@pytest.fixture
def small_blocks(monkeypatch):
    """Files of blocks of 1 KiB."""
    monkeypatch.setattr(checksum, "BLOCK_BYTES", SMALL.block)


def reordered(graph: Graph, scores: Scores, out: Path, left: int, threads: int = 1, *, features: bool = False) -> Graph:
    """Reorder in small pieces."""
    budget = Leaves(left, "test")
    return reorder_graph(graph, scores, out, features=features, threads=threads, memory=budget, sizes=SMALL)


def files(folder: Path) -> dict[str, bytes]:
    """Content, without the manifests: their checksums are of blocks of another size."""
    return {
        name: data for name, data in tree_bytes(folder).items() if not name.endswith(("manifest.json", "checksums"))
    }


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("left", [0, 1 << 22])
@pytest.mark.parametrize("width", [3, 150])
def test_rows_of_any_length(tmp_path, width, left):
    """Rows of 24 bytes, which run across the ends of blocks, and longer than a block."""
    random = np.random.default_rng(0)
    values, order = random.random((60, width)), random.permutation(60)
    with FileWriter(tmp_path / "file", values.nbytes) as file:
        NodeArrays(Leaves(left, "test"), SMALL, 3).permuted(file, values, np.argsort(order))
    np.testing.assert_array_equal(np.fromfile(tmp_path / "file").reshape(values.shape), values[order])


def big_graph(folder: Path, edges: int, scale: int, leaves: int = 0, **options: Any) -> tuple[Graph, Scores]:
    """A power-law graph with ids in no order, and scores; leaves have an edge from one node each."""
    src, dst = rmat_edges(scale, edges, 1, scramble=True)
    count = leaves + (1 << scale)
    src = np.append(src, np.zeros(leaves, src.dtype))
    dst = np.append(dst, np.arange(1 << scale, count, dtype=dst.dtype))
    nodes = NodeData(count, splits={"train": np.arange(100)}, labels=np.arange(count) % 7)
    data = Dataset("big", "npy", {"node": nodes}, [EdgeData(("node", "to", "node"), src, dst)])
    graph = build_graph(data, folder / "graph", **options)
    return graph, pipeline.score_graph(graph, folder / "scores", "degree")


@pytest.mark.slow
def test_a_window_of_many_columns_stays_within_its_budget(tmp_path, peak_memory, settled_memory):
    """The last window has few entries, but nearly all columns, and the start of each."""
    graph, scores = big_graph(tmp_path, 36_000_000, 18, leaves=12_000_000)
    budget = own_memory() + 260 * MIB
    with peak_memory() as peak:
        pipeline.reorder_graph(graph, scores, tmp_path / "windows", memory=budget)
    assert peak.bytes < budget


@pytest.mark.usefixtures("small_blocks")
def test_nothing_but_blocks_fits(tmp_path, monkeypatch):
    """The source map and the places of the columns pass in parts, the order comes in pieces."""
    random = np.random.default_rng(0)
    nodes = {name: NodeData(count) for name, count in (("many", 2000), ("few", 900))}
    pairs = [random.integers(0, 900, (2, 1000)), random.integers(0, 900, (2, 1000))]
    pairs[0][0] *= 2
    data = Dataset("data", "npy", nodes, [
        EdgeData(("many", "to", "few"), *pairs[0], data={"weight": random.random(1000)}),
        EdgeData(("few", "to", "many"), *pairs[1]),
    ])  # fmt: skip
    graph = build_graph(data, tmp_path / "graph")
    scores = pipeline.score_graph(graph, tmp_path / "scores", "degree")
    whole = pipeline.reorder_graph(graph, scores, tmp_path / "whole")
    place, rename, sort = native.place_indices, native.rename_sources, native.sort_by_score
    columns: set[int] = set()
    parts: set[int] = set()

    def placing(*arguments: Any) -> None:
        columns.add(arguments[6])
        place(*arguments)

    def renaming(*arguments: Any) -> None:
        parts.add(arguments[2])
        rename(*arguments)

    def sorting(scores: Any, threads: int) -> Any:
        assert scores.size <= 20 or np.unique(scores).size == 1
        return sort(scores, threads)

    monkeypatch.setattr(native, "place_indices", placing)
    monkeypatch.setattr(native, "rename_sources", renaming)
    monkeypatch.setattr(native, "sort_by_score", sorting)
    made = reordered(graph, scores, tmp_path / "parts", 0)
    assert files(whole.path) == files(made.path)
    assert {0, 100, 200, 1900} <= parts, "parts of 400 bytes of the source map"
    assert len(columns) > 6, "windows of 1 KiB"


@pytest.mark.usefixtures("small_blocks")
def test_lists_that_would_be_read_often_are_cut_first(tmp_path, monkeypatch):
    """By tasks of this process, which leave nothing behind."""
    random = np.random.default_rng(0)
    edges = EdgeData(("node", "to", "node"), *random.integers(0, 500, (2, 9000)), data={"weight": random.random(9000)})
    graph = build_graph(Dataset("data", "npy", {"node": NodeData(500)}, [edges]), tmp_path / "graph")
    scores = pipeline.score_graph(graph, tmp_path / "scores", "degree")
    whole = pipeline.reorder_graph(graph, scores, tmp_path / "whole")
    for name, value in vars(SMALL).items():
        monkeypatch.setitem(vars(arrays.SIZES), name, value)
    steps, run = [], Job.run
    monkeypatch.setattr(Job, "run", lambda job, step, *only: steps.append(step.name) or run(job, step, *only))
    for parts in (1, 5):
        carrier = None if parts == 1 else Carrier(ClusterOptions(shards=parts, workers=1))
        monkeypatch.setattr(reordering, "own_carrier", lambda *_, made=carrier: made)
        made = reorder_graph(graph, scores, tmp_path / f"in-{parts}", memory=Leaves(20_000, "test"))
        assert files(made.path) == files(whole.path)
        assert ("relation-0.cut" in steps) == (parts == 5)
    assert {path.name for path in tmp_path.iterdir()} == {"graph", "scores", "whole", "in-1", "in-5"}


@pytest.mark.usefixtures("small_blocks")
def test_nodes_put_first_are_in_one_piece_alone(tmp_path, monkeypatch):
    """These nodes are read in pieces, and come again in no piece of those by score."""
    monkeypatch.setattr(rank, "CHUNK_FIRST", 25)
    random = np.random.default_rng(0)
    edges = EdgeData(("node", "to", "node"), *random.integers(0, 500, (2, 3000)))
    graph = build_graph(Dataset("data", "npy", {"node": NodeData(500)}, [edges]), tmp_path / "graph")
    scores = pipeline.score_graph(graph, tmp_path / "scores", "degree")
    first = rank.read_first(graph, random.permutation(500)[:90])
    whole = reorder_graph(graph, scores, tmp_path / "whole", first=first)
    made = reorder_graph(graph, scores, tmp_path / "pieces", first=first, memory=Leaves(0, "test"), sizes=SMALL)
    assert sorted(made.new_to_old("node").tolist()) == list(range(500))
    assert files(whole.path) == files(made.path)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("stop", [1, 2, 5])
def test_an_interrupted_run_goes_on_from_the_missing_block(tmp_path, monkeypatch, stop):
    pairs = np.random.default_rng(0).integers(0, 100, (2, 2000))
    data = Dataset("data", "npy", {"node": NodeData(100)}, [EdgeData(("node", "to", "node"), *pairs)])
    graph = build_graph(data, tmp_path / "graph")
    scores = pipeline.score_graph(graph, tmp_path / "scores", "degree")
    whole = pipeline.reorder_graph(graph, scores, tmp_path / "whole")
    written: list[int] = []
    write = FileWriter.write

    def stopping(self: Any, first: int, piece: Any) -> None:
        if self.path.name == "indices":
            if len(written) == stop:
                raise KeyboardInterrupt
            written.append(first)
        write(self, first, piece)

    monkeypatch.setattr(FileWriter, "write", stopping)
    with pytest.raises(KeyboardInterrupt):
        reordered(graph, scores, tmp_path / "out", 0)
    assert written == list(range(stop))
    stop = 1000
    monkeypatch.setattr(native, "ScoreSorter", None)  # the order is there already
    reordered(graph, scores, tmp_path / "out", 0)
    assert written == list(range(8)), "each block once"
    assert files(tmp_path / "out") == files(whole.path)


@pytest.mark.slow
def test_inside_a_memory_group(tmp_path):
    """The kernel's own limit, budget and 10 %, less than the 240 MB of the graph: 20 M edges with ids."""
    graph, scores = big_graph(tmp_path, 20_000_000, 20, edge_ids=True)
    whole = pipeline.reorder_graph(graph, scores, tmp_path / "memory", memory="4GiB")
    budget = 190 * MIB
    with memory_group(budget + budget // 10) as group:
        done = group.run(
            "reorder", graph.path, "--scores", scores.path, "--memory", budget, "--out", tmp_path / "windows"
        )
        assert done.returncode == 0, done.stderr
    assert Graph.open(tmp_path / "windows").digest == whole.digest


def test_small_inputs_ask_for_what_they_take(tmp_path):
    """Not for the pieces of large ones: a small node type is ranked as a whole, a small table is one chunk."""
    with pytest.raises(BudgetError) as caught:
        nodes_per_run("node", 5000, 1, Budget(MIB, "1MiB"))
    told = int(re.search(r'memory="(\d+)MiB"', str(caught.value))[1]) * MIB
    assert told - sort_bytes(5000, 1) <= 9 * MIB
    assert sort_bytes(300_000, 1) < 20 * MIB
    edges = RelabelSizes(3_000_000, 300_000, 300_000)
    assert edges.minimum() < 1.3 * sum(edges.parts()) < 20 * MIB
    edges = RelabelSizes(1 << 30, 1 << 20, 1 << 20)
    assert edges.piece == edges.sizes.entries, "large ones are read as before"
    np.save(tmp_path / "rows.npy", np.zeros((1000, 250), np.float32))
    table = FeatureTable(tmp_path / "rows.npy", 1000, 250, "float32", 128)
    assert plan_reading(table, True).memory < 4 * table.bytes


def ranking_and_peak(low: float) -> tuple[bool, int]:
    """Whether 400,000 scores from `low` to 1 are ranked as numpy ranks them, in chunks, and the memory it takes."""
    scores = np.random.default_rng(0).uniform(low, 1, 400_000)
    scores[:2] = 0, 1e300
    expected = np.argsort(-scores, kind="stable")
    rank._sorted(scores[:1000], 1)
    before = own_memory()
    with peaks.peak_memory() as peak:
        found = rank._sorted(scores, 1)
    return bool((found == expected).all()), peak.bytes - before


@pytest.mark.parametrize("low", [0.0, 1 - 1e-9])
def test_ranking_takes_no_more_than_it_reserves(low):
    """Also where all scores but two agree in their first bits, which is one bucket."""
    right, taken = in_warm_process(ranking_and_peak, low)
    assert right and taken < sort_bytes(400_000, 1)
