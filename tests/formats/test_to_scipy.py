"""Adjacency and blocks as matrices of scipy: entries, sharing, several edges, and the way back."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array
from toy_datasets import toy_dataset

import tiering
from tiering.artifacts.manifest import relation_key
from tiering.errors import MissingError
from tiering.graph.build import build_graph


@settings(max_examples=20)
@given(seed=st.integers(0, 1000))
def test_entries_are_edges(tmp_path_factory, seed):
    folder = tmp_path_factory.mktemp("graph")
    toy = toy_dataset(folder, seed)
    graph = build_graph(toy.dataset, folder / "graph")
    for edges in toy.dataset.edges:
        relation = edges.relation
        matrix = graph.to_scipy(relation)
        shape = graph.num_nodes(relation[0]), graph.num_nodes(relation[2])
        expected = coo_array((np.ones(edges.num_edges), (np.asarray(edges.src), np.asarray(edges.dst))), shape=shape)
        assert matrix.shape == shape
        assert matrix.nnz == edges.num_edges, "several edges between two nodes stay"
        assert np.array_equal(matrix.toarray(), expected.toarray())
        if matrix.nnz:
            assert np.shares_memory(matrix.indices, graph.csc(relation)[1])
        for name, array in graph.edge_data(relation).items():
            if array.ndim == 1 and array.dtype != np.uint16:
                assert np.array_equal(graph.to_scipy(relation, name).data, array)


def count_components(nodes: int, edges: Any) -> int:
    """Count components by merging the sets of both ends of each edge."""
    sets = {node: {node} for node in range(nodes)}
    for src, dst in zip(edges.row.tolist(), edges.col.tolist(), strict=True):
        if sets[src] is not sets[dst]:
            sets[src] |= sets[dst]
            sets.update(dict.fromkeys(sets[dst], sets[src]))
    return len({id(one) for one in sets.values()})


def test_there_and_back(tmp_path, tiny_dataset, repository, monkeypatch):
    """With the code of docs/exports.md."""
    graph = tiering.import_graph(tiny_dataset, tmp_path / "graph")
    again = tiering.import_graph(graph.to_scipy(), tmp_path / "again")
    assert [a.tolist() for a in again.csc()] == [a.tolist() for a in graph.csc()]
    page, names = (repository / "docs" / "exports.md").read_text(), dict[str, Any]()
    (code,) = re.findall(r"^```python\n(import tiering\nfrom scipy.*?)^```$", page, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "docs/exports.md", "exec"), names)  # noqa: S102 - our own page
    pairs, same = names["matrix"].tocoo(), names["labels"]
    assert np.array_equal(same[pairs.row], same[pairs.col])
    assert same.size == graph.num_nodes()
    assert names["count"] == same.max() + 1 == count_components(graph.num_nodes(), pairs)
    with pytest.raises(MissingError, match="no edge data 'weight'"):
        graph.to_scipy(values="weight")


def test_blocks(tmp_path, tiny_dataset):
    graph = tiering.import_graph(tiny_dataset, tmp_path / "graph")
    scores = tiering.score_graph(graph, tmp_path / "scores", "degree")
    reordered = tiering.reorder_graph(graph, scores, tmp_path / "reordered")
    layout = tiering.write_layout(reordered, tmp_path / "layout", cpu="100%")
    for batch in layout.loader("train", fanouts=[4, 3], batch_size=6):
        for block in batch.blocks():
            (relation,) = block.edge_index
            matrix, (source, destination) = block.to_scipy(), block.edge_index[relation].numpy()
            dense = np.zeros((block.num_src[relation[0]], block.num_dst[relation[2]]), np.float32)
            np.add.at(dense, (source, destination), 1)
            assert np.array_equal(matrix.toarray(), dense)
            assert np.array_equal(block.to_scipy(relation).toarray(), dense)
            with pytest.raises(MissingError, match=relation_key(relation)):
                block.to_scipy(("a", "b", "c"))
