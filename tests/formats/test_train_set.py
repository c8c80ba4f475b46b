"""Training nodes in every form users give them."""

import os

import numpy as np
import pytest

from tiering.errors import InputError, MissingError
from tiering.formats.dataset import Dataset, EdgeData, NodeData
from tiering.formats.user_arrays import resolve_train
from tiering.graph.build import build_graph


@pytest.fixture
def graph(tmp_path):
    """Papers with splits train and val, authors with train, venues with none."""
    paper, author = NodeData(10), NodeData(6)
    paper.splits = {"train": np.array([7, 2, 5]), "val": np.array([1, 0])}
    author.splits = {"train": np.array([3])}
    edges = EdgeData(("author", "writes", "paper"), np.array([0, 1]), np.array([2, 3]))
    return build_graph(
        Dataset("d", "npy", {"paper": paper, "author": author, "venue": NodeData(2)}, [edges]), tmp_path / "g"
    )


HALF = sorted(np.random.default_rng(1).choice(6, 3, replace=False).tolist())


@pytest.mark.parametrize(("train", "expected"), [
    (None, {"paper": [7, 2, 5], "author": [3]}), ("train", {"paper": [7, 2, 5], "author": [3]}),
    ("val", {"paper": [1, 0]}), ("paper=val", {"paper": [1, 0]}),
    ({"paper": "train", "author": [5, 4]}, {"paper": [7, 2, 5], "author": [5, 4]}),
    ("paper=ids.npy,author=50%", {"paper": [4, 9], "author": HALF}),
])  # fmt: skip
def test_splits_files_and_shares_keep_their_order(graph, tmp_path, monkeypatch, train, expected):
    monkeypatch.chdir(tmp_path)
    np.save("ids.npy", np.array([4, 9]))
    assert {name: ids.tolist() for name, ids in resolve_train(graph, train, seed=1).items()} == expected


@pytest.mark.parametrize(("train", "error", "words"), [
    ("dev", MissingError, "dev: no file and no split has this name"),
    ("author=val", MissingError, "val: no file and no split has this name; give one with `train`: a split"),
    ("paper=", InputError, "expected TYPE=FILE"),
    ({"paper": [3, 3]}, InputError, "each id once, found 1 repeated, such as 3"),
    ({"paper": [3, 10]}, InputError, r"ids 0..9, found 10 at position 1"),
    ({"paper": [-1]}, InputError, "found -1 at position 0"), ({"paper": [0.5]}, InputError, "whole numbers"),
    ({"paper": []}, InputError, "the training set is empty"), ("paper=0%", InputError, "percentage above 0%"),
    ({"editor": [1]}, MissingError, "editor"),
])  # fmt: skip
def test_what_does_not_fit(graph, train, error, words):
    with pytest.raises(error, match=words):
        resolve_train(graph, train)


def test_files_that_are_none(graph, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="pipe: expected node ids, a regular file, found a pipe"):
        resolve_train(graph, f"paper={tmp_path / 'pipe'}")
    header = b"{'descr': (), 'fortran_order': False, 'shape': (1,), }"
    (tmp_path / "ids.npy").write_bytes(b"\x93NUMPY\x01\x00" + bytes([len(header), 0]) + header)
    with pytest.raises(InputError, match=r"ids\.npy: (expected node ids with a numpy header|damaged numpy header)"):
        resolve_train(graph, f"paper={tmp_path / 'ids.npy'}")
