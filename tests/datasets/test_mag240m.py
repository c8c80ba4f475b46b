"""MAG240M's tree: features of authors and institutions, made or found, and splits of torch; against numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiering
from benchmarks.replicas import replicate
from tiering.datasets import neighbor_means
from tiering.datasets.arrays import narrow_rows
from tiering.errors import BudgetError, InputError
from tiering.formats.graph import Graph


def rows_of(graph: Graph, node_type: str) -> Any:
    return graph.feature_table(node_type).open()


@pytest.fixture(scope="module")
def mag(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mag") / "data"
    replicate("mag240m", folder, scale=2e-5)
    return folder


MEANS = "author=writes,institution=affiliated_with"


def edges_between(graph: Graph, relation: Any) -> Any:
    indptr, indices = graph.csc(relation)
    return np.asarray(indices), np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))


def test_means_are_sums_in_the_order_of_pieces_and_edges(mag, tmp_path, monkeypatch):
    """To the bit, whether the relation's lists are by neighbor (authors' papers) or by node."""
    monkeypatch.setattr(neighbor_means, "PIECE", 1 << 20)
    graph = tiering.import_graph(mag, tmp_path / "graph", mean_features=MEANS)
    assert graph.splits("paper") == ["train", "val", "test"]
    step = (1 << 20) // (4 * 768)
    for node_type, other, relation in (
        ("author", "paper", ("author", "writes", "paper")),
        ("institution", "author", ("author", "affiliated_with", "institution")),
    ):
        src, dst = edges_between(graph, relation)
        nodes, neighbors = (src, dst) if relation[0] == node_type else (dst, src)
        rows, found = rows_of(graph, other).astype(np.float32), rows_of(graph, node_type)
        total = np.zeros((found.shape[0], 768), np.float32)
        for edge in np.argsort(neighbors // step, kind="stable"):
            total[nodes[edge]] += rows[neighbors[edge]]
        degree = np.bincount(nodes, minlength=found.shape[0])
        assert (degree == 0).any() or node_type == "institution"
        total /= np.maximum(degree, 1)[:, None]
        assert found.dtype == np.float16
        assert found.tobytes() == total.astype(np.float16).tobytes()


def test_means_of_bfloat16_are_rounded_to_it():
    values = np.array([1.0, 1.00390625, 1.01171875, -3.3e38, np.nan, 3.4e38, 0.0], np.float32)
    torch = pytest.importorskip("torch")
    expected = torch.from_numpy(values).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    found = narrow_rows(values, "bfloat16")
    assert np.array_equal(found[~np.isnan(values)], expected[~np.isnan(values)])
    assert found[4] & 0x7FFF > 0x7F80


def test_means_are_the_same_bytes_for_any_memory_and_threads(mag, tmp_path, monkeypatch):
    monkeypatch.setattr(neighbor_means, "PIECE", 1 << 20)
    parts, find = set(), neighbor_means._find_in_neighbors

    def counted(lists: Any, start: int, *others: int) -> Any:
        parts.add(start)
        return find(lists, start, *others)

    monkeypatch.setattr(neighbor_means, "_find_in_neighbors", counted)
    for name, least, threads in (("much", 1 << 30, 1), ("little", 1 << 20, 3)):
        monkeypatch.setattr(neighbor_means, "sums_memory", lambda context, least=least: least)
        tiering.import_graph(mag, tmp_path / name, mean_features=MEANS, threads=threads)
    assert len(parts) > 8
    for node_type in ("author", "institution"):
        few, many = ((tmp_path / name / f"features/tables/{node_type}").read_bytes() for name in ("little", "much"))
        assert few == many


@pytest.mark.parametrize(("given", "message"), [
    ("institution=affiliated_with", "needs the features of author, which has none"),
    ("author=cites", "no relation cites of author to another type; expected affiliated_with, writes"),
    ("reader=writes", "no node type reader"),
])  # fmt: skip
def test_means_that_cannot_be_are_refused(mag, tmp_path, given, message):
    with pytest.raises(InputError, match=message):
        tiering.import_graph(mag, tmp_path / "graph", mean_features=given)


def test_rows_that_do_not_fit_the_budget_are_refused_before_work_begins(mag, tmp_path, monkeypatch):
    monkeypatch.setattr(neighbor_means, "sums_memory", lambda context: 1 << 50)
    with pytest.raises(BudgetError, match="features of author: rows in transit"):
        tiering.import_graph(mag, tmp_path / "graph", mean_features=MEANS)
