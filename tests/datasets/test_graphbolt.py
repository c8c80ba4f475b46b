"""Directories of GraphBolt's OnDiskDataset; DGL 2.1's own has preprocessed those in ``graphbolt_made``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiering
from tiering.artifacts.manifest import relation_key
from tiering.datasets import open_dataset
from tiering.errors import CapabilityError, InputError, MissingError
from tiering.formats.graph import Graph

MADE = Path(__file__).parent / "graphbolt_made"
pytest.importorskip("yaml")


def edges_of(graph: Graph) -> dict[str, list[tuple[int, int, int]]]:
    """Edges by relation: source, destination and id, in the order of the ids."""
    edges = {}
    for relation in graph.relations:
        indptr, indices = graph.csc(relation)
        dst = np.repeat(np.arange(indptr.size - 1), np.diff(indptr))
        ids = graph.edge_data(relation)["edge_ids"]
        order = np.argsort(ids, kind="stable")
        triples = zip(indices[order].tolist(), dst[order].tolist(), ids[order].tolist(), strict=True)
        edges[relation_key(relation)] = list(triples)
    return edges


FILES = {"homo": {"node:to:node": "edges"}, "het": {"author:writes:paper": "w", "paper:cites:paper": "c"}}


@pytest.mark.parametrize("name", FILES)
def test_a_dataset_is_read_from_its_own_edges(tmp_path: Path, name: str) -> None:
    source = MADE / name
    expected = {}
    for relation, file in FILES[name].items():
        src, dst = np.load(source / "data" / f"{file}.npy")
        expected[relation] = list(zip(src.tolist(), dst.tolist(), range(src.size), strict=True))
    graph = tiering.import_graph(source, tmp_path / "graph", edge_ids=True)
    assert tiering.check(graph.path, "full") == []
    assert edges_of(graph) == expected
    node = "node" if name == "homo" else "paper"
    table = graph.feature_table(node)
    rows = np.load(MADE / name / "data" / ("feat.npy" if name == "homo" else "pf.npy"))
    np.testing.assert_array_equal(table.open(), rows)
    np.testing.assert_array_equal(graph.split("train", node), [5, 1, 2])
    labels = np.full(9 if name == "homo" else 7, -1)
    labels[[5, 1, 2]] = [1, 0, 2]
    if name == "homo":
        labels[[3, 4]] = [0, 1]
        np.testing.assert_array_equal(graph.split("val", node), [3, 4])
    np.testing.assert_array_equal(graph.labels(node), labels)
    if name == "het":
        relation = ("paper", "cites", "paper")
        data = graph.edge_data(relation)
        assert "warnings" not in graph.manifest.body["changes"]
        np.testing.assert_array_equal(data["weight"], np.load(MADE / "het/data/cw.npy")[data["edge_ids"]])


def test_cora_is_the_same_from_csv_edges_and_torch_features(shared_data, tmp_path, tiering_cli):
    torch = pytest.importorskip("torch")
    source, folder = tmp_path / "cora", shared_data / "cora"
    source.mkdir()
    np.savetxt(source / "edges.csv", np.load(folder / "edge_index.npy").T, "%d", ",")
    torch.save(torch.from_numpy(np.load(folder / "node_feat.npy")), source / "feat.pt")
    labels, sets = np.load(folder / "node_label.npy"), {}
    for split, key in {"train": "train_set", "val": "validation_set", "test": "test_set"}.items():
        ids = np.load(folder / f"{split}_idx.npy")
        np.save(source / f"{split}.npy", ids)
        np.save(source / f"{split}_labels.npy", labels[ids])
        data = [{"name": "seeds", "path": f"{split}.npy"}, {"name": "labels", "path": f"{split}_labels.npy"}]
        sets[key] = [{"data": [{**one, "format": "numpy"} for one in data]}]
    meta = {
        "graph": {"nodes": [{"num": len(labels)}], "edges": [{"format": "csv", "path": "edges.csv"}]},
        "feature_data": [{"domain": "node", "name": "feat", "format": "torch", "path": "feat.pt"}],
        "tasks": [{"name": "link_prediction"}, {"name": "node_classification", **sets}],
    }
    (source / "metadata.yaml").write_text(json.dumps(meta))
    tiering_cli("import", source, "--out", tmp_path / "graph").ok()
    graph, expected = Graph.open(tmp_path / "graph"), tiering.import_graph(folder, tmp_path / "expected")
    relation = ("node", "to", "node")
    for one, other in zip(graph.csc(relation), expected.csc(relation), strict=True):
        np.testing.assert_array_equal(one, other)
    known = np.concatenate([expected.split(split, "node") for split in ("train", "val", "test")])
    np.testing.assert_array_equal(graph.labels("node")[known], labels[known])
    assert np.count_nonzero(graph.labels("node") >= 0) == known.size
    for split in ("train", "val", "test"):
        np.testing.assert_array_equal(graph.split(split, "node"), expected.split(split, "node"))
    table = graph.feature_table("node")
    assert table.path == source / "feat.pt"
    np.testing.assert_array_equal(table.open(), np.load(folder / "node_feat.npy"))


def metadata(**changes: Any) -> dict[str, Any]:
    """Of a dataset with one type, changed."""
    graph = {"nodes": [{"num": 3}], "edges": [{"format": "numpy", "path": "edges.npy"}]}
    return {"graph": graph, "feature_data": [], **changes}


def typed(edge_type: str) -> dict[str, Any]:
    return {"nodes": [{"num": 3}], "edges": [{"type": edge_type, "format": "numpy", "path": "edges.npy"}]}


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ("[1, 2]", "list in place of keys and values"),
        ("graph: {nodes", "damaged YAML"),
        ('{"graph": ', "damaged JSON"),
        ("!!python/object/apply:os.mkdir [made]", "damaged YAML .*could not determine a constructor"),
        (metadata(graph=typed("a:b")), "an edge type 'a:b', expected src:name:dst"),
        (metadata(graph={"nodes": [{}]}), "KeyError 'num'"),
        (metadata(graph={"nodes": [{"num": -1}]}), "num of node: expected a whole number of 0 or more"),
        (metadata(feature_data=[{"domain": "node", "format": "hdf5", "path": "x"}]), "format 'hdf5', expected csv"),
    ],
)
def test_metadata_that_is_wrong_is_refused(tmp_path: Path, meta: Any, message: str) -> None:
    (tmp_path / "metadata.yaml").write_text(meta if isinstance(meta, str) else json.dumps(meta))
    with pytest.raises(InputError, match=message):
        open_dataset(tmp_path)


def test_files_that_are_missing_or_do_not_fit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "metadata.yaml"
    path.write_text(json.dumps(metadata()))
    with pytest.raises(MissingError, match=r"expected .*edges\.npy as .*metadata\.yaml says"):
        open_dataset(tmp_path)
    np.save(tmp_path / "edges.npy", np.array([[0, 1, 2]]))
    with pytest.raises(InputError, match=r"edges of shape \(2, E\)"):
        open_dataset(tmp_path)
    np.save(tmp_path / "edges.npy", np.array([[0], [1]]))
    np.save(tmp_path / "seeds.npy", np.array([3]))
    np.save(tmp_path / "labels.npy", np.array([0]))
    data = [{"name": name, "format": "numpy", "path": f"{name}.npy"} for name in ("seeds", "labels")]
    path.write_text(json.dumps(metadata(tasks=[{"train_set": [{"data": data}]}])))
    with pytest.raises(InputError, match=r"seeds\.npy: expected node ids in 0\.\.2"):
        open_dataset(tmp_path)
    np.save(tmp_path / "seeds.npy", np.array([1.0]))
    with pytest.raises(InputError, match=r"seeds\.npy: expected node ids as whole numbers, found float64"):
        open_dataset(tmp_path)
    path.write_text("dataset_name: a")
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(CapabilityError, match=r"pip install 'tiering\[graphbolt\]'"):
        open_dataset(tmp_path)
