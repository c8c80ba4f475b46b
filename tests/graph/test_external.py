"""COO to CSC within a memory budget: the same bytes as in memory, for any budget, chunk and number of threads."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_group import memory_group
from toy_datasets import toy_dataset, tree_bytes

from tiering import native
from tiering.artifacts import appending, checksum
from tiering.artifacts.file_writer import FileWriter
from tiering.errors import BudgetError, InputError
from tiering.formats.graph import Graph
from tiering.formats.protocols import Dataset, EdgeData, NodeData
from tiering.graph import build_graph, external, windows
from tiering.graph.scatter_plan import ScatterPlan, plan_scatter
from tiering.graph.sizes import CscSizes
from tiering.memory import Budget, own_memory

MIB = 1 << 20


@pytest.fixture
def small(monkeypatch):
    """Blocks of 1 KiB, chunks of 100 edges, no relation fits: many windows, or buckets, of few edges.

    `held` is the share of the records that stays in memory; ``None``: by windows. `shift` sets the buckets.
    """

    def set_up(window: int, held: float | None = None, shift: int = 3, chunk: int = 100) -> Budget:
        def plan(sizes: CscSizes, room: int) -> ScatterPlan | None:
            if held is None:
                return None
            nbytes = int(held * sizes.num_edges) * sizes.record_bytes
            return ScatterPlan(chunk, shift, 64, nbytes, 0, sizes.num_edges * sizes.record_bytes - nbytes)

        for module in (checksum, appending):
            monkeypatch.setattr(module, "BLOCK_BYTES", 1024)
        for name in ("LARGEST_CHUNK", "SMALLEST_CHUNK"):
            monkeypatch.setattr(windows, name, 100)
        monkeypatch.setattr(external, "plan_scatter", plan)
        if held == 1:  # as on a disk without room
            monkeypatch.setattr(external, "_scratch", lambda path, plan, whole: (None, False))
        monkeypatch.setattr(CscSizes, "in_memory", lambda self: 1 << 60)
        monkeypatch.setattr(Budget, "left", lambda self: window)
        monkeypatch.setattr(Budget, "require", lambda self, needed, what: None)
        return Budget(window, "test")

    return set_up


WAYS = {
    "windows of a block": (0, None),
    "windows": (9_000, None),
    "one window": (1 << 20, None),
    "in memory": (0, 1.0),
    "on disk": (0, 0.0),
    "half on disk": (0, 0.5),
    "large buckets": (1 << 30, 0.4, 6),
    "large buckets left to windows": (0, 0.4, 6),
    "one bucket": (1 << 30, 0.0, 20),
    "one chunk": (0, 0.0, 3, 10_000),
}
"""Window, share held, shift, chunk."""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("threads", [1, 3])
def test_same_bytes_as_in_memory(tmp_path, small, monkeypatch, way, threads):
    """Several types and relations, parallel edges, self loops, isolated nodes, edge data, edge ids."""
    data = toy_dataset(tmp_path / "data", 3, min_nodes=200, max_nodes=400, max_edges=3000).dataset
    build_graph(data, tmp_path / "memory", edge_ids=True, threads=2)
    build_graph(data, tmp_path / "external", edge_ids=True, threads=threads, memory=small(*WAYS[way]))
    for module in (checksum, appending):
        monkeypatch.setattr(module, "BLOCK_BYTES", 64 * MIB)
    same = {
        name: data
        for name, data in tree_bytes(tmp_path / "memory").items()
        if name not in ("manifest.json", "checksums")
    }
    assert same == {
        name: data
        for name, data in tree_bytes(tmp_path / "external").items()
        if name not in ("manifest.json", "checksums")
    }


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32), nodes=st.integers(1, 60), edges=st.integers(0, 500), cuts=st.integers(1, 5),
    chunk=st.integers(1, 200), item=st.sampled_from([1, 2, 3, 4, 8, 12, 16]), wide=st.booleans(),
    threads=st.integers(1, 3),
)  # fmt: skip
def test_kernels_place_every_edge(seed, nodes, edges, cuts, chunk, item, wide, threads):
    random = np.random.default_rng(seed)
    kind = random.choice([np.int32, np.int64])
    table = random.integers(0, nodes, (edges, 2)).astype(kind)
    src, dst = table.T  # strided
    values = random.integers(0, 256, (edges, item), np.uint8)
    order = np.argsort(dst, kind="stable")
    counts = np.zeros(nodes + 1, np.int64)
    for k in range(0, edges, chunk):
        native.count_destinations(dst[k : k + chunk], k, counts[1:], threads)
    indptr = np.cumsum(counts)
    np.testing.assert_array_equal(np.diff(indptr), np.bincount(dst, minlength=nodes))
    bounds = sorted({0, edges, *random.integers(0, edges + 1, cuts - 1).tolist()})
    for first, end in pairwise(bounds):
        low = int(np.searchsorted(indptr, first, "right")) - 1
        high = int(np.searchsorted(indptr, end, "left"))
        ids, data = np.zeros((end - first) * (8 if wide else 4), np.uint8), np.zeros((end - first) * item, np.uint8)
        for out, place in ((ids, None), (data, values)):
            cursors = indptr[low:high].copy()
            for k in range(0, edges, chunk):
                part = slice(k, k + chunk)
                if place is None:
                    native.place_sources(
                        src[part], dst[part], k, 2**31 if wide else nodes, first, low, cursors, out, threads
                    )
                else:
                    native.place_edge_data(place[part], dst[part], first, low, cursors, out, threads)
        np.testing.assert_array_equal(ids.view(np.int64 if wide else np.int32), src[order][first:end])
        np.testing.assert_array_equal(data.reshape(-1, item), values[order][first:end])


def edges_on_disk(folder: Path, count: int, nodes: int, scramble: bool = True) -> Path:
    pairs = np.stack(native.rmat_edges(nodes.bit_length() - 1, count, 1, 2, scramble)).astype(np.int64)
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


@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_a_real_size_stays_within_its_budget(tmp_path, big, made_in_memory, layout, peak_memory):
    if layout == "columns":
        np.save(tmp_path / "edges.npy", np.ascontiguousarray(np.load(big).T))
        big = tmp_path / "edges.npy"
    budget = own_memory() + 200 * MIB
    with peak_memory() as peak:
        build_graph(mapped(big, layout), tmp_path / "windows", memory=budget)
    assert peak.bytes < budget
    assert Graph.open(tmp_path / "windows").digest == made_in_memory.digest


@pytest.mark.parametrize("scramble", [False, True])
def test_scattering_stays_within_its_budget(tmp_path, big, made_in_memory, peak_memory, monkeypatch, scramble):
    """A part is held; without scrambling the first buckets are far larger than a chunk."""
    if not scramble:
        big = edges_on_disk(tmp_path, BIG_EDGES, BIG_NODES, scramble=False)
        made_in_memory = build_graph(mapped(big), tmp_path / "memory")
    room = 460 * MIB
    plan = plan_scatter(CscSizes(BIG_EDGES, BIG_NODES, BIG_NODES), room)
    assert plan is not None
    assert 20 * MIB < plan.held < plan.bytes_scratch
    monkeypatch.setattr(CscSizes, "in_memory", lambda self: 1 << 60)
    budget = own_memory() + room
    with peak_memory() as peak:
        build_graph(mapped(big), tmp_path / "scattered", memory=budget)
    assert peak.bytes < budget
    assert Graph.open(tmp_path / "scattered").digest == made_in_memory.digest


def test_too_little_memory(tmp_path):
    src, dst = np.load(edges_on_disk(tmp_path, 1_000_000, 1 << 16), mmap_mode="r")
    data = Dataset("data", "npy", {"node": NodeData(1 << 16)}, [EdgeData(("node", "to", "node"), src, dst)])
    with pytest.raises(
        BudgetError, match=r"65,536 nodes, 8 bytes each, and two blocks .* give --memory \d+MiB"
    ) as told:
        build_graph(data, tmp_path / "graph", memory=Budget(own_memory() + 4 * MIB, "4MiB"))
    assert not list(tmp_path.glob("*graph*"))
    enough = int(str(told.value).split("--memory ")[1].split("MiB")[0])
    assert build_graph(data, tmp_path / "graph", memory=f"{enough + 8}MiB").num_edges() == 1_000_000


@pytest.mark.parametrize(("at", "src", "dst"), [(7, 3, 50), (150, -1, 3), (499, 50, 0)])
@pytest.mark.parametrize("held", [None, 0.5])
def test_ids_out_of_range_are_named(tmp_path, small, at, src, dst, held):
    pairs = np.random.default_rng(0).integers(0, 50, (2, 500))
    pairs[:, at] = src, dst
    budget = small(60_000, held)
    edges = EdgeData(("node", "to", "node"), *pairs, where="edges.npy")
    bad = f"source id {src}" if not 0 <= src < 50 else f"destination id {dst}"
    with pytest.raises(InputError, match=rf"edges.npy: relation node:to:node: edge {at}: {bad} is outside 0..49"):
        build_graph(Dataset("bad", "npy", {"node": NodeData(50)}, [edges]), tmp_path / "graph", memory=budget)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("stop", [1, 2, 5])
@pytest.mark.parametrize("held", [None, 0.5, 1.0])
def test_an_interrupted_run_goes_on_from_the_missing_block(tmp_path, small, monkeypatch, stop, held):
    pairs = np.random.default_rng(0).integers(0, 300, (2, 2000))
    data = Dataset("data", "npy", {"node": NodeData(300)}, [EdgeData(("node", "to", "node"), *pairs)])
    budget = small(0, held)
    written: list[tuple[str, int]] = []
    write = FileWriter.write

    def stopping(self: Any, first: int, piece: Any) -> None:
        if self.path.name == "indices" or (held is not None and self.path.name == "indptr"):
            if len(written) == stop:
                raise KeyboardInterrupt
            written.append((self.path.name, first))
        write(self, first, piece)

    monkeypatch.setattr(FileWriter, "write", stopping)
    with pytest.raises(KeyboardInterrupt):
        build_graph(data, tmp_path / "graph", memory=budget)
    assert len(written) == stop
    stop = 1000
    graph = build_graph(data, tmp_path / "graph", memory=budget)
    offsets = [("indptr", block) for block in range(3)] if held is not None else []
    assert sorted(written) == sorted([*offsets, *(("indices", block) for block in range(8))]), "each block once"
    with tempfile.TemporaryDirectory() as other:
        assert build_graph(data, Path(other) / "graph", memory=budget).digest == graph.digest


def test_inside_a_memory_group(tmp_path, big, made_in_memory):
    """The kernel's own limit, budget and 10 %."""
    budget = 240 * MIB
    with memory_group(budget + budget // 10) as group:
        done = group.run(
            "import", big.parent, "--num-nodes", BIG_NODES, "--memory", budget, "--out", tmp_path / "windows"
        )
        assert done.returncode == 0, done.stderr
        killed = group.run(
            "import", big.parent, "--num-nodes", BIG_NODES, "--memory", "8GiB", "--out", tmp_path / "killed"
        )
        assert killed.returncode == -9, "a budget above the limit is the user's mistake: the kernel kills"
    assert Graph.open(tmp_path / "windows").manifest.files == made_in_memory.manifest.files
