"""Formats csc and csr: the same graph as from its edge list, and every way in which lists can be wrong."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import tiering
from tiering.datasets.open import open_dataset
from tiering.graph.build import build_graph
from tiering.graph.plan import SortSizes

SMALL = SortSizes(min_chunk=16, max_chunk=16, buckets=4, bucket_edges=4, run_records=1, columns=4)
"""Everything goes by buckets."""


def files_of(graph: Any) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Every array of a graph: dtype, shape, bytes."""
    arrays = {name: graph.manifest.array(name) for name in graph.manifest.files if name != "checksums"}
    return {name: (str(array.dtype), array.shape, array.tobytes()) for name, array in arrays.items()}


def save_lists(folder: Path, by: Any, other: Any, nodes: int, dtypes: tuple[str, str] = ("int64", "int64")) -> Any:
    """Write lists kept by `by`; returns the edges' places in the order of the lists."""
    order = np.argsort(by, kind="stable")
    np.save(folder / "indptr.npy", np.concatenate([[0], np.cumsum(np.bincount(by, minlength=nodes))]).astype(dtypes[0]))
    np.save(folder / "indices.npy", other[order].astype(dtypes[1]))
    return order


@settings(max_examples=20)
@given(data=st.data())
def test_lists_give_the_same_graph_as_their_edges(data: st.DataObject) -> None:
    nodes, count = data.draw(st.integers(1, 12)), data.draw(st.integers(0, 60))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    src, dst = random.integers(0, nodes, (2, count))  # duplicates, self loops, isolated nodes
    by_source, weighted, edge_ids = (data.draw(st.booleans()) for _ in range(3))
    sizes: dict[str, Any] = data.draw(st.sampled_from([{}, {"sizes": SMALL}]))
    dtypes = data.draw(st.tuples(st.sampled_from(["int32", "int64", "uint64"]), st.sampled_from(["int32", "int64"])))
    changes: dict[str, Any] = data.draw(
        st.sampled_from([{}, {"deduplicate": True}, {"self_loops": "add"}, {"reverse_edges": True}])
    )
    with tempfile.TemporaryDirectory() as name:
        pairs, lists = Path(name) / "pairs", Path(name) / "lists"
        pairs.mkdir(), lists.mkdir()
        order = save_lists(lists, *((src, dst) if by_source else (dst, src)), nodes, dtypes)
        np.save(pairs / "edge_index.npy", np.stack([src[order], dst[order]]))
        for folder in (pairs, lists):
            np.save(folder / "node_feat.npy", np.arange(2 * nodes, dtype=np.float32).reshape(nodes, 2))
            np.save(folder / "node_label.npy", np.arange(nodes))
            np.save(folder / "train_idx.npy", np.arange(nodes))
            if weighted:
                np.save(folder / "edge_weight.npy", np.arange(count) / 2)
                np.save(folder / "edge_type.npy", np.arange(count, dtype=np.int16))
                np.save(folder / "edge_feat.npy", np.arange(6 * count, dtype=np.float32).reshape(count, 6))
        form = "csr" if by_source else "csc"
        with open_dataset(pairs, **changes) as dataset:
            expected = files_of(build_graph(dataset, Path(name) / "a", edge_ids=edge_ids))
        with open_dataset(lists, form, **changes) as dataset:
            graph = build_graph(dataset, Path(name) / "b", edge_ids=edge_ids, threads=2, **sizes)
        assert files_of(graph) == expected
        assert graph.problems("full") == []


@pytest.mark.parametrize("form", ["csc", "csr"])
def test_relations_of_a_tree(tiering_cli, igb_dir, tmp_path, form):
    """Every relation of an IGBH tree as lists; fos is known by its lists, or by its largest id."""
    counts = {"paper": 4, "author": 3, "fos": 6}
    tiering_cli("import", igb_dir, "--out", tmp_path / "pairs").ok()
    pairs = tiering.open(tmp_path / "pairs")
    for folder in igb_dir.glob("*__*"):
        source, _, destination = folder.name.split("__")
        src, dst = np.load(folder / "edge_index.npy").T
        (folder / "edge_index.npy").unlink()
        save_lists(folder, *((src, dst, counts[source]) if form == "csr" else (dst, src, counts[destination])))
    told = tiering_cli("import", igb_dir, "--out", tmp_path / "lists")
    told.refused("does not tell the direction of the lists", "--format csc", "--format csr")
    tiering_cli("import", igb_dir, "--format", form, "--out", tmp_path / "lists").ok()
    lists = tiering.open(tmp_path / "lists")
    assert lists.relations == pairs.relations
    assert {t: lists.num_nodes(t) for t in lists.node_types} == counts
    assert lists.feature_table("paper").path == pairs.feature_table("paper").path
    for relation in pairs.relations:
        shape = counts[relation[0]], counts[relation[2]]
        both = []
        for graph in (pairs, lists):
            indptr, indices = graph.csc(relation)
            both.append(scipy.sparse.csc_matrix((np.ones(indices.size), indices, indptr), shape))
        assert (both[0] != both[1]).nnz == 0
    one = ("--relations", "paper:cites:paper", "--out", tmp_path / "one", "--json")
    assert list(tiering_cli("import", igb_dir, "--format", form, *one).ok().json["relations"]) == ["paper:cites:paper"]


def test_a_dry_run_says_that_lists_by_destination_are_copied(tiering_cli, tmp_path):
    (tmp_path / "data").mkdir()
    save_lists(tmp_path / "data", np.array([1, 0, 1]), np.array([0, 1, 1]), 2)
    for form, how in (("csc", "copied"), ("csr", "in memory")):
        told = tiering_cli(
            "import", tmp_path / "data", "--format", form, "--out", tmp_path / "g", "--dry-run", "--json"
        ).ok()
        steps = json.loads(told.out)["stages"][0]["steps"]
        assert [step["how"] for step in steps if step["name"] == "node:to:node"] == [how]
    assert not (tmp_path / "g").exists()


@pytest.mark.slow
@pytest.mark.parametrize("form", ["csc", "csr"])
def test_lists_larger_than_the_memory(tmp_path, form, peak_memory, settled_memory):
    """48 MB of indices and as much of weights in a budget of 96 MiB beside what the process holds."""
    from tiering.memory import own_memory

    random, nodes, count = np.random.default_rng(4), 200_000, 6_000_000
    by, other = np.sort(random.integers(0, nodes, count)), random.integers(0, nodes, count)
    data = tmp_path / "data"
    data.mkdir()
    save_lists(data, by, other, nodes)
    np.save(data / "edge_weight.npy", np.arange(count, dtype=np.float64))
    small = tiering.import_graph(data, tmp_path / "a", form, memory="8GiB")
    limit = own_memory() + (96 << 20)
    with peak_memory() as peak:
        large = tiering.import_graph(data, tmp_path / "b", form, memory=limit)
    assert peak.bytes <= limit
    assert files_of(large) == files_of(small)
    indptr, indices = large.csc()
    src, dst = (by, other) if form == "csr" else (other, by)
    order = np.argsort(dst, kind="stable")
    np.testing.assert_array_equal(indices, src[order])
    np.testing.assert_array_equal(large.edge_data()["weight"], order)
    assert np.array_equal(np.diff(indptr), np.bincount(dst, minlength=nodes))


def written(folder: Path, **arrays: Any) -> Path:
    folder.mkdir()
    for name, values in {"indptr": [0, 1, 1, 3], "indices": [2, 0, 2], **arrays}.items():
        if values is not None:
            np.save(folder / f"{name}.npy", np.asarray(values))
    return folder


@pytest.mark.parametrize("form", ["csc", "csr"])
@pytest.mark.parametrize(("arrays", "words"), [
    ({"indptr": [1, 1, 1, 3]}, ["indptr.npy: expected offsets that begin with 0, found 1"]),
    ({"indptr": [0, 2, 1, 3]}, ["indptr.npy: expected offsets that never decrease, found 1 after 2 at position 2"]),
    ({"indptr": [0, 1, 1, 2]}, ["the last offset to be the number of ids in indices, 3, found 2"]),
    ({"indptr": [0, 1, 1, 4]}, ["the last offset", "found 4", "do not belong together"]),
    ({"indptr": np.zeros(0, np.int64)}, ["indptr.npy: expected one offset more", "found none"]),
    ({"indptr": [0.0, 1, 1, 3]}, ["indptr.npy: expected whole numbers, found float64 (4,)"]),
    ({"indptr": [[0, 1], [1, 3]]}, ["indptr.npy: expected offsets of lists, one column"]),
    ({"indptr": np.array([0, 1, 2**63, 3], np.uint64)}, ["never decrease"]),
    ({"indices": [2, 0, 3]}, ["indices.npy", "3", "node has 3 nodes"]),
    ({"indices": [2, -1, 0]}, ["indices.npy", "-1"]),
    ({"indices": [2.0, 0, 1]}, ["indices.npy: expected ids of dtype int32 or int64, found float64"]),
    ({"indices": np.array([2, 0, 1], np.int16)}, ["found int16", "astype('int64')"]),
    ({"indices": None}, ["indices.npy: expected one id per edge, found nothing"]),
    ({"node_feat": np.zeros((4, 2), np.float32)}, ["indptr.npy: expected 4 nodes", "node_feat.npy, found 3"]),
])  # fmt: skip
def test_lists_that_do_not_fit(tiering_cli, tmp_path, form, arrays, words):
    folder = written(tmp_path / "lists", **arrays)
    refused = tiering_cli("import", folder, "--format", form, "--out", tmp_path / "graph").refused(*words)
    assert len(refused) < 500
    assert not (tmp_path / "graph").exists()


@pytest.mark.parametrize("form", ["csc", "csr"])
def test_options_around_lists(tiering_cli, tmp_path, form):
    folder = written(tmp_path / "lists")
    graph = ("--format", form, "--out", tmp_path / "graph", "--force")
    tiering_cli("import", folder, *graph, "--num-nodes", 4).refused("expected 4 nodes", "--num-nodes, found 3")
    tiering_cli("import", folder, *graph, "--relations", "a:b:c").refused("--relations: does not apply")
    tiering_cli("import", folder, *graph, "--src-column", "a").refused("does not apply to format " + form)
    tiering_cli("import", tmp_path / "lists", *graph, "--num-nodes", 3).ok()
    (tmp_path / "empty").mkdir()
    tiering_cli("import", tmp_path / "empty", *graph).refused("indptr.npy and indices.npy", "found neither")
    empty = written(tmp_path / "none", indptr=[0], indices=np.zeros(0, np.int32))
    tiering_cli("import", empty, *graph).ok()
    assert tiering.open(tmp_path / "graph").num_nodes() == 0
