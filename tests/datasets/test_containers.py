"""Directories that other programs write, matrices in memory, and kinds of files that say how to convert them."""

from __future__ import annotations

import bz2
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
import scipy.sparse
from refusals import refused

import tiering
from tiering.datasets.open import open_dataset
from tiering.errors import InputError

MATRIX = scipy.sparse.coo_array((np.ones(3), ([0, 1, 1], [1, 2, 2])), shape=(4, 4))
TABLE = pa.table({"year": [1, 1, 2], "month": ["a", "b", "b"], "src": [0, 1, 2], "dst": [1, 2, 0]})


def _pairs(source: Any, **options: Any) -> list[tuple[int, int]]:
    with open_dataset(source, **options) as data:
        return sorted(zip(data.edges[0].src.tolist(), data.edges[0].dst.tolist(), strict=True))


def test_partitions_of_parquet(tmp_path: Path) -> None:
    pa_parquet.write_to_dataset(TABLE, tmp_path, partition_cols=["year", "month"])
    (tmp_path / "_SUCCESS").touch()
    pa_parquet.write_metadata(TABLE.schema, tmp_path / "_metadata")
    assert _pairs(tmp_path) == [(0, 1), (1, 2), (2, 0)]
    with open_dataset(tmp_path) as data:
        assert data.notes["ignored_columns"] == ["year", "month"]
        assert not [file for file in data.notes["ignored_files"] if "=" in file]


def test_a_directory_of_huggingface(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "README.md").write_text("card")
    for k in range(2):
        pa_parquet.write_table(TABLE.slice(k, 1), tmp_path / f"data/train-{k:05}-of-00002.parquet")
    assert _pairs(tmp_path) == [(0, 1), (1, 2)]


def test_a_directory_of_konect(tmp_path: Path) -> None:
    (tmp_path / "out.toy").write_text("% asym positive\n% 2 3 3\n1 2 1 77\n2 3 1 78\n")
    (tmp_path / "meta.toy").write_text("name: Toy\n")
    (tmp_path / "README.toy").write_text("Toy\n")
    assert _pairs(tmp_path, first_id=1) == [(0, 1), (1, 2)]


def test_a_directory_with_one_file_of_dgl(tmp_path: Path) -> None:
    dgl = pytest.importorskip("dgl")
    dgl.save_graphs(str(tmp_path / "graph.bin"), [dgl.graph(([0, 1], [1, 2]))])
    (tmp_path / "notes.md").write_text("x")
    assert _pairs(tmp_path) == [(0, 1), (1, 2)]


@pytest.mark.parametrize("kind", ["coo", "csr", "csc", "torch", "torch csr", "torch csc"])
def test_sparse_matrices_in_memory(tmp_path: Path, kind: str) -> None:
    torch = pytest.importorskip("torch")
    if kind.startswith("torch"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            matrix = torch.sparse_coo_tensor(torch.tensor([[0, 1, 1], [1, 2, 2]]), torch.ones(3), (4, 4))
            matrix = matrix if kind == "torch" else getattr(matrix.coalesce(), f"to_sparse_{kind[-3:]}")()
    else:
        matrix = MATRIX.asformat(kind)
    expected = [(0, 1), (1, 2), (1, 2)] if kind in ("coo", "torch") else [(0, 1), (1, 2)]
    assert _pairs(matrix) == expected
    assert tiering.import_graph(matrix, tmp_path / "g").num_nodes() == 4


def test_a_matrix_of_two_kinds_of_nodes_is_refused() -> None:
    refused("expected a square matrix, .* found shape .2, 3.; write edges between", scipy.sparse.eye_array(2, 3))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a.h5", "HDF5 is .* h5py"), ("a.graphml", "nx.read_graphml"), ("a.gml", "nx.read_gml"),
        ("a.tar.gz", "tar -xf"),
        ("a.zip", "unzip"), ("a.PICKLE", "pickle.load"), ("a.xlsx", "read_excel"), ("a.sqlite", "sqlite3.connect"),
        ("edges.json", "read_json"), ("a.jsonl", "lines=True"), ("a.nt", "awk .*triples.tsv"),
        ("a.ttl", "rdflib.*triples.nt"), ("a.avro", "fastavro"), ("a.safetensors", "load_file"), ("a.dot", "nx_pydot"),
    ],
)  # fmt: skip
def test_what_is_not_read_says_how_to_convert_it(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / name).write_text("x")
    for source in (tmp_path / name, tmp_path):
        refused(f"is not a format that tiering reads; convert it: .*{words}|{words}", source)


def test_a_packed_text_says_how_to_unpack_it(tmp_path: Path) -> None:
    (tmp_path / "e.csv.bz2").write_bytes(bz2.compress(b"1,2\n"))
    refused(r"bzip2 data is .*: bunzip2 -k .*e\.csv\.bz2", tmp_path / "e.csv.bz2")


def test_the_conversion_of_graphml_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    networkx = pytest.importorskip("networkx")
    networkx.write_graphml(networkx.path_graph(4), tmp_path / "a.graphml")
    with pytest.raises(InputError, match="convert it: ") as error:
        open_dataset(tmp_path / "a.graphml")
    monkeypatch.chdir(tmp_path)
    subprocess.run([sys.executable, "-c", str(error.value).split("convert it: ")[1]], check=True)
    indptr, indices = tiering.import_graph(tmp_path / "edges.npz", tmp_path / "g").csc()
    assert (indptr.tolist(), indices.tolist()) == ([0, 1, 3, 5, 6], [1, 0, 2, 1, 3, 2])
