"""COO to CSC by buckets: the same bytes as in memory, for any budget, chunk and number of threads."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_group import memory_group
from toy_datasets import toy_dataset, tree_bytes

from benchmarks.rmat import rmat_edges
from tiering import native
from tiering.artifacts import checksum, reader
from tiering.artifacts.file_writer import FileWriter
from tiering.errors import BudgetError, InputError
from tiering.formats.dataset import Dataset, EdgeData, NodeData
from tiering.formats.graph import Graph
from tiering.graph import build_graph
from tiering.graph.plan import SIZES, CscSizes, SortSizes, minimum_memory, plan_buckets, plan_import
from tiering.memory import Budget, own_memory, parse_memory

MIB = 1 << 20
SMALL = SortSizes(
    min_chunk=100,
    max_chunk=100,
    bucket_edges=8,
    run_records=1,
    columns=64,
    resident=0.5,
    margin=0,
)
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


@pytest.mark.slow
@settings(max_examples=15)
@given(
    seed=st.integers(0, 2**32), nodes=st.integers(1, 100), edges=st.integers(0, 1500), chunk=st.integers(1, 300),
    buckets=st.integers(2, 100), columns=st.integers(1, 100), runs=st.integers(2, 20), resident=st.floats(0, 1),
    hub=st.floats(0, 1), threads=st.integers(1, 3),
)  # fmt: skip
def test_any_sizes_give_the_same_bytes(seed, nodes, edges, chunk, buckets, columns, runs, resident, hub, threads):
    """Values of any size and stride; up to all of the edges lead to one node."""
    random = np.random.default_rng(seed)
    src, dst = random.integers(0, nodes, (edges, 2)).astype(random.choice([np.int32, np.int64])).T  # strided
    dst[random.random(edges) < hub] = nodes // 2
    data = {
        "weight": random.random((edges, 3)).astype(np.float32)[:, 1],
        "kind": random.integers(0, 9, edges).astype(np.int8),
        "triple": random.integers(0, 9, (edges, 3)).astype(np.int16)[::-1],
    }
    own = random.integers(0, 1 << 40, edges) if random.random() < 0.5 else None
    relation = EdgeData(("node", "to", "node"), src, dst, data=data, edge_ids=own)
    dataset = Dataset("any", "npy", {"node": NodeData(nodes)}, [relation])
    sizes = SortSizes(-1, 0, chunk, chunk, buckets, 8, 1, columns, runs, resident, 0)
    with tempfile.TemporaryDirectory() as folder:
        made = build_graph(dataset, Path(folder) / "made", edge_ids=True, threads=threads, sizes=sizes)
        order = np.argsort(dst, kind="stable")
        indptr, indices = made.csc()
        np.testing.assert_array_equal(indices, src[order])
        np.testing.assert_array_equal(np.diff(indptr), np.bincount(dst, minlength=nodes))
        found = dict(made.edge_data())
        np.testing.assert_array_equal(found.pop("edge_ids"), order if own is None else own[order])
        assert set(found) == set(data)
        for name, values in found.items():
            np.testing.assert_array_equal(values, data[name][order])


@pytest.mark.slow
@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32), nodes=st.integers(1, 200), edges=st.integers(0, 3000), shift=st.integers(0, 8),
    chunk=st.integers(1, 3000), cut=st.floats(0, 1), wide=st.booleans(), threads=st.sampled_from([1, 2, 7]),
)  # fmt: skip
def test_kernels_scatter_and_sort(seed, nodes, edges, shift, chunk, cut, wide, threads):
    random = np.random.default_rng(seed)
    src, dst = random.integers(0, nodes, (edges, 2)).astype(random.choice([np.int32, np.int64])).T  # strided
    values = random.integers(0, 256, (edges, 5), np.uint8)
    num_src, buckets = 2**31 if wide else nodes, ((nodes - 1) >> shift) + 1
    first = min(round(cut * buckets), buckets - 1)
    widths = (native.scattered_bytes(num_src), 5, 8)
    memory = np.zeros((edges + 100) * 64, np.uint8)
    memory = memory[-memory.ctypes.data % 64 :]
    places, counts, at = [], [], 0
    for begin in range(0, edges, chunk):
        part = slice(begin, begin + chunk)
        by_thread = native.count_buckets(dst[part], begin, nodes, shift, threads)
        counts.append(by_thread.sum(0)[first:])
        kept = int(counts[-1].sum())
        ends = at + np.cumsum([0, *(-(-kept * width // 16) * 16 for width in widths)])
        parts = [memory[low:high] for low, high in pairwise(ends)]
        native.scatter_edges(
            src[part], dst[part], [values[part], None], begin, num_src, nodes, shift, by_thread, first, parts
        )
        places.append(ends[:3])
        at = ends[-1]
    begin, kept = first << shift, dst >= first << shift
    order = np.argsort(dst[kept], kind="stable")
    indptr = np.zeros(nodes - begin, np.int64)
    outs = [np.zeros(len(order) * width, np.uint8) for width in (8 if wide else 4, 5, 8)]
    native.sort_runs(
        memory, np.array(places, np.int64).reshape(-1, 3), np.array(counts, np.int64).reshape(-1, buckets - first),
        [5, 8], nodes - begin, shift, num_src, 1000, indptr, outs, threads,
    )  # fmt: skip
    np.testing.assert_array_equal(outs[0].view(np.int64 if wide else np.int32), src[kept][order])
    np.testing.assert_array_equal(outs[1].reshape(-1, 5), values[kept][order])
    np.testing.assert_array_equal(outs[2].view(np.int64), np.flatnonzero(kept)[order])
    degrees = np.bincount(dst[kept] - begin, minlength=nodes - begin)
    np.testing.assert_array_equal(indptr, 1000 + np.concatenate([[0], np.cumsum(degrees)[:-1]]))


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


@pytest.mark.parametrize("values", [{}, {"edge_ids": 8, "weight": 4}, {str(k): 8 for k in range(20)}, {"wide": 512}])
@pytest.mark.parametrize("edges", [10_000, 40_000_000, 20_000_000_000])
@pytest.mark.parametrize("nodes", [10, 1 << 20, 1 << 33])
def test_a_plan_fits_wherever_windows_of_the_result_did(values, edges, nodes):
    """8 bytes for each node, two blocks of 64 MiB and a chunk of 14 MiB were the least memory of an import once."""
    csc = CscSizes(edges, nodes, nodes, values, 2 * (16 + sum(values.values())))
    least = minimum_memory(csc, SIZES)
    assert least <= 8 * (nodes + 1) + 142 * MIB
    for room in (least, least + MIB, 2 * least, 1 << 30, 8 << 30, 1 << 40):
        if room >= least:
            plan = plan_buckets(csc, room, SIZES)
            assert plan is not None and plan.memory <= room
            assert plan.bytes_scratch <= edges * (16 + sum(values.values())) * 1.01 + MIB


def edges_on_disk(folder: Path, count: int, nodes: int, scramble: bool = True) -> Path:
    pairs = np.stack(rmat_edges(nodes.bit_length() - 1, count, 1, scramble=scramble)).astype(np.int64)
    np.save(folder / "edge_index.npy", pairs)
    return folder / "edge_index.npy"


def mapped(path: Path, layout: str = "rows") -> Dataset:
    """A relation whose edges are memory-mapped, as (2, E) or (E, 2)."""
    table = np.load(path, mmap_mode="r")
    src, dst = table if layout == "rows" else table.T
    return Dataset("big", "npy", {"node": NodeData(BIG_NODES)}, [EdgeData(("node", "to", "node"), src, dst)])


BIG_EDGES, BIG_NODES = 40_000_000, 1 << 20
"""640 MB of edges; 480 MB for a CSC of them in memory, three blocks of result."""


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return edges_on_disk(tmp_path_factory.mktemp("big"), BIG_EDGES, BIG_NODES)


@pytest.fixture(scope="module")
def made_in_memory(big: Path, tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return build_graph(mapped(big), tmp_path_factory.mktemp("memory") / "graph")


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_a_real_size_stays_within_its_budget(tmp_path, big, made_in_memory, layout, peak_memory):
    if layout == "columns":
        np.save(tmp_path / "edges.npy", np.ascontiguousarray(np.load(big).T))
        big = tmp_path / "edges.npy"
    budget = own_memory() + 200 * MIB
    with peak_memory() as peak:
        build_graph(mapped(big, layout), tmp_path / "buckets", memory=budget)
    assert peak.bytes < budget
    assert Graph.open(tmp_path / "buckets").digest == made_in_memory.digest


@pytest.fixture(scope="module")
def medium(tmp_path_factory: pytest.TempPathFactory, scramble: bool) -> Path:
    return edges_on_disk(tmp_path_factory.mktemp("medium"), 10_000_000, BIG_NODES, scramble)


@pytest.mark.slow
@pytest.mark.parametrize("scramble", [False, True], scope="module")
@pytest.mark.parametrize("room", [100 * MIB, 200 * MIB])
def test_edge_data_stays_within_its_budget(tmp_path, peak_memory, monkeypatch, medium, scramble, room):
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


def test_too_little_memory(tmp_path):
    src, dst = np.load(edges_on_disk(tmp_path, 4_000_000, 1 << 16), mmap_mode="r")
    data = Dataset("data", "npy", {"node": NodeData(1 << 16)}, [EdgeData(("node", "to", "node"), src, dst)])
    with pytest.raises(
        BudgetError, match=r"262,144 edges at a time and 2 files being written .* give --memory \d+MiB"
    ) as told:
        build_graph(data, tmp_path / "graph", memory=own_memory() + 4 * MIB)
    assert not list(tmp_path.glob("*graph*"))
    enough = int(str(told.value).split("--memory ")[1].split("MiB")[0])
    assert build_graph(data, tmp_path / "graph", memory=f"{enough + 8}MiB").num_edges() == 4_000_000


@pytest.mark.parametrize(("at", "src", "dst"), [(7, 3, 50), (150, -1, 3), (499, 50, 0)])
def test_ids_out_of_range_are_named(tmp_path, at, src, dst):
    pairs = np.random.default_rng(0).integers(0, 50, (2, 500))
    pairs[:, at] = src, dst
    edges = EdgeData(("node", "to", "node"), *pairs, where="edges.npy")
    bad = f"source id {src}" if not 0 <= src < 50 else f"destination id {dst}"
    with pytest.raises(InputError, match=rf"edges.npy: relation node:to:node: edge {at}: {bad} is outside 0..49"):
        build_graph(Dataset("bad", "npy", {"node": NodeData(50)}, [edges]), tmp_path / "graph", sizes=SMALL)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("stop", [1, 2, 5, 20])
@pytest.mark.parametrize("sizes", [SMALL, replace(SMALL, resident=1.0), replace(SMALL, runs=3, resident=0.0)])
def test_an_interrupted_run_goes_on_from_the_missing_block(tmp_path, monkeypatch, stop, sizes):
    """The second run has chunks of another size; a block that was recorded is not written again."""
    monkeypatch.setattr(checksum, "BLOCK_BYTES", 1024)
    random = np.random.default_rng(0)
    edges = EdgeData(("node", "to", "node"), *random.integers(0, 300, (2, 2000)), data={"weight": random.random(2000)})
    data = Dataset("data", "npy", {"node": NodeData(300)}, [edges])
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
    blocks = {"indptr": 3, "indices": 8, "weight": 16, "checksums": 1}
    assert sorted(recorded) == sorted((name, block) for name, count in blocks.items() for block in range(count))
    with tempfile.TemporaryDirectory() as folder:
        assert build_graph(data, Path(folder) / "graph").digest == graph.digest


@pytest.mark.slow
def test_inside_a_memory_group(tmp_path, big, made_in_memory):
    """The kernel's own limit, budget and 10 %."""
    budget = 240 * MIB
    with memory_group(budget + budget // 10) as group:
        done = group.run(
            "import", big.parent, "--num-nodes", BIG_NODES, "--memory", budget, "--out", tmp_path / "buckets"
        )
        assert done.returncode == 0, done.stderr
        killed = group.run(
            "import", big.parent, "--num-nodes", BIG_NODES, "--memory", "8GiB", "--out", tmp_path / "killed"
        )
        assert killed.returncode == -9, "a budget above the limit is the user's mistake: the kernel kills"
    assert Graph.open(tmp_path / "buckets").manifest.files == made_in_memory.manifest.files
