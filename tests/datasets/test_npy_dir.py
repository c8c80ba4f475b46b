"""Format npy: round trips, and every way a directory can be wrong."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refusals import refused

from tiering.datasets.open import open_dataset
from tiering.errors import BudgetError, MissingError, StorageError
from tiering.formats.dataset import fingerprint


def test_all_files(npy_dir: Path) -> None:
    with open_dataset(npy_dir) as data:
        nodes, edges = data.nodes["node"], data.edges[0]
        assert data.format == "npy"
        assert data.relations == [("node", "to", "node")]
        assert nodes.num_nodes == 5
        assert nodes.num_classes == 3
        assert nodes.labels.tolist() == [0, 1, 0, -1, 2]
        assert {k: v.tolist() for k, v in nodes.splits.items()} == {"train": [2, 0], "val": [1], "test": [4]}
        assert edges.src.tolist() == [0, 1, 2, 3, 4, 0]
        assert edges.dst.tolist() == [1, 2, 3, 4, 0, 0]
        assert nodes.features.path == (npy_dir / "node_feat.npy").absolute()
        assert np.array_equal(nodes.features.open(), np.arange(15, dtype=np.float32).reshape(5, 3))
        assert len(data.files) == 6
        assert "warnings" not in data.notes


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("npy")
    n, e = data.draw(st.integers(1, 20)), data.draw(st.integers(0, 30))
    ids = st.lists(st.integers(0, n - 1), min_size=e, max_size=e)
    pair = np.array([data.draw(ids), data.draw(ids)], data.draw(st.sampled_from(["int32", "int64"]))).reshape(2, e)
    flip = data.draw(st.booleans())
    order = data.draw(st.sampled_from("CF"))
    np.save(folder / "edge_index.npy", np.array(pair.T if flip else pair, order=order))
    dtype = data.draw(st.sampled_from(["float16", "float32", "uint16", "float64"]))
    feat = np.arange(n * 3).reshape(n, 3).astype(dtype)
    np.save(folder / "node_feat.npy", feat)
    weight = np.arange(e, dtype=np.float32)
    np.save(folder / "edge_weight.npy", weight)
    np.save(folder / "edge_id.npy", np.arange(e)[::-1].copy())
    with open_dataset(folder) as dataset:
        edge, nodes = dataset.edges[0], dataset.nodes["node"]
        if pair.shape == (2, 2) and flip:  # ambiguous: read as (2, E), and the record says so
            pair = pair.T
        assert ("orientation" in str(dataset.notes.get("inferred"))) == (pair.shape == (2, 2))
        assert np.array_equal(edge.src, pair[0])
        assert np.array_equal(edge.dst, pair[1])
        assert np.array_equal(edge.data["weight"], weight)
        assert edge.edge_ids.tolist() == list(range(e))[::-1]
        assert nodes.features.dtype == ("bfloat16" if dtype == "uint16" else dtype)
        assert np.array_equal(nodes.features.open(), feat)


@pytest.mark.parametrize(("values", "expected"), [
    (np.array([0, np.nan, 2, -1, 1], np.float32), [0, -1, 2, -1, 1]),
    (np.array([[0], [1], [2], [3], [4]], np.float64), [0, 1, 2, 3, 4]),
    (np.array([0, 1, 2, 3, 255], np.uint8), [0, 1, 2, 3, 255]),
    (np.array([0, np.nan, 2, -1, 1], np.float16), [0, -1, 2, -1, 1]),
    (np.array([0, 1, 2, 3, -1], np.int8), [0, 1, 2, 3, -1]), (np.array([0, 1, 2, 3, 4], np.uint64), [0, 1, 2, 3, 4]),
    (np.array([True, False, True, True, False]), [1, 0, 1, 1, 0]),
])  # fmt: skip
def test_labels(npy_dir: Path, values: np.ndarray, expected: list[int]) -> None:
    np.save(npy_dir / "node_label.npy", values)
    nodes = open_dataset(npy_dir).nodes["node"]
    assert nodes.labels.dtype == np.int64
    assert nodes.labels.tolist() == expected
    assert nodes.num_classes == max(expected) + 1


def test_masks_and_other_split_names(npy_dir: Path) -> None:
    (npy_dir / "val_idx.npy").unlink()
    np.save(npy_dir / "valid_idx.npy", np.array([3], np.uint32))
    (npy_dir / "train_idx.npy").unlink()
    np.save(npy_dir / "train_mask.npy", np.array([1, 0, 1, 0, 0], bool))
    splits = open_dataset(npy_dir).nodes["node"].splits
    assert splits["val"].tolist() == [3]
    assert splits["train"].tolist() == [0, 2]


def test_overlap_and_unlabeled_nodes_are_recorded(npy_dir: Path) -> None:
    np.save(npy_dir / "val_idx.npy", np.array([2, 3], np.int64))
    warnings = open_dataset(npy_dir).notes["warnings"]
    assert warnings == ["node: 1 nodes are in both train and val", "node: 1 of 2 nodes in val have no label"]
    (npy_dir / "val_idx.npy").unlink()
    np.save(npy_dir / "val_mask.npy", np.array([[1, 1, 0, 0, 0], [0, 1, 0, 0, 0]], bool).T)  # splits of two numbers
    assert open_dataset(npy_dir).notes["warnings"] == ["node: 1 nodes are in both train and val-0"]


def test_made_splits(npy_dir: Path) -> None:
    np.save(npy_dir / "node_label.npy", np.arange(5))
    first = open_dataset(npy_dir, split="0.6,0.2,0.2", split_seed=1)
    splits = first.nodes["node"].splits
    assert sorted(np.concatenate(list(splits.values())).tolist()) == [0, 1, 2, 3, 4]
    assert [len(v) for v in splits.values()] == [3, 1, 1]
    assert first.notes["splits"] == {"made": [0.6, 0.2, 0.2], "seed": 1, "of": 5}
    assert first.notes["splits_replaced"] == ["test_idx.npy", "train_idx.npy", "val_idx.npy"]
    again = open_dataset(npy_dir, split=(0.6, 0.2, 0.2), split_seed=1).nodes["node"].splits
    assert all(np.array_equal(splits[k], again[k]) for k in splits)


def test_headerless_features_with_options(npy_dir: Path) -> None:
    np.arange(15, dtype=np.float32).tofile(npy_dir / "node_feat.npy")
    for options in ({"feature_dim": 3}, {"num_nodes": 5}, {"feature_dim": "node=3", "feature_dtype": "float32"}):
        ref = open_dataset(npy_dir, **options).nodes["node"].features
        assert (ref.rows, ref.dim, ref.offset) == (5, 3, 0)
        assert np.array_equal(ref.open(), np.arange(15, dtype=np.float32).reshape(5, 3))


def save(name: str, array: Any) -> Callable[[Path], None]:
    return lambda folder: np.save(folder / name, array)


def raw(name: str, array: Any) -> Callable[[Path], None]:
    return lambda folder: array.tofile(folder / name)


E = np.zeros((2, 3), np.int64)
FEATURES = np.zeros((5, 3), np.float32)
BAD = [
    (save("edge_index.npy", E.astype(np.float32)), {}, "expected edges of dtype int32 or int64, found float32"),
    (save("edge_index.npy", E.astype(np.uint64)), {}, "expected edges of dtype int32 or int64, found uint64"),
    (save("edge_index.npy", np.zeros((3, 3), np.int64)), {}, r"shape \(2, E\) or \(E, 2\), found \(3, 3\)"),
    (save("edge_index.npy", np.zeros(6, np.int64)), {}, r"shape \(2, E\) or \(E, 2\), found \(6,\)"),
    (raw("edge_index.npy", E), {}, "with a numpy header, found 48 bytes without one"),
    (save("node_feat.npy", np.zeros((4, 3), np.float32)), {}, "expected 4 labels, one per node, found 5"),
    (save("node_feat.npy", np.zeros((5, 3, 2), np.float32)), {}, r"shape \(rows, dim\), found float32 \(5, 3, 2\)"),
    (save("node_feat.npy", np.zeros((5, 0), np.float32)), {}, r"\(rows, dim\), found float32 \(5, 0\)"),
    (save("node_feat.npy", np.zeros((5, 3), np.uint32)), {}, "expected features of .*found uint32"),
    (save("node_feat.npy", np.asfortranarray(np.zeros((5, 3)))), {}, "found Fortran order"),
    (raw("node_feat.npy", FEATURES), {}, r"5 rows \(node_label.npy\) x 3 x float32.*--feature-dim"),
    (raw("node_feat.npy", FEATURES), {"feature_dim": 4}, "12 bytes remain"),
    (raw("node_feat.npy", FEATURES), {"feature_dim": 3, "num_nodes": 6}, "= 72 bytes, found 60 bytes = 5 rows"),
    (save("node_feat.npy", np.zeros((5, 3))), {"feature_dim": 4}, "feature-dim says 4 .* has a numpy header"),
    (save("node_feat.npy", np.zeros((5, 3))), {"feature_dtype": "float32"}, "feature-dtype says float32"),
    (save("train_idx.npy", np.array([0, 5])), {}, r"expected ids 0\.\.4, found 5 at position 1"),
    (save("train_idx.npy", np.array([-1])), {}, r"expected ids 0\.\.4, found -1 at position 0"),
    (save("train_idx.npy", np.array([2**64 - 1], np.uint64)), {}, "found 18446744073709551615"),
    (save("train_idx.npy", np.array([1, 2, 1])), {}, "each id once, found 1 repeated, such as 1"),
    (save("train_idx.npy", np.array([0.5])), {}, "whole numbers or a boolean mask, found float64"),
    (save("train_idx.npy", np.array([True])), {}, "expected a mask of 5 values"),
    (save("train_idx.npy", np.array([], np.int64)), {}, "the train set is empty"),
    (save("train_idx.npy", np.zeros(5, bool)), {}, "the train set is empty"),
    (save("node_label.npy", np.array([0, -2, 0, 0, 0])), {}, "found -2 at row 1"),
    (save("node_label.npy", np.array([0, np.inf, 0, 0, 0])), {}, "found inf at row 1"),
    (save("node_label.npy", np.full(5, 2**63, np.uint64)), {}, "found 9223372036854775808 at row 0"),
    (save("node_label.npy", np.zeros(6)), {}, "expected 5 labels, one per node, found 6"),
    (save("node_label.npy", np.zeros((5, 2, 2))), {}, "expected one label per node, one column, found float64"),
    (save("edge_weight.npy", np.zeros(5)), {}, r"one value for each of 6 edges, found float64 \(5,\)"),
    (save("edge_weight.npy", np.array([1, 1, np.nan, 1, 1, 1])), {}, "found nan at edge 2"),
    (save("edge_type.npy", np.zeros(6)), {}, "expected whole numbers, found float64"),
    (save("edge_feat.npy", np.zeros((5, 2))), {}, r"one row for each of 6 edges, found float64 \(5, 2\); correct"),
    (save("edge_feat.npy", np.zeros((6, 2, 2))), {}, r"shape \(rows, dim\), found float64 \(6, 2, 2\)"),
    (save("edge_feat.npy", np.zeros((6, 0))), {}, "edge_feat.npy: expected features of shape"),
    (save("edge_feat.npy", np.zeros((6, 2), np.uint32)), {}, "edge_feat.npy: expected features of .*found uint32"),
    (lambda folder: None, {"num_nodes": 4}, "expected 4 nodes of type node as in --num-nodes, found 5"),
    (lambda folder: (folder / "num_nodes.txt").write_text("many"), {}, "expected the number of node nodes"),
]


@pytest.mark.parametrize(("damage", "options", "message"), BAD)
def test_bad_input(npy_dir: Path, damage: Callable[[Path], object], options: dict[str, Any], message: str) -> None:
    damage(npy_dir)
    refused(message, npy_dir, **options)


def test_negative_id_when_the_count_is_inferred(tmp_path: Path) -> None:
    np.save(tmp_path / "edge_index.npy", np.array([[0, 1, 2], [0, -7, 1]]))
    refused(r"edge_index\.npy: edge 1: destination id -7 is negative", tmp_path)


def test_more_nodes_than_memory(tmp_path: Path) -> None:
    np.save(tmp_path / "edge_index.npy", np.array([[0, 1 << 26, 2], [0, 7, 1]]))
    message = r"edge_index\.npy: edge 1: source id 67108864 is the largest.*512 MiB .*indptr"
    refused(message, tmp_path, memory="200MiB", error=BudgetError)


def test_missing_things(tmp_path: Path, npy_dir: Path) -> None:
    refused("no such file or directory", tmp_path / "nothing", error=MissingError)
    refused("no such file or directory", tmp_path / "nothing", "npy", error=MissingError)
    (npy_dir / "edge_index.npy").unlink()
    refused(r"edge_index\.npy: expected edges", npy_dir, "npy", error=MissingError)


def test_features_that_change_later_are_noticed(npy_dir: Path) -> None:
    ref = open_dataset(npy_dir).nodes["node"].features
    before = fingerprint(ref.path)
    assert before == fingerprint(ref.path)
    np.save(npy_dir / "node_feat.npy", np.zeros((5, 3), np.float32))
    assert fingerprint(ref.path) != before
    os.truncate(npy_dir / "node_feat.npy", 150)
    with pytest.raises(StorageError, match="was truncated while it was open"):
        ref.open()
    (npy_dir / "node_feat.npy").unlink()
    with pytest.raises(StorageError, match="No such file"):
        ref.open()
    with pytest.raises(MissingError, match="no such file"):
        fingerprint(ref.path)
