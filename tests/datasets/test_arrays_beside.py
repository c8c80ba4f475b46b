"""Numpy files in a directory with one file of edges, of any format: read as next to edge_index.npy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
import scipy.io
from refusals import refused
from scipy import sparse

import tiering
import tiering.datasets.text as text_blocks
from tiering.datasets.open import open_dataset
from tiering.errors import MissingError

NODES = 50
PAIRS = np.unique(np.random.default_rng(0).integers(0, NODES - 1, (300, 2)), axis=0)


def matrix() -> Any:
    return sparse.coo_matrix((np.ones(len(PAIRS)), tuple(PAIRS.T)), (NODES, NODES))


def save_text(name: str, delimiter: str = "\t", header: str = "") -> Callable[[Path], Any]:
    return lambda folder: np.savetxt(folder / name, PAIRS, "%d", delimiter=delimiter, header=header, comments="")


WRITERS: dict[str, Callable[[Path], Any]] = {
    "edges.csv": save_text("edges.csv", ",", "src,dst"),
    "edges.txt": save_text("edges.txt"),
    "edges.tsv.gz": save_text("edges.tsv.gz"),
    "edges.parquet": lambda folder: pa_parquet.write_table(
        pa.table({"src": PAIRS[:, 0], "dst": PAIRS[:, 1]}), folder / "edges.parquet"
    ),
    "a.mtx": lambda folder: scipy.io.mmwrite(folder / "a.mtx", matrix(), field="pattern", symmetry="general"),
    "a.npz": lambda folder: sparse.save_npz(folder / "a.npz", matrix()),
}


def write_arrays(folder: Path) -> Path:
    folder.mkdir()
    random = np.random.default_rng(1)
    np.save(folder / "node_feat.npy", random.random((NODES, 7), np.float32))
    np.save(folder / "node_label.npy", random.integers(0, 4, NODES))
    np.save(folder / "train_mask.npy", random.random((NODES, 3)) < 0.5)
    np.save(folder / "valid_idx.npy", np.array([4, 2]))
    np.save(folder / "edge_weight.npy", random.random(len(PAIRS)))
    np.save(folder / "edge_feat.npy", random.random((len(PAIRS), 3)))
    return folder


def arrays(graph: Any) -> list[np.ndarray]:
    splits = [graph.split(split) for split in graph.splits()]
    edges = [values for _, values in sorted(graph.edge_data().items())]
    return [np.array(a) for a in (graph.feature_table("node").open(), graph.labels(), *graph.csc(), *splits, *edges)]


@pytest.mark.parametrize("name", WRITERS)
def test_they_are_read_as_next_to_edge_index(tmp_path: Path, tiering_cli: Any, name: str) -> None:
    plain, folder = write_arrays(tmp_path / "plain"), write_arrays(tmp_path / "toy")
    np.save(plain / "edge_index.npy", PAIRS.T)
    WRITERS[name](folder)
    (folder / "README.txt").write_text("about this")
    result = tiering_cli("import", folder, "--out", tmp_path / "graph").ok()
    assert "not imported" not in result.err
    graph, expected = tiering.open(tmp_path / "graph"), tiering.import_graph(plain, tmp_path / "expected")
    assert graph.splits() == expected.splits() and "train-2" in graph.splits()
    assert list(graph.edge_data()) == list(expected.edge_data()) == ["feat", "weight"]
    for found, wanted in zip(arrays(graph), arrays(expected), strict=True):
        np.testing.assert_array_equal(found, wanted)
    if name == "edges.parquet":  # whose columns tasks read where they lie
        tiering_cli("import", folder, "--out", tmp_path / "tasks", "--executor", "local").ok()
        for found, wanted in zip(arrays(tiering.open(tmp_path / "tasks")), arrays(expected), strict=True):
            np.testing.assert_array_equal(found, wanted)
    np.save(folder / "labels.npy", np.zeros(NODES))
    assert "labels.npy; the import reads node_feat" in tiering_cli("import", folder, "--out", tmp_path / "b").ok().err
    said = tiering_cli("import", folder / name, "--out", tmp_path / "alone").ok().err
    assert "node_label.npy" in said and "edge_feat.npy next to it; give the directory to import them" in said
    assert tiering.open(tmp_path / "alone").features is None
    refused("--feature-dim: does not apply to a file; give the directory", folder / name, feature_dim=7)
    np.save(folder / "node_label.npy", np.zeros(NODES - 1))
    refused(f"expected {NODES} labels, one per node, found {NODES - 1}", folder)


def test_rows_say_how_many_nodes_there_are(tmp_path: Path) -> None:
    folder = write_arrays(tmp_path / "toy")
    for name in ("node_label.npy", "train_mask.npy", "edge_feat.npy", "edge_weight.npy"):
        (folder / name).unlink()
    np.savetxt(folder / "edges.csv", np.vstack((PAIRS, [[NODES - 1, 0]])) + 1, "%d", delimiter=",")
    refused(
        rf"edges\.csv: .*node_feat\.npy says {NODES} nodes, ids 0\.\.49, but id 50 occurs; give --first-id 1", folder
    )
    np.arange(NODES * 4, dtype=np.float16).tofile(folder / "node_feat.npy")
    with open_dataset(folder, feature_dim=4, feature_dtype="float16", first_id=1) as dataset:
        assert (dataset.nodes["node"].num_nodes, dataset.nodes["node"].features.dim) == (NODES, 4)
        assert int(dataset.edges[0].src[0]) == PAIRS[0, 0]


def test_two_files_of_edges_or_two_weights_are_refused(tmp_path: Path) -> None:
    folder = write_arrays(tmp_path / "toy")
    weighted = np.column_stack((PAIRS, np.ones(len(PAIRS), int)))
    np.savetxt(folder / "a.csv", weighted, "%d", delimiter=",", header="src,dst,weight", comments="")
    refused(r"edge_weight\.npy: the edges already have a weight; omit one", folder)
    (folder / "edge_weight.npy").unlink()
    WRITERS["edges.csv"](folder)
    refused(
        r"toy: expected one file of edges, found a\.csv, edges\.csv; .* as --relation .* --nodes",
        folder,
        error=MissingError,
    )


@pytest.mark.parametrize(("options", "ids", "edges", "train"), [
    ({}, [1, 2, 5], [(1, 2), (2, 5), (5, 1)], [2, 5]),
    ({"compact_ids": True}, [1, 2, 5], [(0, 1), (1, 2), (2, 0)], [1, 2]),
    ({"compact_ids": True, "first_id": 1}, [1, 2, 5], [(0, 1), (1, 2), (2, 0)], [1, 2]),
    ({"first_id": 1}, [1, 2, 5], [(0, 1), (1, 4), (4, 0)], [1, 4]),
    ({"string_ids": True}, [1, 2, 10], [(0, 2), (2, 1), (1, 0)], [1, 2]),
])  # fmt: skip
@pytest.mark.parametrize("kind", ["csv", "parquet", "with times"])
def test_splits_hold_ids_of_the_edges_whatever_renumbers_them(tmp_path, monkeypatch, options, ids, edges, train, kind):
    monkeypatch.setattr(text_blocks, "BLOCK_BYTES", 4)
    pairs = np.array([ids, [*ids[1:], ids[0]]])
    if kind == "with times":  # which tables are read for
        times = np.vstack((pairs, range(3))).T
        np.savetxt(tmp_path / "edges.csv", times, "%d", delimiter=",", header="src,dst,t", comments="")
        options = {**options, "time": "t"}
    elif kind == "csv":
        np.savetxt(tmp_path / "edges.csv", pairs.T, "%d", delimiter=",")
    else:
        pairs = pairs.astype(str) if "string_ids" in options else pairs
        options = {name: value for name, value in options.items() if name != "string_ids"}
        table = pa.table({"src": pairs[0].tolist(), "dst": pairs[1].tolist()})
        pa_parquet.write_table(table, tmp_path / "edges.parquet", row_group_size=1)
    np.save(tmp_path / "train_idx.npy", np.array([ids[2], ids[1]], np.uint64))
    with open_dataset(tmp_path, **options) as data:
        assert list(zip(data.edges[0].src.tolist(), data.edges[0].dst.tolist(), strict=True)) == edges
        assert sorted(data.nodes["node"].splits["train"].tolist()) == train
        assert data.nodes["node"].extra.get("original_id", np.array(ids)).tolist() == ids
        nodes = data.nodes["node"].num_nodes
    np.save(tmp_path / "val_mask.npy", np.arange(nodes) == 1)  # of the second, whatever its id
    with open_dataset(tmp_path, **options) as data:
        assert data.nodes["node"].splits["val"].tolist() == [1]
    for wrong in (
        (0, ids[2] + 1, 2**63 + 1) if options.keys() - {"time"} or (kind == "parquet" and ids[2] == 10) else ()
    ):
        np.save(tmp_path / "train_idx.npy", np.array([ids[1], wrong], np.uint64))
        refused(r"train_idx\.npy.*: expected ids (of the edges|0\.\.4).*, found \d+ at position 1", tmp_path, **options)


def test_rows_that_may_begin_at_either_id_are_refused(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("1,2\n2,3\n")
    for rows, options, nodes in ((3, {}, 3), (4, {}, None), (4, {"num_nodes": 4}, 4), (5, {}, None)):
        for name, values in (("node_feat", np.zeros((rows, 2))), ("node_label", np.zeros(rows, int))):
            np.save(tmp_path / f"{name}.npy", values)
            if nodes is None:
                message = rf"{name}\.npy.*: the {rows} rows may belong to ids 1\.\.{rows} or 0\.\.{rows - 1}; give"
                refused(f"{message} --num-nodes", tmp_path, first_id=1)
            else:
                with open_dataset(tmp_path, first_id=1, **options) as data:
                    assert data.nodes["node"].num_nodes == nodes
            (tmp_path / f"{name}.npy").unlink()


@pytest.mark.parametrize(("ids", "split", "nodes"), [
    ([2**63 + 1, 2**63 + 2, 5], np.array([2**63 + 1, 5], np.uint64), [0, 1]),
    ([2**63 + 1, 2**63 + 2, 5], [5 - 2**63], None), ([-7, 3, 9], [-7, 9], [0, 2]),
    ([-7, 3, 9], np.array([2**64 - 7], np.uint64), None),
])  # fmt: skip
def test_splits_of_ids_of_64_bits_are_found_exactly(tmp_path: Path, ids: list[int], split: Any, nodes: Any) -> None:
    (tmp_path / "edges.csv").write_text(f"{ids[0]},{ids[1]}\n{ids[1]},{ids[2]}\n")
    np.save(tmp_path / "train_idx.npy", np.array(split))
    if nodes is None:
        refused("expected ids of the edges, which are renumbered", tmp_path, compact_ids=True)
        return
    with open_dataset(tmp_path, compact_ids=True) as data:
        assert sorted(data.nodes["node"].splits["train"].tolist()) == nodes
