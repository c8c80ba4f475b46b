"""Values of graphs of PyG and DGL that are no dense arrays, or have names that are not read: taken, refused or said."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refused

import tiering
from tiering.datasets.arrays import dense_array
from tiering.datasets.import_context import Scratch
from tiering.datasets.open import open_dataset
from tiering.errors import BudgetError, InputError
from tiering.formats.graph import Graph
from tiering.memory import parse_memory

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # torch says that sparse and nested tensors are new
torch = pytest.importorskip("torch")
sparse = pytest.importorskip("scipy.sparse")

EDGES = torch.tensor([[0, 1, 2, 0], [1, 2, 0, 3]])
BY_DESTINATION = np.array([2, 0, 1, 3])
"""Positions of the edges of `EDGES` in the order of their destinations."""
ROWS = np.array([[1.0, 0], [0, 2.5], [0, 0], [-3, 4]], np.float32)
COLUMN = np.array([2, 0, 0, 1])


class TorchSparse:
    """A sparse matrix with the conversion that the matrices of torch_sparse have."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def to_torch_sparse_coo_tensor(self) -> Any:
        return torch.from_numpy(self.values).to_sparse()

    def nnz(self) -> int:
        return 4


SPARSE: dict[str, Callable[[Any], Any]] = {
    "coo": lambda a: torch.from_numpy(a).to_sparse(),
    "csr": lambda a: torch.from_numpy(a).to_sparse_csr(),
    "csc": lambda a: torch.from_numpy(a).to_sparse_csc(),
    "bsr": lambda a: torch.from_numpy(a).to_sparse_bsr((2, 2)),
    "bsc": lambda a: torch.from_numpy(a).to_sparse_bsc((2, 2)),
    "hybrid": lambda a: torch.from_numpy(a).to_sparse(1),
    "with a gradient": lambda a: torch.from_numpy(a).to_sparse().requires_grad_(),
    "torch_sparse": TorchSparse,
    "scipy csr": lambda a: sparse.csr_matrix(a),
    "scipy coo": lambda a: sparse.coo_array(a),
    "scipy lil": lambda a: sparse.lil_matrix(a),
}
LISTED: dict[str, Callable[[Any], Any]] = {
    "list": lambda a: a.tolist(),
    "tuple": lambda a: tuple(map(tuple, a.tolist())) if a.ndim == 2 else tuple(a.tolist()),
    "tensors": lambda a: list(torch.from_numpy(a)),
    "arrays": lambda a: list(a),
    "objects": lambda a: a.astype(object),
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
}


@pytest.fixture
def pyg() -> Any:
    return pytest.importorskip("torch_geometric.data")


@pytest.fixture
def dgl() -> Any:
    return pytest.importorskip("dgl")


def hetero(pyg: Any, nodes: dict[str, Any], edges: dict[str, Any]) -> Any:
    data = pyg.HeteroData()
    data["node"].update(nodes)
    data["node", "to", "node"].update({"edge_index": EDGES, **edges})
    return data


def imported(source: Any, out: Path) -> Graph:
    graph = tiering.import_graph(source, out, force=True)
    assert tiering.check(graph.path, "full") == []
    return graph


def same(graph: Graph, rows: bool = True) -> None:
    """The graph holds `ROWS` as features of nodes and edges, and `COLUMN` as labels, types and weights."""
    relation = graph.relations[0]
    if rows:
        np.testing.assert_array_equal(graph.feature_table("node").open(), ROWS)
        np.testing.assert_array_equal(graph.edge_data(relation)["feat"], ROWS[BY_DESTINATION])
    np.testing.assert_array_equal(graph.labels("node"), COLUMN)
    np.testing.assert_array_equal(graph.edge_data(relation)["weight"], COLUMN[BY_DESTINATION])
    np.testing.assert_array_equal(graph.edge_data(relation)["type"], COLUMN[BY_DESTINATION])
    np.testing.assert_array_equal(graph.split("train", "node"), [0, 3])


@pytest.mark.parametrize("kind", [*SPARSE, *LISTED])
def test_values_that_are_no_dense_arrays_are_made_ones(pyg: Any, tmp_path: Path, kind: str) -> None:
    make = {**SPARSE, **LISTED}[kind]
    flat = make if kind in (*LISTED, "coo") else lambda a: a.tolist()  # most sparse ones have two axes
    nodes = {"x": make(ROWS), "y": flat(COLUMN), "train_mask": flat(np.array([True, False, False, True]))}
    edges = {"edge_attr": make(ROWS), "edge_weight": flat(COLUMN), "edge_type": flat(COLUMN)}
    for source in (pyg.Data(edge_index=EDGES, **nodes, **edges), hetero(pyg, nodes, edges)):
        same(imported(source, tmp_path / "graph"))
        if kind in ("list", "tuple", "tensors", "arrays", "coo", "csr", "csc", "hybrid"):
            torch.save(source, tmp_path / "a.pt")
            same(imported(tmp_path / "a.pt", tmp_path / "graph"))


def test_a_sparse_value_that_fits_no_memory_is_refused_by_its_name(pyg: Any) -> None:
    wide = torch.sparse_coo_tensor(torch.tensor([[0], [0]]), torch.ones(1), (4, 2**40))
    for name, value in (("x", wide), ("edge_attr", wide), ("x", sparse.coo_matrix((4, 2**40)))):
        with pytest.raises(BudgetError, match=rf"{name} of node.*, a sparse matrix, made dense need .* give memory"):
            open_dataset(pyg.Data(edge_index=EDGES, **{name: value}))


def test_sparse_values_share_one_budget() -> None:
    scratch = Scratch(None, parse_memory("1GiB"))
    value, left = sparse.coo_matrix((1000, 1000)), scratch.budget.left()
    dense_array(value, "x", scratch)
    assert scratch.budget.left() == left - 8_000_000


@pytest.mark.parametrize("how", ["file", "in memory", "dgl"])
def test_bfloat16_counts_as_the_numbers_it_stands_for(pyg: Any, dgl: Any, tmp_path: Path, how: str) -> None:
    numbers = torch.tensor([0.5, 0, 2, 1]).bfloat16()
    source: Any = pyg.Data(edge_index=EDGES, y=torch.from_numpy(COLUMN).bfloat16(), edge_weight=numbers)
    if how == "file":
        torch.save(source, tmp_path / "a.pt")
        source = tmp_path / "a.pt"
    elif how == "dgl":
        source = dgl.graph(tuple(EDGES))
        source.ndata["label"], source.edata["weight"] = torch.from_numpy(COLUMN).bfloat16(), numbers
    graph = imported(source, tmp_path / "graph")
    np.testing.assert_array_equal(graph.labels("node"), COLUMN)
    np.testing.assert_array_equal(graph.edge_data(graph.relations[0])["weight"], numbers.float()[BY_DESTINATION])


def unusual_tensors() -> dict[str, tuple[Any, str]]:
    """Tensors that no dense array can stand for -> what is said of them."""
    ragged = [torch.ones(2), torch.ones(3)]
    return {
        "float8": (torch.ones(4, 2).to(torch.float8_e4m3fn), r"found float8_e4m3fn; give tensor\.to\("),
        "half complex": (torch.ones(4, 2, dtype=torch.complex32), "found complex32"),
        "quantized": (torch.quantize_per_tensor(torch.ones(4, 2), 0.1, 0, torch.qint8), r"qint8; .*dequantize"),
        "meta": (torch.ones(4, 2, device="meta"), "numbers as a dense array, found Tensor: .*meta"),
        "nested": (torch.nested.nested_tensor(ragged), "numbers as a dense array, found "),
        "jagged": (torch.nested.nested_tensor(ragged, layout=torch.jagged), "numbers as a dense array, found "),
        "complex": (torch.ones(4, dtype=torch.complex64), "complex64"),
        "conjugate": (torch.ones(4, dtype=torch.complex64).conj(), "complex64"),
    }


@pytest.mark.parametrize("name", ["x", "y", "train_mask", "edge_attr", "edge_weight", "edge_index", "feat", "time"])
def test_tensors_that_no_array_can_stand_for_are_named(pyg: Any, name: str) -> None:
    for value, words in unusual_tensors().values():
        nodes = {} if name.startswith("edge") else {name: value}
        edges = {name: value} if name.startswith("edge") else {}
        for source in (pyg.Data(**{"edge_index": EDGES, **nodes, **edges}), hetero(pyg, nodes, edges)):
            if name == "time":  # nobody reads it
                assert open_dataset(source).notes["ignored_arrays"]
                continue
            refused(f"{name} of node.*: expected .*{words}", source)


def test_a_negated_view_is_taken_as_what_it_shows(pyg: Any, tmp_path: Path) -> None:
    value = torch.complex(torch.ones(4, 2), torch.from_numpy(-ROWS)).conj().imag
    graph = imported(pyg.Data(edge_index=EDGES, x=value), tmp_path / "graph")
    np.testing.assert_array_equal(graph.feature_table("node").open(), ROWS)


@pytest.mark.parametrize(("values", "words"), [
    ({"x": [[1.0], [1.0, 2.0], [1.0], [1.0]]}, "x of node: expected numbers as a dense array, found list"),
    ({"x": list("abcd")}, "x of node: expected numbers as a dense array, found str"),
    ({"y": [0, None, 1, 1]}, "y of node: expected numbers as a dense array"),
    ({"y": {0: 1}}, "y of node: expected numbers as a dense array, found dict"),
    ({"y": "cora"}, "y of node: expected numbers"), ({"y": 3}, "y of node: expected one label per node"),
    ({"y": np.ma.masked_array(COLUMN, COLUMN == 2)}, r"y of node: expected a plain array.*filled\(\)"),
    ({"edge_weight": np.ones(4, np.longdouble)}, "edge_weight of node:to:node: expected numbers"),
    ({"edge_weight": [1.0, 2.0]}, "edge_weight of node:to:node: expected one value for each of 4 edges"),
    ({"num_nodes": "5"}, "num_nodes of node: expected numbers"),
    ({"num_nodes": [4, 5]}, "num_nodes of node: expected a whole number"),
    ({"y": [2**53 + 1, 0.5, 1, 1]}, r"y of node: 9007199254740993 is rounded to .* next to a fraction"),
    ({"edge_index": [(0, 1), (1, 2), (2, 0)]}, r"edge_index of .*shape \(2, E\).*int64 \(3, 2\).*transpose"),
    ({"edge_index": [[0, 1], [1]]}, "edge_index of node:to:node: expected numbers as a dense array"),
    ({"edge_index": "0 1"}, "edge_index of node:to:node: expected numbers"),
    ({"edge_index": [[0.0], [1.0]]}, r"edge_index of .*found float64 \(2, 1\)"),
    ({"edge_index": torch.eye(4).to_sparse()}, "expected edge_index, found a sparse edge_index; for a sparse adj_t"),
    ({"edge_index": sparse.eye(4)}, "expected edge_index, found a sparse edge_index"),
])  # fmt: skip
def test_values_without_numbers_are_refused_by_their_name(pyg: Any, values: dict[str, Any], words: str) -> None:
    refused(words, pyg.Data(**{"edge_index": EDGES, **values}))


@pytest.mark.parametrize("make", [list, tuple, np.array])
def test_edges_in_lists_are_taken(pyg: Any, tmp_path: Path, make: Callable[[Any], Any]) -> None:
    torch.save({"edge_index": make(EDGES.tolist())}, tmp_path / "a.pt")
    for source in [tmp_path / "a.pt", *([] if make is np.array else [pyg.Data(edge_index=make(tuple(EDGES)))])]:
        with open_dataset(source) as dataset:
            assert [dataset.edges[0].src.tolist(), dataset.edges[0].dst.tolist()] == EDGES.tolist()
    with open_dataset(pyg.Data(edge_index=[[], []], num_nodes=2)) as dataset:
        assert dataset.nodes["node"].num_nodes == 2


@pytest.mark.parametrize("number", [6, np.int64(6), torch.tensor(6), torch.tensor([6]), [6]])
def test_the_number_of_nodes_counts_in_any_form(pyg: Any, tmp_path: Path, number: Any) -> None:
    torch.save({"edge_index": EDGES, "num_nodes": number}, tmp_path / "a.pt")
    for source in (pyg.Data(edge_index=EDGES, num_nodes=number), tmp_path / "a.pt"):
        with open_dataset(source) as dataset:
            assert dataset.nodes["node"].num_nodes == 6


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
def test_a_mask_of_zeros_and_ones_is_a_mask(pyg: Any, dgl: Any, dtype: Any) -> None:
    mask = torch.tensor([1, 0, 0, 1]).to(dtype)
    graph = dgl.graph(tuple(EDGES))
    graph.ndata["train_mask"] = mask
    for source in (pyg.Data(edge_index=EDGES, train_mask=mask), graph):
        with open_dataset(source) as dataset:
            assert dataset.nodes["node"].splits["train"].tolist() == [0, 3]
    with pytest.raises(InputError, match=r"train_mask of node: expected a (boolean )?mask.* 4 .*found \w+ \(3,\)"):
        open_dataset(pyg.Data(edge_index=EDGES, num_nodes=4, train_mask=mask[:3]), num_nodes=4)


def test_ids_under_the_name_of_a_mask_are_refused(pyg: Any) -> None:
    for ids in ([2, 0, 1, 3], [-1, 0, 1, 1]):
        with pytest.raises(InputError, match=r"train_mask of node: expected a mask of .* 0 or 1 for .* name it"):
            open_dataset(pyg.Data(edge_index=EDGES, train_mask=torch.tensor(ids)))
    with open_dataset(pyg.Data(edge_index=EDGES, train_idx=torch.tensor([1, 0]))) as dataset:
        assert dataset.nodes["node"].splits["train"].tolist() == [1, 0]


NOT_READ = {
    "time": torch.arange(4), "pos": torch.rand(4, 2), "year": list(range(4)), "text": list("abcd"), "name": "toy",
    "n_id": sparse.eye(4), "feat": torch.ones(4, 3),
}  # fmt: skip


@pytest.mark.parametrize("how", ["data", "hetero", "data file", "hetero file", "dict file"])
def test_what_is_not_read_is_named_on_standard_error(pyg, tmp_path, capsys, how):
    nodes = {"x": torch.ones(4, 2), **NOT_READ}
    if how.endswith("file"):
        del nodes["n_id"]  # which the reader of such files refuses
    if "hetero" in how:
        data = hetero(pyg, nodes, {"edge_time": [0] * 4})
        data.owner = "me"
    else:
        data = pyg.Data(edge_index=EDGES, **nodes, edge_time=[0] * 4)
    source: Any = data
    if how.endswith("file"):
        source = tmp_path / "a.pt"
        torch.save(data.to_dict() if how == "dict file" else data, source)
    with open_dataset(source) as dataset:
        ignored = dataset.notes["ignored_arrays"]
    (line,) = capsys.readouterr().err.splitlines()
    expected = {f"{name} of node" for name in nodes if name != "x"} | {"edge_time of node:to:node"}
    expected |= {"owner of the graph"} if "hetero" in how else set()
    assert {name.rpartition(": ")[2] for name in ignored} == expected
    assert all(name in line for name in expected) and line.startswith("note: ") and "rename" in line


def test_what_dgl_has_besides_is_named(dgl: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = dgl.graph(tuple(EDGES))
    graph.ndata["year"], graph.edata["when"] = torch.arange(4), torch.arange(4)
    dgl.save_graphs(str(tmp_path / "a.bin"), [graph], {"glabel": torch.tensor([1])})
    for source, more in ((graph, ""), (tmp_path / "a.bin", "glabel of the file")):
        open_dataset(source).close()
        (line,) = capsys.readouterr().err.splitlines()
        assert "year of node" in line and "when of node:to:node" in line and more in line


def test_where_all_is_read_nothing_is_said(pyg: Any, capsys: pytest.CaptureFixture[str]) -> None:
    data = pyg.Data(edge_index=EDGES, x=torch.ones(4, 2), y=torch.zeros(4), train_mask=torch.ones(4) > 0, val_mask=None)
    with open_dataset(data) as dataset:
        assert "ignored_arrays" not in dataset.notes
    assert capsys.readouterr().err == ""


def test_the_digest_tells_lists_apart(pyg: Any) -> None:
    digests = []
    for value in ([0, 1, 1, 0], [0, 1, 1, 0], [0, 1, 1, 1]):
        with open_dataset(pyg.Data(edge_index=EDGES, y=value, time=torch.rand(4))) as dataset:
            digests.append(dataset.notes["content"])
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("name", ["node_features.npy", "x.npy", "labels.npy", "time.npy"])
def test_numpy_files_of_other_names_are_said(tmp_path: Path, tiering_cli: Callable[..., Any], name: str) -> None:
    folder = tmp_path / "toy"
    folder.mkdir()
    np.save(folder / "edge_index.npy", EDGES.numpy())
    assert "not imported" not in tiering_cli("import", folder, "--out", tmp_path / "first").ok().err
    np.save(folder / name, ROWS)
    said = tiering_cli("import", folder, "--out", tmp_path / "graph").ok()
    assert said.err.startswith(
        f"note: not imported: {folder / name}; the import reads node_feat.npy, node_label.npy, train_idx"
    )
    assert re.search(f"^not read +files {name}$", said.out, re.MULTILINE)
