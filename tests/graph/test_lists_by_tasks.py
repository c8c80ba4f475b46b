"""Lists of neighbors (CSC, CSR, a matrix of scipy's) give the same graph by tasks as without."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from toy_datasets import tree_bytes

import tiering
from tiering.run.job import ClusterOptions


@pytest.mark.parametrize("form", ["csc", "csr", "npz"])
@pytest.mark.parametrize("shards", [1, 3, 7])
def test_lists(tmp_path, form, shards):
    matrix = scipy.sparse.random(300, 300, 0.02, "csr" if form == "csr" else "csc", random_state=1)
    source = tmp_path / "data"
    source.mkdir()
    if form == "npz":
        source = source / "matrix.npz"
        scipy.sparse.save_npz(source, matrix)
    else:
        np.save(source / "indptr.npy", matrix.indptr.astype(np.int64))
        np.save(source / "indices.npy", matrix.indices)
    asked = {} if form == "npz" else {"format": form}
    expected = tiering.import_graph(source, tmp_path / "plain", **asked)
    found = tiering.import_graph(source, tmp_path / "tasks", cluster=ClusterOptions(shards=shards, workers=2), **asked)
    assert np.array_equal(expected.to_scipy().toarray(), matrix.toarray() != 0)
    assert found.digest == expected.digest
    assert tree_bytes(tmp_path / "tasks") == tree_bytes(tmp_path / "plain")
