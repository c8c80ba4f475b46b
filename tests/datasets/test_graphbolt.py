"""Directories of GraphBolt's OnDiskDataset; DGL 2.1's own has preprocessed those in ``graphbolt_made``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refused

import tiering
from tiering.artifacts.manifest import relation_key
from tiering.datasets.open import open_dataset
from tiering.errors import CapabilityError, MissingError
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


def metadata(**changes: Any) -> dict[str, Any]:
    """Of a dataset with one type, changed."""
    graph = {"nodes": [{"num": 3}], "edges": [{"format": "numpy", "path": "edges.npy"}]}
    return {"graph": graph, "feature_data": [], **changes}


def typed(edge_type: str) -> dict[str, Any]:
    return {"nodes": [{"num": 3}], "edges": [{"type": edge_type, "format": "numpy", "path": "edges.npy"}]}


def test_edges_in_csv_and_the_first_task_that_has_nodes_are_read(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("0,1\n2,0\n")
    np.save(tmp_path / "seeds.npy", np.array([2, 0]))
    graph = {"nodes": [{"num": 3}], "edges": [{"format": "csv", "path": "edges.csv"}]}
    sets = {"train_set": [{"data": [{"name": "seed_nodes", "format": "numpy", "path": "seeds.npy"}]}]}
    meta = metadata(graph=graph, tasks=[{"name": "link_prediction"}, sets])
    (tmp_path / "metadata.yaml").write_text(json.dumps(meta))
    with open_dataset(tmp_path) as dataset:
        assert (dataset.edges[0].src.tolist(), dataset.edges[0].dst.tolist()) == ([0, 2], [1, 0])
        assert dataset.nodes["node"].splits["train"].tolist() == [2, 0]
        assert dataset.notes["ignored_tasks"] == [0]


@pytest.mark.parametrize(("meta", "message"), [
    ("[1, 2]", "list in place of keys and values"), ("graph: {nodes", "damaged YAML"), ('{"graph": ', "damaged JSON"),
    ("!!python/object/apply:os.mkdir [made]", "damaged YAML .*could not determine a constructor"),
    (metadata(graph=typed("a:b")), "an edge type 'a:b' instead of src:name:dst"),
    (metadata(graph={"nodes": [{}]}), "KeyError 'num'"),
    (metadata(graph={"nodes": [{"num": -1}]}), "num of node: expected a whole number of 0 or more"),
    (metadata(feature_data=[{"domain": "node", "format": "hdf5", "path": "x"}]), "format 'hdf5' instead of csv"),
])  # fmt: skip
def test_metadata_that_is_wrong_is_refused(tmp_path: Path, meta: Any, message: str) -> None:
    (tmp_path / "metadata.yaml").write_text(meta if isinstance(meta, str) else json.dumps(meta))
    refused(message, tmp_path)


def test_files_that_are_missing_or_do_not_fit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "metadata.yaml"
    path.write_text(json.dumps(metadata()))
    refused(r"edges\.npy, which .*metadata\.yaml names, is missing", tmp_path, error=MissingError)
    np.save(tmp_path / "edges.npy", np.array([[0, 1, 2]]))
    refused(r"edges of shape \(2, E\)", tmp_path)
    np.save(tmp_path / "edges.npy", np.array([[0], [1]]))
    np.save(tmp_path / "seeds.npy", np.array([3]))
    np.save(tmp_path / "labels.npy", np.array([0]))
    data = [{"name": name, "format": "numpy", "path": f"{name}.npy"} for name in ("seeds", "labels")]
    path.write_text(json.dumps(metadata(tasks=[{"train_set": [{"data": data}]}])))
    refused(r"seeds\.npy: expected node ids in 0\.\.2", tmp_path)
    np.save(tmp_path / "seeds.npy", np.array([1.0]))
    refused(r"seeds\.npy: expected node ids as whole numbers, found float64", tmp_path)
    path.write_text("dataset_name: a")
    monkeypatch.setitem(sys.modules, "yaml", None)
    refused(r"pip install 'tiering\[graphbolt\]'", tmp_path, error=CapabilityError)


@pytest.mark.parametrize(("labels", "expected", "classes"), [
    (np.array([[1, 0], [0, 1]]), [[0, 1], [-1, -1], [1, 0]], 2),
    (np.array([[1, 0], [0, 1]], np.float32), [[0, 1], [np.nan, np.nan], [1, 0]], 2),
    (np.array([0.5, 2], np.float32), [2, np.nan, 0.5], 1), (np.array([1, 2], np.float32), [2, -1, 1], 3),
    (np.array([True, False]), [0, -1, 1], 2),
])  # fmt: skip
def test_labels_of_seeds_that_are_no_classes_stay_so(tmp_path: Path, labels: Any, expected: Any, classes: int) -> None:
    (folder := tmp_path / "data").mkdir()
    np.save(folder / "edges.npy", np.array([[0], [1]]))
    np.save(folder / "seeds.npy", np.array([2, 0]))
    np.save(folder / "labels.npy", labels)
    data = [{"name": name, "format": "numpy", "path": f"{name}.npy"} for name in ("seeds", "labels")]
    (folder / "metadata.yaml").write_text(json.dumps(metadata(tasks=[{"train_set": [{"data": data}]}])))
    graph = tiering.import_graph(folder, tmp_path / "graph")
    np.testing.assert_array_equal(graph.labels(), np.array(expected))
    assert graph.num_classes() == classes
