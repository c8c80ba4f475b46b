"""COO to CSC by buckets: the same bytes as in memory, for any budget, chunk and number of threads."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from memory_group import memory_group
from toy_datasets import toy_dataset, tree_bytes

from benchmarks.rmat import rmat_edges
from tiering import native
from tiering.artifacts import checksum, reader
from tiering.artifacts.file_writer import FileWriter
from tiering.formats.dataset import Dataset, EdgeData, NodeData
from tiering.formats.graph import Graph
from tiering.graph.build import build_graph
from tiering.graph.plan import SIZES, SortSizes, plan_import
from tiering.memory import Budget, own_memory, parse_memory

MIB = 1 << 20
SMALL = SortSizes(min_chunk=100, max_chunk=100, bucket_edges=8, run_records=1, columns=64, resident=0.5, margin=0)
"""Chunks of 100 edges, of which half of the segments stay in memory."""
SIZES_TRIED = {
    "in memory": replace(SMALL, resident=1.0),
    "on disk": replace(SMALL, resident=0.0),
    "half on disk": SMALL,
    "few columns": replace(SMALL, columns=3),
    "few buckets": replace(SMALL, buckets=2, columns=1 << 19),
    "few runs": replace(SMALL, runs=3),
    "two runs": replace(SMALL, runs=2, resident=0.0, columns=1),
    "one chunk": replace(SMALL, max_chunk=10_000, min_chunk=10_000, resident=0.0),
    "as always": SIZES,
}


@pytest.mark.parametrize("sizes", SIZES_TRIED.values(), ids=SIZES_TRIED)
@pytest.mark.parametrize("threads", [1, 3])
def test_same_bytes_as_in_memory(tmp_path, monkeypatch, sizes, threads):
    """Several types and relations, parallel edges, self loops, isolated nodes, edge data, edge ids."""
    data = toy_dataset(tmp_path / "data", 3, min_nodes=200, max_nodes=400, max_edges=3000).dataset
    monkeypatch.setattr(checksum, "BLOCK_BYTES", 1024)
    build_graph(data, tmp_path / "memory", edge_ids=True, threads=2)
    build_graph(data, tmp_path / "buckets", edge_ids=True, threads=threads, sizes=sizes)
    assert tree_bytes(tmp_path / "memory") == tree_bytes(tmp_path / "buckets")


def test_kernels_refuse_what_does_not_fit_together():
    src, dst = np.array([0, 1, 9, 1]), np.array([0, 5, 0, 1])
    with pytest.raises(ValueError, match=r"edge 101: destination id 5 is outside 0\.\.4"):
        native.count_buckets(dst, 100, 5, 0, 1)
    counts, memory = native.count_buckets(dst, 0, 6, 0, 1), np.zeros(64, np.uint8)
    with pytest.raises(ValueError, match=r"edge 102: source id 9 is outside 0\.\.8"):
        native.scatter_edges(src, dst, [], 100, 9, 6, 0, counts, 0, [memory])
    with pytest.raises(ValueError, match="memory for the records is too small"):
        native.scatter_edges(src, dst, [], 100, 10, 6, 0, counts, 0, [memory[:24]])
    with pytest.raises(ValueError, match="records and for each value"):
        native.scatter_edges(src, dst, [None], 100, 10, 6, 0, counts, 0, [memory])
    ones, indptr, places = np.ones((1, 2), np.int64), np.zeros(2, np.int64), np.zeros((1, 1), np.int64)
    with pytest.raises(ValueError, match="does not lie in the memory"):
        native.sort_runs(memory[:8], places, ones, [], 2, 0, 5, 0, indptr, [memory[16:24]])
    with pytest.raises(ValueError, match="one entry per record"):
        native.sort_runs(memory, places, ones, [], 2, 0, 5, 0, indptr, [memory[16:20]])
    with pytest.raises(ValueError, match="one column for each"):
        native.sort_runs(memory, places, ones, [], 3, 0, 5, 0, indptr, [memory[16:24]])


def edges_on_disk(folder: Path, count: int, nodes: int, scramble: bool = True) -> Path:
    pairs = np.stack(rmat_edges(nodes.bit_length() - 1, count, 1, scramble=scramble)).astype(np.int64)
    np.save(folder / "edge_index.npy", pairs)
    return folder / "edge_index.npy"


def mapped(path: Path) -> Dataset:
    """A relation whose edges are memory-mapped."""
    src, dst = np.load(path, mmap_mode="r")
    return Dataset("big", "npy", {"node": NodeData(BIG_NODES)}, [EdgeData(("node", "to", "node"), src, dst)])


BIG_EDGES, BIG_NODES = 40_000_000, 1 << 20
"""640 MB of edges; 480 MB for a CSC of them in memory, three blocks of result."""


@pytest.fixture(scope="module")
def medium(tmp_path_factory, scramble):
    return edges_on_disk(tmp_path_factory.mktemp("medium"), 10_000_000, BIG_NODES, scramble)


@pytest.mark.slow
@pytest.mark.parametrize("scramble", [False, True], scope="module")
@pytest.mark.parametrize("room", [100 * MIB, 200 * MIB])
def test_edge_data_stays_within_its_budget(tmp_path, peak_memory, monkeypatch, medium, scramble, room, settled_memory):
    """Without scrambling the first buckets are far larger than a chunk."""
    data = mapped(medium)
    data.edges[0].data["weight"] = data.edges[0].src.view(np.float32)[::2]
    reserved: list[int] = []
    reserve = reader.reserve
    monkeypatch.setattr(reader, "reserve", lambda path, nbytes: (reserved.append(nbytes), reserve(path, nbytes)))
    budget = parse_memory(own_memory() + room)
    with peak_memory() as peak:
        made = build_graph(data, tmp_path / "made", memory=budget, edge_ids=True)
    assert peak.bytes < budget.limit
    assert scramble or len(reserved) > 1
    order = made.edge_data()["edge_ids"]
    assert np.array_equal(made.csc()[1], data.edges[0].src[order])
    assert np.array_equal(made.edge_data()["weight"].view(np.int32), made.csc()[1])
    assert (np.diff(data.edges[0].dst[order]) >= 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("scramble", [False], scope="module")
@pytest.mark.parametrize("room", [100 * MIB, 200 * MIB])
def test_lists_in_order_of_time_stay_within_their_budget(tmp_path, peak_memory, medium, scramble, room, settled_memory):
    data = mapped(medium)
    edges = data.edges[0]
    edges.data["t"], edges.time = np.array(edges.src) * 7919 % 1_000_003, "t"
    budget = parse_memory(own_memory() + room)
    with peak_memory() as peak:
        made = build_graph(data, tmp_path / "made", memory=budget, edge_ids=True)
    assert peak.bytes < budget.limit
    np.testing.assert_array_equal(made.edge_data()["edge_ids"], np.lexsort((edges.data["t"], edges.dst)))


@pytest.mark.parametrize("resident", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("edges", [0, 1000, 1050])
def test_scratch_is_as_planned(tmp_path, monkeypatch, resident, edges):
    random, sizes = np.random.default_rng(0), replace(SMALL, resident=resident)
    relation = EdgeData(("node", "to", "node"), *random.integers(0, 300, (2, edges)), data={"w": random.random(edges)})
    data = Dataset("data", "npy", {"node": NodeData(300)}, [relation])
    reserved: list[int] = []
    reserve = reader.reserve
    monkeypatch.setattr(reader, "reserve", lambda path, nbytes: (reserved.append(nbytes), reserve(path, nbytes)))
    estimate = plan_import(data, Budget(1 << 40, "test"), edge_ids=True, sizes=sizes).stage(tmp_path)
    build_graph(data, tmp_path / "made", edge_ids=True, sizes=sizes)
    assert sum(reserved) == estimate.disk_scratch
    assert (estimate.disk_scratch > 0) == (resident < 1 and edges > 0)


FEW_NODES, MANY_NODES = {"indptr": 3, "indices": 8, "weight": 16}, {"indptr": 18, "indices": 8, "weight": 16}
RESUMED = (SMALL, replace(SMALL, resident=1.0), replace(SMALL, runs=3, resident=0.0))


@pytest.mark.parametrize(
    ("stop", "sizes", "blocks"),
    [
        *((stop, sizes, FEW_NODES) for stop in (1, 2, 5, 20) for sizes in RESUMED),
        *((stop, SMALL, MANY_NODES) for stop in (5, 6, 15)),  # the values of a column are written, its sources are not
    ],
)
def test_an_interrupted_run_goes_on_from_the_missing_block(tmp_path, monkeypatch, stop, sizes, blocks):
    """The second run has chunks of another size; a block that was recorded is not written again."""
    monkeypatch.setattr(checksum, "BLOCK_BYTES", 1024)
    random, nodes = np.random.default_rng(0), 300 if blocks is FEW_NODES else 2300
    pairs = random.integers(0, nodes, (2, 2000))
    edges = EdgeData(("node", "to", "node"), *pairs, data={"weight": random.random(2000)})
    data = Dataset("data", "npy", {"node": NodeData(nodes)}, [edges])
    recorded: list[tuple[str, int]] = []
    seal = FileWriter.seal

    def stopping(self: Any, digests: dict[int, bytes]) -> None:
        if len(recorded) >= stop:
            raise KeyboardInterrupt
        recorded.extend((self.path.name, block) for block in digests)
        seal(self, digests)

    monkeypatch.setattr(FileWriter, "seal", stopping)
    with pytest.raises(KeyboardInterrupt):
        build_graph(data, tmp_path / "graph", sizes=sizes)
    stop = 1000
    other = replace(sizes, min_chunk=77, max_chunk=77, bucket_edges=30)
    graph = build_graph(data, tmp_path / "graph", sizes=other)
    blocks = {**blocks, "checksums": 1}
    assert sorted(recorded) == sorted((name, block) for name, count in blocks.items() for block in range(count))
    with tempfile.TemporaryDirectory() as folder:
        assert build_graph(data, Path(folder) / "graph").digest == graph.digest


@pytest.mark.slow
def test_inside_a_memory_group(tmp_path, tmp_path_factory):
    """The kernel's own limit, budget and 10 %."""
    big, budget = edges_on_disk(tmp_path_factory.mktemp("big"), BIG_EDGES, BIG_NODES), 240 * MIB
    whole = build_graph(mapped(big), tmp_path / "memory")
    with memory_group(budget + budget // 10) as group:
        command = ("import", big.parent, "--num-nodes", BIG_NODES)
        done = group.run(*command, "--memory", budget, "--out", tmp_path / "buckets")
        assert done.returncode == 0, done.stderr
        killed = group.run(*command, "--memory", "8GiB", "--out", tmp_path / "killed")
        assert killed.returncode == -9, "a budget above the limit is the user's mistake: the kernel kills"
    assert Graph.open(tmp_path / "buckets").manifest.files == whole.manifest.files
