"""Layouts written with NumPy alone, row by row: the tests' own idea of where the bytes lie."""

from __future__ import annotations

import faulthandler
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from epochs import small_batches
from simulated_gpu import Simulator, lend
from tight_memory import wide_graph

from tiering import native
from tiering.artifacts.checksum import sampled_digest
from tiering.artifacts.manifest import External, storage_dtype
from tiering.artifacts.writer import ArtifactWriter
from tiering.formats.layout import image_bytes, image_name, page_sums, peer_rows, tier_file
from tiering.formats.ssd_rows import SsdRows
from tiering.loader import TieredLayout, open_layout

REPOSITORY = Path(__file__).parents[2]
PROVENANCE = {"stage": "test", "options": {}, "inputs": {}, "seed": None}


@dataclass
class Nodes:
    """A node type in original ids."""

    count: int
    table: np.ndarray | None = None
    dtype: str = "float32"
    labels: np.ndarray | None = None
    splits: dict[str, np.ndarray] = field(default_factory=dict)
    tiers: tuple[int, int, int] = (0, 0, 0)
    """Rows in gpu, peer, cpu; the rest is on ssd."""


@dataclass
class Dataset:
    """A small graph in original ids, and how to spread it."""

    nodes: dict[str, Nodes]
    edges: dict[tuple[str, str, str], tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    weights: dict[tuple[str, str, str], np.ndarray] = field(default_factory=dict)
    """Of the edges, in their order; relations left out have none."""
    edge_features: dict[tuple[str, str, str], np.ndarray] = field(default_factory=dict)
    """The same."""
    edge_ids: bool = False
    """Whether each edge's place in this order is kept."""
    page_bytes: int = 4096
    unit_pages: int = 1
    images: int = 1
    peers: int = 2
    seed: int = 0
    shuffled: bool = True

    def order(self, node_type: str) -> np.ndarray:
        """new_to_old of a type."""
        count = self.nodes[node_type].count
        rng = np.random.default_rng([self.seed, sorted(self.nodes).index(node_type)])
        return rng.permutation(count).astype(np.int32) if self.shuffled else np.arange(count, dtype=np.int32)


def invert(order: np.ndarray) -> np.ndarray:
    inverse = np.empty_like(order)
    inverse[order] = np.arange(order.size, dtype=order.dtype)
    return inverse


def csc_of(src: np.ndarray, dst: np.ndarray, num_dst: int) -> tuple[np.ndarray, np.ndarray]:
    """Stable CSC: offsets of the columns, and edges by column, those of one in the order of the input."""
    by_column = np.argsort(dst, kind="stable")
    counts = np.bincount(dst, minlength=num_dst)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), by_column


def write_graph(writer: ArtifactWriter, data: Dataset, *, reordered: bool) -> None:
    """Fill an open graph writer, in ranks or in original ids, and commit it."""
    (writer.path / "nodes").mkdir(exist_ok=True)
    order = {t: data.order(t) if reordered else np.arange(n.count, dtype=np.int32) for t, n in data.nodes.items()}
    rank = {t: invert(o) for t, o in order.items()}
    types: dict[str, Any] = {}
    for name, nodes in data.nodes.items():
        if nodes.labels is not None:
            writer.put(f"nodes/{name}/label", nodes.labels[order[name]].astype(np.int64))
        for split, ids in nodes.splits.items():
            writer.put(f"nodes/{name}/split-{split}", rank[name][ids].astype(np.int64))
        classes = None if nodes.labels is None else int(nodes.labels.max()) + 1
        types[name] = {"num_nodes": nodes.count, "num_classes": classes, "splits": list(nodes.splits)}
    relations = []
    for (src_type, rel, dst_type), (src, dst) in data.edges.items():
        old_indptr, old_edges = csc_of(src, dst, data.nodes[dst_type].count)
        columns = [old_edges[old_indptr[v] : old_indptr[v + 1]] for v in order[dst_type]]
        indptr = np.concatenate([[0], np.cumsum([c.size for c in columns])]).astype(np.int64)
        edges = np.concatenate([*columns, np.empty(0, np.int64)]).astype(np.int64)
        indices = rank[src_type][src[edges]]
        folder = f"relations/{src_type}__{rel}__{dst_type}"
        writer.put(f"{folder}/indptr", indptr)
        writer.put(f"{folder}/indices", indices.astype(np.int32))
        key = (src_type, rel, dst_type)
        extra = {name: own[key] for name, own in (("weight", data.weights), ("feat", data.edge_features)) if key in own}
        for name, values in extra.items():
            writer.put(f"{folder}/{name}", values[edges])
        if data.edge_ids:
            writer.put(f"{folder}/edge_ids", edges)
        edge_data = [*extra, *["edge_ids"] * data.edge_ids]
        relations.append({"src": src_type, "name": rel, "dst": dst_type, "num_edges": len(src), "edge_data": edge_data})
    if reordered:
        part = writer.part("order", "order")
        for name in data.nodes:
            part.put(f"nodes/{name}/new_to_old", order[name])
            part.put(f"nodes/{name}/old_to_new", rank[name])
            part.put(f"nodes/{name}/score", np.zeros(order[name].size))
        part.commit({"graph_digest": "xxh3-128:" + "0" * 32, "node_types": list(data.nodes)}, PROVENANCE)
    writer.commit({"node_types": types, "relations": relations, "changes": {}}, PROVENANCE)


def write_layout(out: Path, data: Dataset) -> TieredLayout:
    """Write a layout directory and its images beside it; open it."""
    bodies: dict[str, Any] = {}
    logical, unit = bytearray(), unit_of(data)
    with ArtifactWriter(out, "layout") as writer:
        write_graph(writer.part("graph", "graph"), data, reordered=True)
        for name, nodes in sorted(data.nodes.items()):  # in this order their units follow each other
            if nodes.table is None:
                continue
            rows = nodes.table[data.order(name)]
            row_bytes = rows.shape[1] * storage_dtype(nodes.dtype).itemsize
            ends = np.cumsum([0, *nodes.tiers, nodes.count - sum(nodes.tiers)]).tolist()
            tiers = dict(zip(("gpu", "peer", "cpu", "ssd"), itertools.pairwise(ends), strict=True))
            put_memory_tiers(writer, name, nodes.dtype, rows, tiers, data.peers)
            ssd = rows[tiers["ssd"][0] :]
            place = SsdRows.plan(len(logical) // unit, len(ssd), -(-row_bytes // 4) * 4, unit)
            logical += ssd_bytes(ssd, place, unit)
            bodies[name] = {
                "num_nodes": nodes.count, "dim": rows.shape[1], "dtype": nodes.dtype, "row_bytes": row_bytes,
                **{tier: list(bounds) for tier, bounds in tiers.items()}, "ssd_rows": vars(place).copy(),
            }  # fmt: skip
        images = data.images if logical else 0
        put_images(writer, out, bytes(logical), images, unit, data.page_bytes)
        body = {
            "page_bytes": data.page_bytes, "unit_bytes": unit, "num_images": images, "num_peers": data.peers,
            "node_types": bodies,
        }  # fmt: skip
        writer.commit(body, PROVENANCE, ("units",))
    return open_layout(out)


def put_memory_tiers(writer, name, dtype, rows, tiers, peers) -> None:
    def put(file: str, part: np.ndarray) -> None:
        if len(part):
            writer.put(file, part, dtype)

    put(tier_file(name, "gpu"), rows[slice(*tiers["gpu"])])
    put(tier_file(name, "cpu"), rows[slice(*tiers["cpu"])])
    shared = rows[slice(*tiers["peer"])]
    for peer in range(peers):
        assert len(shared[peer::peers]) == peer_rows(len(shared), peer, peers)
        put(tier_file(name, "peer", peer, peers), shared[peer::peers])


def ssd_bytes(rows: np.ndarray, place: SsdRows, unit_bytes: int) -> bytes:
    """Units of the ssd tier, one row at a time."""
    raw = np.zeros(place.num_units * unit_bytes, np.uint8)
    for i, row in enumerate(rows):
        data = np.frombuffer(row.tobytes(), np.uint8)
        at = i // place.rows_per_unit * unit_bytes + i % place.rows_per_unit * place.stride
        raw[at : at + data.size] = data
    return raw.tobytes()


def unit_of(data: Dataset) -> int:
    """Bytes of a unit: so many pages, or those of the largest row."""
    tables = [nodes.table for nodes in data.nodes.values() if nodes.table is not None]
    longest = max((-(-table[0].nbytes // 4) * 4 for table in tables if len(table)), default=1)
    return max(data.unit_pages, -(-longest // data.page_bytes)) * data.page_bytes


def put_images(writer, out: Path, logical: bytes, images: int, unit: int, page_bytes: int) -> None:
    units = np.frombuffer(logical, np.uint8).reshape(-1, unit)
    for k in range(images):
        path = out.parent / f"{out.name}-images-{k}" / f"ssd-{k}-of-{images}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(own := units[k::images].tobytes())
        size = image_bytes(len(units), k, images, unit)
        writer.external[image_name(k)] = External(path, size, sampled_digest(path))
        hashes = [
            xxhash.xxh3_64_intdigest(page.tobytes()) & 0xFFFFFFFF
            for page in np.frombuffer(own, np.uint8).reshape(-1, page_bytes)
        ]
        writer.put(page_sums(k), np.array(hashes, np.uint32))


def random_table(count: int, row_bytes: int, seed: int = 0) -> np.ndarray:
    """Rows of random bytes, uint8."""
    return np.random.default_rng(seed).integers(0, 256, (count, row_bytes), dtype=np.uint8)


def small_graph(seed: int = 0, **options: Any) -> Dataset:
    """300 nodes in 3 classes, 3000 edges, float32 features in all four tiers."""
    rng = np.random.default_rng(seed)
    count = 300
    labels = rng.integers(0, 3, count)
    table = (rng.normal(size=(count, 8)) + labels[:, None]).astype(np.float32)
    ids = rng.permutation(count)
    splits = {"train": ids[:200], "val": ids[200:250], "test": ids[250:]}
    edges = (rng.integers(0, count, 3000), rng.integers(0, count, 3000))
    nodes = Nodes(count, table, "float32", labels, splits, (30, 60, 90))
    weights = rng.random(3000, np.float32)
    return Dataset({"node": nodes}, {("node", "to", "node"): edges}, {("node", "to", "node"): weights}, **options)


def hetero_graph(seed: int = 0, **options: Any) -> Dataset:
    """Papers with labels, authors with bfloat16 features, venues without features; four relations."""
    rng = np.random.default_rng(seed)
    sizes = {"paper": 200, "author": 120, "venue": 10}
    labels = rng.integers(0, 4, sizes["paper"])
    papers = (rng.normal(size=(sizes["paper"], 6)) + labels[:, None]).astype(np.float32)
    authors = (rng.normal(size=(sizes["author"], 5)).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    ids = rng.permutation(sizes["paper"])
    splits = {"train": ids[:100], "val": ids[100:150], "test": ids[150:]}
    nodes = {
        "paper": Nodes(sizes["paper"], papers, "float32", labels, splits, (20, 30, 50)),
        "author": Nodes(sizes["author"], authors, "bfloat16", tiers=(0, 0, 40)),
        "venue": Nodes(sizes["venue"]),
    }

    def edges(src: str, dst: str, count: int) -> tuple[np.ndarray, np.ndarray]:
        return rng.integers(0, sizes[src], count), rng.integers(0, sizes[dst], count)

    relations = {
        ("paper", "cites", "paper"): edges("paper", "paper", 900),
        ("author", "writes", "paper"): edges("author", "paper", 700),
        ("paper", "written_by", "author"): edges("paper", "author", 500),
        ("venue", "publishes", "paper"): edges("venue", "paper", 200),
    }
    weights = {r: rng.random(len(ends[0]), np.float32) for r, ends in relations.items()}
    return Dataset(nodes, relations, weights, **options)


@pytest.fixture(autouse=True)
def import_support(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that a test starts import what it imports."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (REPOSITORY / "tests" / "support", REPOSITORY))))


@pytest.fixture(params=["io_uring", "threads"])
def engine(request: pytest.FixtureRequest) -> str:
    """Every engine that works here."""
    if request.param == "io_uring" and (reason := native.uring_unavailable()):
        pytest.skip(reason)
    return str(request.param)


@pytest.fixture
def build(tmp_path: Path) -> Callable[[Dataset], TieredLayout]:
    """Writes layouts into the test's directory."""
    made = []

    def write(data: Dataset) -> TieredLayout:
        layout = write_layout(tmp_path / f"layout-{len(made)}", data)
        made.append(layout)
        return layout

    yield write
    for layout in made:
        layout.close()


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    return small_batches(tmp_path)


@pytest.fixture
def layout(kit: Any, build: Callable[[Dataset], TieredLayout]) -> TieredLayout:
    """A layout most of whose rows lie on two stripe files."""
    return build(wide_graph(kit, images=2))


@pytest.fixture(scope="session")
def kit() -> Any:
    """The builders of this module, for tests that make layouts of their own."""
    return sys.modules[__name__]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Simulator]:
    """A simulated GPU; what a test leaves on it is a failure."""
    yield from lend(monkeypatch)


@pytest.fixture
def watchdog() -> Iterator[None]:
    """A test that hangs says where, and ends the process."""
    faulthandler.dump_traceback_later(300, exit=True, file=sys.__stderr__)
    yield
    faulthandler.cancel_dump_traceback_later()
