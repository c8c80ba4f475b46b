"""Changes to edges, against plain Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fresh_process import in_warm_process
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from peaks import peak_memory

import tiering
from benchmarks.rmat import rmat_edges
from tiering.datasets import import_context, transforms
from tiering.datasets.open import open_dataset
from tiering.errors import InputError
from tiering.memory import own_memory

Edge = tuple[int, int, float]


def expected(edges: list[Edge], nodes: int, self_loops: str, reverse: bool, deduplicate: bool) -> list[Edge]:
    """The same changes, one edge at a time."""
    if self_loops == "remove":
        edges = [e for e in edges if e[0] != e[1]]
    if reverse:
        edges = edges + [(v, u, w) for u, v, w in edges if u != v]
    if deduplicate:
        first: dict[tuple[int, int], Edge] = {}
        for e in edges:
            first.setdefault(e[:2], e)
        edges = list(first.values())
    if self_loops == "add":
        have = {u for u, v, _ in edges if u == v}
        edges = edges + [(u, u, 1.0) for u in range(nodes) if u not in have]
    return edges


@pytest.mark.parametrize("bucket", [3, 1 << 25])
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pairs=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=25),
    self_loops=st.sampled_from(["keep", "remove", "add"]), reverse=st.booleans(), deduplicate=st.booleans(),
)  # fmt: skip
def test_against_plain_python(tmp_path_factory, monkeypatch, bucket, pairs, self_loops, reverse, deduplicate):
    monkeypatch.setattr(transforms, "LARGEST_BUCKET", bucket)
    monkeypatch.setattr(import_context, "IN_MEMORY_BYTES", 0 if bucket == 3 else 1 << 20)
    monkeypatch.setattr(import_context, "CHUNK", 4)
    folder = tmp_path_factory.mktemp("npy")
    np.save(folder / "edge_index.npy", np.array(pairs, np.int32).reshape(-1, 2).T)
    weights = np.arange(len(pairs), dtype=np.float32) + 2
    np.save(folder / "edge_weight.npy", weights)
    for name in ("id", "type"):
        np.save(folder / f"edge_{name}.npy", np.arange(len(pairs), dtype=np.int8) + 2)
    np.save(folder / "edge_feat.npy", np.stack([weights, -weights, weights / 2], 1).astype(np.float16))
    options = {"self_loops": self_loops, "reverse_edges": reverse, "deduplicate": deduplicate}
    edges = [(u, v, float(w)) for (u, v), w in zip(pairs, weights, strict=True)]
    wanted = expected(edges, 6, self_loops, reverse, deduplicate)
    with open_dataset(folder, num_nodes=6, work_dir=folder, **options) as data:
        found = data.edges[0]
        columns = (found.src.tolist(), found.dst.tolist(), found.data["weight"].tolist())
        assert list(zip(*columns, strict=True)) == wanted
        assert (found.src.dtype, found.data["type"].dtype) == (np.int32, np.int8)
        assert found.edge_ids.tolist() == found.data["type"].tolist() == [int(w) if w > 1 else -1 for _, _, w in wanted]
        # Added loops, of weight 1, have features of 0; those of the others begin with 2.
        rows = [[w, -w, w / 2] if w > 1 else [0.0, 0.0, 0.0] for _, _, w in wanted]
        assert found.data["feat"].dtype == np.float16
        assert found.data["feat"].shape == (len(wanted), 3)
        assert found.data["feat"].tolist() == rows
        steps = [c["step"] for c in data.notes.get("changes", [])]
        assert len(steps) == (self_loops != "keep") + reverse + deduplicate
        if steps:
            assert data.notes["changes"][-1]["edges_after"] == len(wanted)


def test_between_types_a_relation_is_added(igb_dir: Path) -> None:
    data = open_dataset(igb_dir, reverse_edges=True)
    assert data.relations[3:] == [("fos", "rev_topic", "paper"), ("author", "rev_written_by", "paper")]
    edges = {edges.relation: edges for edges in data.edges}
    forward, back = edges["paper", "topic", "fos"], edges["fos", "rev_topic", "paper"]
    assert back.src.tolist() == forward.dst.tolist()
    assert back.dst.tolist() == forward.src.tolist()
    assert data.edges[0].num_edges == 6  # cites, in place


def test_existing_reverse_relations_are_left(igb_dir: Path) -> None:
    (igb_dir / "fos__rev_topic__paper").mkdir()
    np.save(igb_dir / "fos__rev_topic__paper/edge_index.npy", np.array([[5, 0]]))
    data = open_dataset(igb_dir, reverse_edges=True)
    assert data.edges[data.relations.index(("fos", "rev_topic", "paper"))].num_edges == 1
    assert len(data.notes["warnings"]) == 2


def test_ids_out_of_range(npy_dir: Path) -> None:
    np.save(npy_dir / "edge_index.npy", np.array([[0, 1], [0, 9], [1, 2]]))
    with pytest.raises(InputError, match=r"edge 1: destination id 9 is outside 0\.\.4 \(5 node nodes\)"):
        open_dataset(npy_dir, deduplicate=True)


def test_pairs_too_large_for_one_number() -> None:
    src, dst = np.array([2**40, 1, 2**40, 1]), np.array([2**40, 0, 2**40, 1])
    assert sorted(transforms._find_firsts(src, dst, 2**41)) == [0, 1, 3]


EVERY = {"self_loops": "add", "reverse_edges": True, "deduplicate": True}


def changed_within_100_mib(folder: str) -> list[int]:
    """Peak and budget of every change; what comes of it lies next to the edges."""
    with peak_memory() as peak:
        budget = own_memory() + (100 << 20)
        with open_dataset(folder, work_dir=Path(folder), memory=budget, **EVERY) as dataset:
            used = peak.bytes
            np.save(Path(folder) / "made.npy", [dataset.edges[0].src, dataset.edges[0].dst])
    return [used, budget]


@pytest.mark.slow
def test_changes_stay_within_the_budget(tmp_path):
    """4 M edges with every change: 300 MB in memory; what does not fit goes to temporary files."""
    edges = np.stack(rmat_edges(18, 4_000_000, 5)).astype(np.int64)
    np.save(tmp_path / "edge_index.npy", edges)
    used, budget = in_warm_process(changed_within_100_mib, str(tmp_path))
    assert used < budget
    made = np.load(tmp_path / "made.npy")
    (tmp_path / "made.npy").unlink()
    with open_dataset(tmp_path, work_dir=tmp_path, **EVERY) as dataset:
        np.testing.assert_array_equal(made, [dataset.edges[0].src, dataset.edges[0].dst])


def test_edge_ids_are_positions_in_the_source_whatever_changes(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("src,dst\n2,1\n0,0\n2,1\n1,0\n")
    options = {"self_loops": "add", "reverse_edges": True, "deduplicate": True}
    graph = tiering.import_graph(tmp_path / "e.csv", tmp_path / "g", edge_ids=True, **options)
    indptr, indices = graph.csc()
    edges = zip(indices.tolist(), np.repeat(np.arange(3), np.diff(indptr)).tolist(), strict=True)
    ids = dict(zip(edges, graph.edge_data()["edge_ids"].tolist(), strict=True))
    assert ids == {(2, 1): 0, (1, 2): 0, (0, 0): 1, (1, 0): 3, (0, 1): 3, (1, 1): -1, (2, 2): -1}


@pytest.mark.parametrize("executor", [(), ("--executor", "local", "--shards", "3")])
def test_edge_data_keep_their_dtype_and_added_loops_have_none(tmp_path: Path, tiering_cli: Any, executor: Any) -> None:
    (tmp_path / "r.csv").write_text("src,dst,rating,stamp,weight\n0,1,.5,7,2\n1,2,2.75,8,3\n2,2,3.25,9,4\n")
    asked = ("--edge-data", "rating,stamp", "--self-loops", "add", "--add-reverse", "--edge-ids", *executor)
    tiering_cli("import", tmp_path / "r.csv", "--out", tmp_path / "g", *asked).ok()
    graph = tiering.open(tmp_path / "g")
    assert (graph.csc()[0].tolist(), graph.csc()[1].tolist()) == ([0, 2, 5, 7], [1, 0, 0, 2, 1, 1, 2])
    data = graph.edge_data()
    np.testing.assert_array_equal(data["rating"], np.array([0.5, np.nan, 0.5, 2.75, np.nan, 2.75, 3.25]))
    assert data["rating"].dtype == np.float64
    assert data["stamp"].tolist() == [7, -1, 7, 8, -1, 8, 9]
    assert data["weight"].tolist() == [2, 1, 2, 3, 1, 3, 4]
    assert data["edge_ids"].tolist() == [0, -1, 0, 1, -1, 1, 2]


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_types_that_hold_no_negative_number_are_refused_for_added_loops(npy_dir: Path, dtype: str) -> None:
    np.save(npy_dir / "edge_type.npy", np.arange(6, dtype=dtype))
    if dtype.startswith("u"):
        with pytest.raises(InputError, match=f"expected a signed type, found {dtype}; convert"):
            open_dataset(npy_dir, self_loops="add")
        return
    with open_dataset(npy_dir, self_loops="add") as data:
        assert data.edges[0].data["type"].dtype == dtype
        assert data.edges[0].data["type"].tolist() == [0, 1, 2, 3, 4, 5, -1, -1, -1, -1]
