"""Format mtx: the same entries as scipy reads, and files that are not as their header says."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from tiering.datasets import open_dataset, text

HEAD = "%%MatrixMarket matrix coordinate {} {}\n"
PATTERN, REAL = HEAD.format("pattern", "general"), HEAD.format("real", "general")


def read(path: Path, **options: Any) -> tuple[int, list[tuple[float, ...]]]:
    """Nodes, and edges with their weights if there are some."""
    with open_dataset(path, **options) as dataset:
        assert dataset.format == "mtx"
        edges = dataset.edges[0]
        columns = [edges.src, edges.dst, *edges.data.values()]
        return dataset.nodes["node"].num_nodes, list(zip(*(column.tolist() for column in columns), strict=True))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_edges_are_those_that_scipy_reads(data: st.DataObject) -> None:
    nodes, count = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 40))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    dense = np.zeros((nodes, nodes))
    dense[tuple(random.integers(0, nodes, (2, count)))] = random.integers(1, 9, count)
    symmetry = data.draw(st.sampled_from(["general", "symmetric"]))
    if symmetry != "general":
        dense = np.tril(dense) + np.tril(dense, -1).T
    field = data.draw(st.sampled_from(["pattern", "real", "integer"]))
    if not dense.any():
        return
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "graph.mtx"
        matrix = scipy.sparse.coo_matrix(dense if field == "real" else dense.astype(np.int64))
        scipy.io.mmwrite(path, matrix, comment="made\nhere", field=field, symmetry=symmetry)
        expected = scipy.sparse.coo_matrix(scipy.io.mmread(path))
        if data.draw(st.booleans()):
            path.with_suffix(".mtx.gz").write_bytes(gzip.compress(path.read_bytes()))
            path = path.with_suffix(".mtx.gz")
        weighted = field != "pattern" and data.draw(st.booleans())
        before, text.BLOCK_BYTES = text.BLOCK_BYTES, data.draw(st.sampled_from([text.BLOCK_BYTES, 64]))
        try:
            found = read(path, **({"weight_column": "value"} if weighted else {}))
        finally:
            text.BLOCK_BYTES = before
        columns = [expected.row, expected.col, *([expected.data] if weighted else [])]
        assert found[0] == nodes
        assert sorted(found[1]) == sorted(zip(*(column.tolist() for column in columns), strict=True))


def test_an_entry_of_a_symmetric_matrix_is_followed_by_its_reverse(tmp_path: Path) -> None:
    path = tmp_path / "a.mtx"
    path.write_text(HEAD.format("Real", "Symmetric") + "%\n\n  4 4 3\n3 1 0.5\n2 2 7\n4 1 1e1\n")
    assert read(path) == (4, [(2, 0), (0, 2), (1, 1), (3, 0), (0, 3)])
    assert read(path, weight_column="value")[1][:3] == [(2, 0, 0.5), (0, 2, 0.5), (1, 1, 7.0)]
    with open_dataset(path) as dataset:
        assert dataset.notes["matrix"]["ignored_columns"] == ["value"]


def test_a_file_of_another_name_is_recognised_by_its_first_line(tmp_path: Path) -> None:
    path = tmp_path / "edges.txt"
    path.write_text(PATTERN + "2 2 1\n1 2\n")
    assert read(path) == (2, [(0, 1)])
    refused("counts from 1; give --format mtx", path, "edgelist")


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("", {}, "expected a first line of %%MatrixMarket"),
        ("1 2\n", {}, "expected a first line of %%MatrixMarket"),
        ("%%MatrixMarket matrix array real general\n2 2\n1\n", {}, "expected a first line of .* found .* array"),
        (HEAD.format("complex", "general") + "1 1 1\n1 1 1 1\n", {}, "pattern/real/integer"),
        (HEAD.format("real", "hermitian") + "1 1 1\n1 1 1\n", {}, "general/symmetric, found .* hermitian"),
        (PATTERN, {}, "expected numbers of rows, columns and entries, found"),
        (PATTERN + "3 3\n", {}, "line 2: expected numbers of rows, columns and entries"),
        (PATTERN + "%\n3 4 1\n1 1\n", {}, "line 3: expected a square matrix.*3 x 4"),
        (PATTERN + "3 3 0\n", {}, "expected edges, found none"),
        (PATTERN + "3 3 2\n1 1\n", {}, "expected 2 entries as its header says, found 1"),
        (PATTERN + "3 3 1\n1 1\n1 2\n", {}, "expected 1 entries .* found 2"),
        (PATTERN + "3 3 2\n1 1\n0 2\n", {}, "entry 2: expected a row of 1 to 3, found 0"),
        (PATTERN + "3 3 1\n1 4\n", {}, "entry 1: expected a column of 1 to 3, found 4"),
        (PATTERN + "3 3 1\n1 x\n", {}, "line 3: expected a whole number .*found 'x'"),
        (PATTERN + "%\n3 3 2\n1 2\n1 2 5\n", {}, "line 5: expected 2 fields, found 3"),
        (REAL + "3 3 1\n1 2 -1\n", {"weight_column": "value"}, "0 or more, found -1.0"),
        (HEAD.format("real", "skew-symmetric") + "3 3 1\n2 1 1\n", {}, "general/symmetric, found .* skew-symmetric"),
        (PATTERN + "3 3 1\n1 2\n", {"weight_column": "value"}, "this one has no values"),
        (REAL + "3 3 1\n1 2 1\n", {"weight_column": "w"}, "found 'w'; say value"),
        (PATTERN + "3 3 1\n1 2\n", {"num_nodes": 4}, "expected 4 nodes of type node as in --num-nodes, found 3"),
        (PATTERN + "999999999999999999 999999999999999999 1\n1 2\n", {}, "up to 2.48"),
    ],
)
def test_files_that_are_not_as_their_header_says(tmp_path, content, options, message):
    path = tmp_path / "a.mtx"
    path.write_text(content)
    refused(message, path, **options)
