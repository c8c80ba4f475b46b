"""Format ogb: packed arrays and text streamed once; against numpy."""

from __future__ import annotations

import gzip
import io
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from memory_group import memory_group
from refusals import refused

import tiering
from benchmarks.replicas import replicate
from tiering.datasets.open import detect_format
from tiering.errors import InputError, MissingError
from tiering.formats.graph import Graph

RELATION = ("node", "to", "node")


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ogbn-papers100M in small."""
    folder = tmp_path_factory.mktemp("papers") / "data"
    replicate("ogbn-papers100m", folder, scale=2e-5)
    return folder / "papers100M-bin"


@pytest.fixture
def copied(papers: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(papers, tmp_path / "papers100M-bin"))


def edges_of(graph: Graph) -> Any:
    indptr, indices = graph.csc(RELATION)
    return np.stack((indices, np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))))


def rows_of(graph: Graph, node_type: str) -> Any:
    return graph.feature_table(node_type).open()


def test_deflated_archives_become_a_graph_with_its_features_inside(papers, tmp_path, tiering_cli):
    assert detect_format(papers) == "ogb"
    graph = tiering.import_graph(papers, tmp_path / "graph")
    with np.load(papers / "raw/data.npz") as data:
        pairs, rows = data["edge_index"], data["node_feat"]
    labels = np.load(papers / "raw/node-label.npz")["node_label"][:, 0]
    order = np.argsort(pairs[1], kind="stable")
    assert np.array_equal(edges_of(graph), pairs[:, order])
    assert np.array_equal(rows_of(graph, "node"), rows)
    assert np.array_equal(graph.labels("node"), np.where(np.isnan(labels), -1, labels))
    for theirs, ours in (("train", "train"), ("valid", "val"), ("test", "test")):
        ids = np.loadtxt(papers / f"split/time/{theirs}.csv.gz", dtype=np.int64, ndmin=1)
        assert np.array_equal(graph.split(ours, "node"), ids)
    tiering_cli("check", tmp_path / "graph", "--full").ok()


def test_packed_text_becomes_a_graph(tmp_path):
    specification = replicate("ogbn-arxiv", tmp_path / "data", scale=0.01)
    raw = tmp_path / "data/ogbn_arxiv/raw"
    graph = tiering.import_graph(tmp_path / "data", tmp_path / "graph", spec=str(specification))
    pairs = np.loadtxt(raw / "edge.csv.gz", delimiter=",", dtype=np.int64).T
    assert np.array_equal(edges_of(graph), pairs[:, np.argsort(pairs[1], kind="stable")])
    assert np.array_equal(rows_of(graph, "node"), np.loadtxt(raw / "node-feat.csv.gz", delimiter=",", dtype=np.float32))
    assert np.array_equal(graph.labels("node"), np.loadtxt(raw / "node-label.csv.gz").astype(np.int64))


def test_damage_and_claims_are_named(copied, tmp_path):
    path = copied / "raw/data.npz"
    with np.load(path) as data:
        arrays = {name: data[name] for name in data.files}

    def refused(match: str) -> None:
        with pytest.raises(InputError, match=match):
            tiering.import_graph(copied, tmp_path / "graph")
        assert not (tmp_path / "graph").exists()

    np.savez_compressed(path, **{**arrays, "num_edges_list": arrays["num_edges_list"] + 1})
    refused(r"edge_index: expected whole numbers of shape \(2, 32315\)")
    np.savez_compressed(path, **{**arrays, "node_feat": arrays["node_feat"][1:]})
    refused("node_feat: expected 2221 rows")
    np.savez_compressed(path, **{**arrays, "edge_index": arrays["edge_index"] + 2000})
    refused(r"edge_index: edge \d+: source id \d+: expected ids in 0\.\.2220")
    np.savez_compressed(path, **{**arrays, "edge_index": arrays["edge_index"] + (1 << 32)})
    refused(r"edge 0: source id 429\d+: expected ids")
    np.savez_compressed(path, **{name: array for name, array in arrays.items() if name != "num_nodes_list"})
    refused("there is no array num_nodes_list, found edge_index, node_feat")
    np.savez_compressed(path, **{**arrays, "edge_index": np.array([{}], object)})
    refused("edge_index: expected plain numbers")
    np.savez_compressed(path, **arrays)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    refused("expected the graph, a numpy archive")
    middle = bytearray(whole)
    middle[len(whole) // 2] ^= 0xFF
    path.write_bytes(middle)
    refused("damaged or truncated|expected|get")


def test_an_archive_that_claims_more_than_it_can_hold_is_stopped_at_once(copied, tmp_path):
    """A member of a few bytes whose header and directory speak of terabytes."""
    path, header = copied / "raw/data.npz", io.BytesIO()
    described = {"descr": "<f4", "fortran_order": False, "shape": (1 << 40, 128)}
    np.lib.format.write_array_header_1_0(header, described)
    with np.load(path) as data:
        arrays = {name: data[name] for name in data.files if name != "node_feat"}
    np.savez_compressed(path, **arrays)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("node_feat.npy", header.getvalue() + bytes(1000))
    with pytest.raises(
        InputError, match=r"node_feat: its header says float32 \(1099511627776, 128\).*archive says 1128"
    ):
        tiering.import_graph(copied, tmp_path / "graph")
    data = bytearray(path.read_bytes())
    at = data.rfind(b"node_feat.npy") - 46  # its entry in the directory: the size it is to become
    assert data[at : at + 4] == b"PK\x01\x02"
    data[at + 24 : at + 28] = (1 << 31).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(InputError, match="node_feat claims to be 2147483648 bytes"):
        tiering.import_graph(copied, tmp_path / "graph")


def test_text_of_more_rows_than_it_should_have_is_stopped(tmp_path):
    replicate("ogbn-arxiv", tmp_path / "data", scale=0.002)
    root = tmp_path / "data/ogbn_arxiv"
    features = root / "raw/node-feat.csv.gz"
    whole = gzip.decompress(features.read_bytes())
    features.write_bytes(gzip.compress(whole + whole))
    with pytest.raises(InputError, match=r"node-feat.csv.gz: expected 339 rows"):
        tiering.import_graph(root, tmp_path / "graph")
    features.write_bytes(gzip.compress(whole)[:-20])
    with pytest.raises(InputError, match=r"node-feat.csv.gz: expected features as gzip text"):
        tiering.import_graph(root, tmp_path / "graph")
    features.unlink()
    edges = root / "raw/edge.csv.gz"
    lines = edges.read_bytes()
    edges.write_bytes(lines + gzip.compress(b"1,2\n"))
    with pytest.raises(InputError, match=r"edge.csv.gz: expected 2332 edges, as num-edge-list.csv.gz says, found more"):
        tiering.import_graph(root, tmp_path / "graph")
    edges.write_bytes(gzip.compress(b"1,2\n"))
    with pytest.raises(InputError, match=r"edge.csv.gz: expected 2332 edges, as num-edge-list.csv.gz says, found 1;"):
        tiering.import_graph(root, tmp_path / "graph")
    edges.write_bytes(lines)
    (root / "split/other").mkdir()
    with pytest.raises(InputError, match="expected the folder of one scheme, found other, time"):
        tiering.import_graph(root, tmp_path / "graph")
    (root / "raw/edge.csv.gz").unlink()
    refused(r"expected raw/data.npz or raw/edge.csv.gz, found neither", root, "ogb", error=MissingError)


@pytest.mark.slow
def test_a_large_archive_is_streamed_in_little_memory(tmp_path):
    """250 MB of features and edges within 180 MiB and a tenth, which the kernel enforces."""
    replicate("ogbn-papers100m", tmp_path / "data", scale=0.003)
    with memory_group(198 << 20) as group:
        done = group.run("import", tmp_path / "data/papers100M-bin", "--out", tmp_path / "graph", "--memory", "180MiB")
        assert done.returncode == 0, done.stderr
    graph = tiering.open(tmp_path / "graph")
    assert isinstance(graph, Graph)
    with np.load(tmp_path / "data/papers100M-bin/raw/data.npz") as data:
        assert np.array_equal(rows_of(graph, "node"), data["node_feat"])


def test_features_that_begin_with_whole_numbers_and_gaps_are_numbers_all_the_same(tmp_path):
    replicate("ogbn-arxiv", tmp_path / "data", scale=0.002)
    file = tmp_path / "data/ogbn_arxiv/raw/node-feat.csv.gz"
    rows = [b"1,2,3"] * 338 + [b"0.5,nan,-7e-3"]
    file.write_bytes(gzip.compress(b"\n".join(rows) + b"\n"))
    graph = tiering.import_graph(tmp_path / "data/ogbn_arxiv", tmp_path / "graph")
    found = rows_of(graph, "node")
    assert np.array_equal(found[0], [1, 2, 3])
    assert np.array_equal(found[338], np.array([0.5, np.nan, -7e-3], np.float32), equal_nan=True)


def test_edges_in_fortran_order_are_those_in_c_order_and_features_in_it_are_refused(copied, tmp_path):
    path = copied / "raw/data.npz"
    with np.load(path) as data:
        arrays = {name: data[name] for name in data.files}
    expected = edges_of(tiering.import_graph(copied, tmp_path / "expected"))
    np.savez_compressed(path, **{**arrays, "edge_index": np.asfortranarray(arrays["edge_index"])})
    assert np.array_equal(edges_of(tiering.import_graph(copied, tmp_path / "graph")), expected)
    wrong = np.asfortranarray(arrays["edge_index"])
    wrong[1, 7] = 2221
    np.savez_compressed(path, **{**arrays, "edge_index": wrong})
    refused("edge_index: edge 7: destination id 2221: expected ids", copied)
    np.savez_compressed(path, **{**arrays, "node_feat": np.asfortranarray(arrays["node_feat"])})
    refused(r"node_feat: expected rows in C order, .* in Fortran order", copied)


def test_two_arrays_of_one_name_in_an_archive_are_refused(copied):
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(copied / "raw/data.npz", "a") as archive:
        archive.writestr("node_feat.npy", archive.read("node_feat.npy"))
    refused("the archive has two arrays named node_feat", copied)


def write_text(path: Path, values: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        np.savetxt(file, np.atleast_2d(values), "%.9g", ",")


def proteins_labels() -> Any:
    return np.random.default_rng(5).integers(0, 2, (20, 3))


@pytest.fixture
def proteins(tmp_path: Path) -> tuple[Path, Any, Any]:
    """The tree of ogbn-proteins in small: no features of nodes, 3 labels each, 8 features of each edge."""
    random = np.random.default_rng(4)
    pairs, rows = random.integers(0, 20, (90, 2)), random.random((90, 8), np.float32)
    root = tmp_path / "ogbn_proteins"
    for name, values in {
        "edge": pairs, "edge-feat": rows, "num-node-list": 20, "num-edge-list": 90,
        "node-label": proteins_labels(), "node_species": random.integers(0, 9, (20, 1)),
    }.items():  # fmt: skip
        write_text(root / f"raw/{name}.csv.gz", values)
    for name, ids in {"train": [3, 1, 19], "valid": [0], "test": [7, 8]}.items():
        write_text(root / f"split/species/{name}.csv.gz", np.array(ids)[:, None])
    return root, pairs, rows


def check_proteins(graph: Graph, pairs: Any, rows: Any, texts: bool = True) -> None:
    order = np.argsort(pairs[:, 1], kind="stable")
    assert np.array_equal(edges_of(graph), pairs[order].T)
    table = graph.edge_feature_table(RELATION)
    assert table is not None and table.dtype == rows.dtype.name
    assert np.array_equal(table.open(), rows[order])
    labels = graph.labels("node")
    assert (labels.shape, graph.num_classes("node")) == ((20, 3), 3)
    assert labels.dtype == (np.float32 if texts else np.float64)
    assert np.array_equal(labels, proteins_labels())
    assert graph.feature_table("node") is None
    assert [graph.split(name, "node").tolist() for name in ("train", "val", "test")] == [[3, 1, 19], [0], [7, 8]]
    assert "warnings" not in graph.manifest.body["changes"]
    assert tiering.check(graph.path, "full") == []


def test_features_of_edges_and_labels_of_several_columns_are_read(proteins, tmp_path):
    root, pairs, rows = proteins
    graph = tiering.import_graph(root, tmp_path / "graph")
    check_proteins(graph, pairs, rows)
    (ignored,) = graph.manifest.changes["ignored_files"]
    assert ignored.endswith("node_species.csv.gz")
    for given, found in ((rows[:-1], "89"), (np.concatenate((rows, rows)), "more")):
        write_text(root / "raw/edge-feat.csv.gz", given)
        refused(f"edge-feat.csv.gz: expected 90 rows, .* found {found}; get", root)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_the_same_from_archives(proteins, tmp_path, dtype):
    root, pairs, rows = proteins
    labels = np.loadtxt(root / "raw/node-label.csv.gz", delimiter=",")
    for file in (root / "raw").iterdir():
        file.unlink()
    data = {"edge_index": pairs.T, "num_nodes_list": [20], "num_edges_list": [90], "node_year": np.zeros(20)}
    np.savez(root / "raw/data.npz", edge_feat=rows.astype(dtype), **data)
    np.savez(root / "raw/node-label.npz", node_label=labels)
    graph = tiering.import_graph(root, tmp_path / "graph")
    check_proteins(graph, pairs, rows.astype(dtype), texts=False)
    assert graph.manifest.body["changes"]["ignored_arrays"] == [f"{root / 'raw/data.npz'}: node_year"]
    np.savez(root / "raw/data.npz", edge_feat=rows[1:], **data)
    refused(r"edge_feat: expected 90 rows, .* found", root)
    np.savez(root / "raw/data.npz", edge_feat=np.asfortranarray(rows), **data)
    refused("edge_feat: expected rows in C order", root)


MAG = {"author": 40, "field_of_study": 7, "institution": 5, "paper": 60}
TRIPLETS = [("author", "affiliated_with", "institution"), ("paper", "cites", "paper"), ("paper", "has_topic", "author")]


@pytest.fixture
def mag(tmp_path: Path) -> Path:
    """ogbn-mag in small, as it is downloaded."""
    folder, random = tmp_path / "ogbn_mag", np.random.default_rng(0)

    def put(name: str, rows: Any) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        lines = "".join(",".join(map(str, np.atleast_1d(row))) + "\n" for row in rows)
        (folder / name).write_bytes(gzip.compress(lines.encode()))

    put("raw/num-node-dict.csv.gz", [list(MAG), list(MAG.values())])
    put("raw/triplet-list.csv.gz", TRIPLETS)
    for src, name, dst in TRIPLETS:
        pairs = np.stack((random.integers(0, MAG[src], 90), random.integers(0, MAG[dst], 90)), axis=1)
        put(f"raw/relations/{src}___{name}___{dst}/edge.csv.gz", pairs)
        put(f"raw/relations/{src}___{name}___{dst}/num-edge-list.csv.gz", [90])
    put("raw/node-feat/paper/node-feat.csv.gz", random.random((60, 4)).round(4))
    put("raw/node-feat/paper/node_year.csv.gz", random.integers(2010, 2020, 60))
    put("raw/node-label/paper/node-label.csv.gz", random.integers(0, 9, 60))
    put("split/time/nodetype-has-split.csv.gz", [list(MAG), [node_type == "paper" for node_type in MAG]])
    for name, ids in (("train", range(30)), ("valid", range(30, 45)), ("test", range(45, 60))):
        put(f"split/time/paper/{name}.csv.gz", ids)
    return folder


def test_types_and_relations_in_folders_of_their_own(mag, tmp_path):
    graph = tiering.import_graph(mag, tmp_path / "graph", edge_ids=True)
    assert {node_type: graph.num_nodes(node_type) for node_type in graph.node_types} == MAG
    for src, name, dst in TRIPLETS:
        pairs = np.loadtxt(mag / f"raw/relations/{src}___{name}___{dst}/edge.csv.gz", dtype=int, delimiter=",")
        indptr, indices = graph.csc((src, name, dst))
        found = np.stack((indices, np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))), axis=1)
        assert np.array_equal(found, pairs[np.argsort(pairs[:, 1], kind="stable")])
    rows = np.loadtxt(mag / "raw/node-feat/paper/node-feat.csv.gz", dtype=np.float32, delimiter=",")
    assert np.array_equal(rows_of(graph, "paper"), rows)
    labels = np.loadtxt(mag / "raw/node-label/paper/node-label.csv.gz", dtype=int)
    assert np.array_equal(graph.labels("paper"), labels) and np.array_equal(
        graph.split("val", "paper"), np.arange(30, 45)
    )
    assert [Path(name).name for name in graph.summary()["changes"]["ignored_files"]] == ["node_year.csv.gz"]

    edges = mag / "raw/relations/paper___cites___paper/edge.csv.gz"
    edges.write_bytes(gzip.compress(gzip.decompress(edges.read_bytes()).replace(b"\n", b"1\n", 1)))
    with pytest.raises(InputError, match=r"edge.csv.gz: relation paper:cites:paper: edge 0: .* is outside 0\.\.59"):
        tiering.import_graph(mag, tmp_path / "wrong")
    (mag / "raw/triplet-list.csv.gz").write_bytes(b"paper,cites")
    refused("expected types as gzip text", mag)
