"""Archives of arrays are refused by every door, and the advice works."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from refusals import refused

from tiering.datasets import open_dataset
from tiering.errors import InputError


@pytest.fixture
def edges() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 40, (2, 200))


def test_a_sparse_matrix_in_place_of_features(tmp_path: Path, edges: np.ndarray) -> None:
    np.save(tmp_path / "edge_index.npy", edges)
    sp.save_npz(tmp_path / "node_feat.npz", sp.random(40, 3, 0.5, "csr"))
    with pytest.raises(InputError, match=r"node_feat.npz: .* found a scipy sparse matrix .* such as (.*)") as told:
        open_dataset(tmp_path)
    advice = str(told.value).split("such as ")[1]
    subprocess.run([sys.executable, "-c", f"import numpy, scipy.sparse; {advice}"], cwd=tmp_path, check=True)
    (tmp_path / "node_feat.npz").unlink()
    with open_dataset(tmp_path) as dataset:
        assert dataset.nodes["node"].features.rows == 40


@pytest.mark.parametrize("name", ["edge_index.npz", "node_feat.npz", "train_idx.npz"])
def test_an_archive_beside_or_in_place_of_a_numpy_file(tmp_path, edges, name):
    if name != "edge_index.npz":
        np.save(tmp_path / "edge_index.npy", edges)
    np.savez(tmp_path / name, x=np.ones((40, 3)))
    refused(rf"{name}: expected a numpy file .*, found an archive \(npz\) of x", tmp_path)


def test_other_archives_are_nobodys_business(tmp_path, edges):
    np.save(tmp_path / "edge_index.npy", edges)
    np.savez(tmp_path / "results.npz", x=edges)
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04nothing")
    with open_dataset(tmp_path) as dataset:
        assert len(dataset.notes["ignored_files"]) == 2
    (tmp_path / "broken.npz").rename(tmp_path / "node_feat.npz")
    refused("damaged zip archive", tmp_path)
