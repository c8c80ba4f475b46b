"""Graphs of PyG and DGL, in their files and in hand, against the libraries' own objects."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refused

import tiering
from tiering.datasets.open import open_dataset
from tiering.errors import BudgetError, CapabilityError, InputError, MissingError

torch = pytest.importorskip("torch")


@pytest.fixture
def pyg() -> Any:
    return pytest.importorskip("torch_geometric.data")


@pytest.fixture
def dgl() -> Any:
    return pytest.importorskip("dgl")


EDGES = {"edge_index": torch.tensor([[0, 1], [1, 2]])}


def test_features_stay_in_a_file_and_are_copied_from_an_object_in_hand(pyg: Any, tmp_path: Path) -> None:
    data = pyg.Data(**EDGES, x=torch.rand(3, 2), val_mask=torch.tensor([False, True, True]))
    torch.save(data, tmp_path / "a.pt")
    for number, source in enumerate((tmp_path / "a.pt", data)):
        graph = tiering.import_graph(source, tmp_path / f"graph{number}")
        assert tiering.check(graph.path, "full") == []
        table = graph.feature_table("node")
        assert table.path == source if source is not data else table.path.is_relative_to(graph.path)
        np.testing.assert_array_equal(table.open(), data.x)
        np.testing.assert_array_equal(graph.split("val", "node"), [1, 2])
    with pytest.raises(InputError, match="expected auto or pyg for a Data"):
        tiering.import_graph(data, tmp_path / "other", format="npy")
    with pytest.raises(InputError, match=r"found builtins\.dict"):
        tiering.import_graph({"x": 1}, tmp_path / "other")


def papers(pyg: Any) -> Any:
    """Two types, three relations, edge data; features of one type in bfloat16, of one not in order."""
    random = torch.Generator().manual_seed(1)
    data = pyg.HeteroData()
    data["paper"].x = torch.rand(7, 3, generator=random).to(torch.bfloat16)
    data["paper"].y = torch.tensor([0, 1, 2, -1, 0, 1, 1])
    data["paper"].train_idx = torch.tensor([5, 0])
    data["author"].feat = torch.rand(4, 5, generator=random).T
    data["venue"].num_nodes = 3
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 4, 1, 1], [1, 2, 2, 6]])
    data["author", "writes", "paper"].edge_attr = torch.rand(3, 4, generator=random).T
    data["paper", "cites", "paper"].edge_index = torch.tensor([[1, 2], [0, 1], [6, 6]], dtype=torch.int32).T
    data["paper", "cites", "paper"].edge_weight = torch.tensor([1.5, 2.5, 0.0])
    data["paper", "in", "venue"].edge_index = torch.empty(2, 0, dtype=torch.int64)
    return data


@pytest.mark.parametrize("way", ["file", "dictionary", "hand"])
def test_heterogeneous_graphs_keep_types_edge_data_and_order(pyg: Any, tmp_path: Path, way: str) -> None:
    data, source = papers(pyg), tmp_path / "papers.pt"
    torch.save(data if way == "file" else data.to_dict(), source)
    graph = tiering.import_graph(data if way == "hand" else source, tmp_path / "graph")
    assert tiering.check(graph.path, "full") == []
    assert {name: graph.num_nodes(name) for name in graph.node_types} == {"author": 5, "paper": 7, "venue": 3}
    bits = data["paper"].x.view(torch.int16).numpy().view(np.uint16)
    np.testing.assert_array_equal(graph.feature_table("paper").open(), bits)
    assert graph.feature_table("paper").dtype == "bfloat16"
    np.testing.assert_array_equal(graph.feature_table("author").open(), data["author"].feat)
    np.testing.assert_array_equal(graph.labels("paper"), data["paper"].y)
    np.testing.assert_array_equal(graph.split("train", "paper"), [5, 0])
    assert set(graph.relations) == set(data.edge_types)
    for relation in data.edge_types:
        src, dst = data[relation].edge_index.numpy()
        order = np.argsort(dst, kind="stable")
        np.testing.assert_array_equal(graph.csc(relation)[1], src[order])
        if relation[1] == "writes":
            np.testing.assert_array_equal(graph.edge_data(relation)["feat"], data[relation].edge_attr.numpy()[order])
        if relation[1] == "cites":
            np.testing.assert_array_equal(graph.edge_data(relation)["weight"], data[relation].edge_weight[order])


def test_heterogeneous_graphs_of_dgl_keep_types_and_edge_data(dgl: Any, tmp_path: Path) -> None:
    ends = {("u", "r", "v"): ([0, 1, 1], [2, 0, 2]), ("v", "s", "u"): ([1], [0])}
    graph = dgl.heterograph(ends, num_nodes_dict={"u": 3, "v": 4})
    graph.nodes["u"].data["feat"] = torch.rand(3, 2)
    graph.edges["r"].data["weight"] = torch.tensor([0.5, 1.0, 2.0])
    dgl.save_graphs(str(tmp_path / "g.bin"), [graph])
    for number, source in enumerate((tmp_path / "g.bin", graph)):
        made = tiering.import_graph(source, tmp_path / f"graph{number}")
        assert {name: made.num_nodes(name) for name in made.node_types} == {"u": 3, "v": 4}
        np.testing.assert_array_equal(made.csc(("u", "r", "v"))[1], [1, 0, 1])
        np.testing.assert_array_equal(made.edge_data(("u", "r", "v"))["weight"], [1.0, 0.5, 2.0])
        np.testing.assert_array_equal(made.feature_table("u").open(), graph.nodes["u"].data["feat"])


def test_relations_can_be_chosen_and_arrays_without_a_use_are_recorded(pyg: Any, tmp_path: Path) -> None:
    data = papers(pyg)
    data["paper"].year = torch.arange(7)
    torch.save(data, tmp_path / "papers.pt")
    with open_dataset(tmp_path / "papers.pt", relations="paper:cites:paper") as dataset:
        assert list(dataset.nodes) == ["paper"]
        assert dataset.notes["ignored_arrays"] == [f"{tmp_path / 'papers.pt'}: year of paper"]
    with pytest.raises(MissingError, match="no relation a:b:c; the relations are author:writes:paper, "):
        open_dataset(tmp_path / "papers.pt", relations="a:b:c")


@pytest.mark.parametrize(("arrays", "message"), [
    ({"x": torch.rand(3, 2)}, "expected edge_index, found x; for a sparse adj_t"),
    ({"edge_index": torch.tensor([[0.5], [1]])}, r"edges of shape \(2, E\), int32 or int64, found float32 \(2, 1\)"),
    ({**EDGES, "x": torch.rand(4, 2), "y": torch.zeros(3)}, "expected 4 labels, one per node, found 3"),
    ({**EDGES, "y": torch.tensor([0, 1, -2])}, "y of node: expected labels 0, 1, 2"),
    ({**EDGES, "x": torch.rand(4, 2, 2)}, r"x of node: expected features of shape \(rows, dim\)"),
    ({**EDGES, "x": torch.ones(3, 2, dtype=torch.uint16)}, "found uint16"),
    ({**EDGES, "y": torch.zeros(3), "train_mask": torch.zeros(3, 2) > 0}, "column 0: the train set is empty"),
    ({**EDGES, "y": torch.zeros(3), "train_idx": torch.zeros(3, 2, dtype=int)}, "one column, found int64"),
    ({**EDGES, "y": torch.zeros(3), "train_mask": torch.zeros(3) > 0}, "the train set is empty"),
    ({**EDGES, "train_idx": torch.tensor([3])}, "expected ids 0..2, found 3"),
    ({**EDGES, "edge_attr": torch.rand(3)}, "edge_attr of node:to:node: expected one row for each of 2 edges"),
    ({**EDGES, "edge_weight": torch.tensor([-1.0, 1])}, "finite weights of 0 or more"),
])  # fmt: skip
def test_arrays_that_do_not_fit_are_refused(pyg: Any, tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    torch.save(pyg.Data(**arrays), tmp_path / "a.pt")
    for source in (tmp_path / "a.pt", pyg.Data(**arrays)):
        refused(message, source)


def test_files_that_hold_something_else_are_refused(pyg: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    torch.save({"train": np.arange(3)}, path)
    refused(r"expected a graph of PyG .*, found dict", path)
    data, slices = pyg.InMemoryDataset.collate([pyg.Data(**EDGES), pyg.Data(**EDGES)])
    torch.save((data, slices), path)
    refused("expected one graph, found 2", path)
    torch.save(pyg.Data(**EDGES), path, _use_new_zipfile_serialization=False)
    refused(r"since 1\.6", path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("some.txt", "")
    refused("expected a numpy file", path)
    refused(r"expected data\.pt or", tmp_path, format="pyg", error=MissingError)


def test_files_of_dgl_are_refused_where_dgl_is_not_or_they_are_none(dgl, tmp_path, monkeypatch):
    path, graph = tmp_path / "a.bin", dgl.graph(([0], [1]))
    dgl.save_graphs(str(path), [graph, graph])
    refused("expected one graph, found 2", path)
    path.write_bytes(path.read_bytes()[:5000])
    refused("DGL cannot read it", path)
    with path.open("r+b") as file:
        file.truncate(1 << 30)
    refused(r"the whole file into memory, 1 GiB", path, memory="100MiB", error=BudgetError)
    monkeypatch.setitem(sys.modules, "dgl", None)
    refused(r"pip install 'tiering\[dgl\]'", path, error=CapabilityError)


def test_times_are_of_edges_or_of_nodes(pyg: Any, tmp_path: Path) -> None:
    """As PyG tells them apart: by their number, and, if there are as many edges as nodes, by ``edge`` in their name."""
    times, data = torch.tensor([3, 1, 2], dtype=torch.int32), {"edge_index": torch.tensor([[0, 1, 2], [3, 3, 3]])}
    graph = tiering.import_graph(pyg.Data(**data, t=times, num_nodes=4), tmp_path / "edges", time="t")
    assert (graph.time.along, graph.csc()[1].tolist(), graph.times().tolist()) == ("edges", [1, 2, 0], [1, 2, 3])
    graph = tiering.import_graph(pyg.Data(**data, t=torch.arange(4.0), num_nodes=4), tmp_path / "nodes", time="t")
    assert (graph.time, graph.node_times().tolist()) == (("t", "nodes", "float64", None), [0, 1, 2, 3])
    loop = {"edge_index": torch.tensor([[0, 1, 2], [0, 0, 0]]), "num_nodes": 3}
    for name, along in (("t", "nodes"), ("edge_t", "edges")):
        graph = tiering.import_graph(pyg.Data(**loop, **{name: times}), tmp_path / name, time=name)
        assert graph.time.along == along
    hetero = pyg.HeteroData()
    hetero["a"].num_nodes, hetero["b"].num_nodes = 3, 4
    hetero["b"].when = torch.tensor([4, 3, 2, 1])
    hetero["b", "to", "a"].edge_index = torch.tensor([[0, 1, 2], [0, 0, 0]])
    hetero["a", "back", "b"].edge_index = torch.tensor([[0, 1, 2], [0, 0, 0]])
    graph = tiering.import_graph(hetero, tmp_path / "hetero", time="when")
    assert graph.csc("to")[1].tolist() == [2, 1, 0]
    assert graph.times("back") is None


@pytest.mark.parametrize("library", ["pyg", "dgl"])
def test_positions_of_edges_are_kept_by_default(library, request, tmp_path, tiering_cli, capfd):
    """Of a graph in memory and of its file."""
    made = request.getfixturevalue(library)
    src, dst = torch.tensor([2, 0, 1, 0]), torch.tensor([1, 1, 0, 2])
    graph = (
        made.Data(edge_index=torch.stack([src, dst]), x=torch.rand(3, 2))
        if library == "pyg"
        else made.graph((src, dst))
    )
    file = tmp_path / f"graph.{'pt' if library == 'pyg' else 'bin'}"
    torch.save(graph, file) if library == "pyg" else made.save_graphs(str(file), [graph])
    for number, source in enumerate((graph, file)):
        found = tiering.import_graph(source, tmp_path / f"g{number}")
        indptr, indices = found.csc()
        positions = found.edge_data()["edge_ids"]
        assert np.array_equal(src.numpy()[positions], indices)
        assert np.array_equal(dst.numpy()[positions], np.repeat(np.arange(3), np.diff(indptr)))
        assert found.manifest.provenance["options"]["edge_ids"] is True
        left = tiering.import_graph(source, tmp_path / f"h{number}", edge_ids=False)
        assert "edge_ids" not in left.edge_data()
        kept, less = (tiering.import_graph(source, tmp_path / "x", edge_ids=e, dry_run=True) for e in (None, False))
        assert kept[0].disk_written - less[0].disk_written >= 8 * src.numel()
    assert "edge_ids=False saves this space" in capfd.readouterr().err.replace("`", "")
    done = tiering_cli("import", file, "--out", tmp_path / "c").ok()
    assert "each edge keeps its position in the source, 32 B in all; --no-edge-ids" in done.err
    assert "edge_ids" not in tiering_cli("import", file, "--no-edge-ids", "--out", tmp_path / "d").ok().err
