"""Formats ``pyg``: `Data` or `HeteroData` in a file of ``torch.save``; ``dgl``: one graph, of ``dgl.save_graphs``.

PyG's are read without PyG and without running anything (`tiering.formats.torch_file`); DGL itself reads its files.
"""

from __future__ import annotations

import importlib
import os
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tiering.artifacts.manifest import relation_key
from tiering.artifacts.storage import entries, file_exists, is_folder
from tiering.datasets.arrays import SourceArray, is_sparse
from tiering.datasets.import_context import NODE, RELATION, Detector, ImportContext, Reader, files_that, one_line
from tiering.datasets.named_arrays import NAMED_OPTIONS, NamedArrays
from tiering.errors import BudgetError, CapabilityError, InputError, MissingError, quoted
from tiering.formats.dataset import Dataset, EdgeData
from tiering.formats.npy_file import read_start
from tiering.formats.torch_file import StoredObject, read_torch
from tiering.text.units import format_bytes

FILES = ("data.pt", "geometric_data_processed.pt")
GLOBAL = "_global_store"  # key of the values of a HeteroData that belong to no node type and no relation
WHAT = "a graph of PyG (Data or HeteroData)"
OLD_FORMAT = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""First bytes of files of torch before 1.6; they are recognized to be refused in words."""
DGL_MAGIC = (0xDD2E4FF046B4A13F).to_bytes(8, "little")
MEMORY_SHARE = 8  # divisor of the memory budget that gives the largest pickle: its values take several times its bytes


def _file_of(path: Path) -> Path | None:
    if not is_folder(path):
        return path
    places = [folder / name for folder in (path, path / "processed") for name in FILES]
    return next((place for place in places if file_exists(place, WHAT)), None)


def _is_torch_file(path: Path) -> bool:
    if read_start(path, len(OLD_FORMAT)) == OLD_FORMAT:
        return True
    try:
        with path.open("rb", 0) as file, zipfile.ZipFile(file) as archive:
            return any(name.count("/") == 1 and name.endswith("/data.pkl") for name in archive.namelist())
    except Exception:  # zipfile raises almost anything on what is no archive
        return False


def _open_pyg(path: Path, context: ImportContext) -> Dataset:
    file = _file_of(path)
    if file is None:
        raise MissingError(f"{path}: expected {' or '.join(FILES)}, also in processed/, found none; check the path")
    value = read_torch(file, WHAT, min(256 << 20, max(1 << 20, context.scratch.budget.limit // MEMORY_SHARE)))
    context.record_file(file)
    folder = file.parent.parent if file.parent.name == "processed" else file.parent
    target = NamedArrays(file.stem if file == path else folder.name, str(file), file, context.scratch)
    add_pyg_graph(_to_dict(value, str(file)), target)
    return target.make_dataset(context)


def _to_dict(value: Any, where: str) -> Mapping[Any, Any]:
    """Return the dictionary that `Data.to_dict` or `HeteroData.to_dict` would give, of the content of a file."""
    if isinstance(value, (tuple, list)):
        if len(value) not in (2, 3, 4) or not isinstance(value[0], (StoredObject, dict)):
            raise InputError(f"{where}: expected {WHAT}, found a {type(value).__name__} of {len(value)}")
        _require_one(value[1], where)
        value = value[0]
    if isinstance(value, StoredObject):
        state = value.state
        if value.name.endswith(".HeteroData"):
            nodes, edges = (_mapping(state, f"_{kind}_store_dict", where) for kind in ("node", "edge"))
            return {**nodes, **edges, GLOBAL: state.get(GLOBAL) or {}}
        if value.name.endswith(".Data"):
            return _mapping(state, "_store", where) if "_store" in state else state
    if isinstance(value, dict) and any(name == "edge_index" or isinstance(name, tuple) for name in value):
        return value
    kind = value.name if isinstance(value, StoredObject) else type(value).__name__
    raise InputError(f"{where}: expected {WHAT}, found {kind}; save the Data object itself with torch.save")


def _mapping(state: Mapping[str, Any], name: str, where: str) -> Mapping[Any, Any]:
    value = state.get(name)
    if not isinstance(value, dict):
        raise InputError(f"{where}: expected {WHAT}, found no {name}; it is damaged, or of another version of PyG")
    return value


def _require_one(slices: Any, where: str, depth: int = 4) -> None:
    if isinstance(slices, dict):
        for part in slices.values() if depth else ():
            _require_one(part, where, depth - 1)
    elif hasattr(slices, "shape") and tuple(slices.shape) != (2,):
        graphs = slices.shape[0] - 1 if len(slices.shape) == 1 else 0
        raise InputError(f"{where}: expected one graph, found {graphs}; save one of them with torch.save")


def add_pyg_graph(parts: Mapping[Any, Any], target: NamedArrays) -> None:
    """Add the dictionary that `Data.to_dict` or `HeteroData.to_dict` gives to `target`."""
    if "edge_index" in parts and not any(isinstance(key, tuple) for key in parts):
        edges = {key: value for key, value in parts.items() if str(key).startswith("edge")}
        _add_nodes(target, NODE, {key: value for key, value in parts.items() if key not in edges})
        _add_edges(target, RELATION, edges)
        return
    if "adj_t" in parts or not any(isinstance(value, Mapping) for value in parts.values()):
        raise _no_edges(target.where, parts)
    for key, values in parts.items():
        if not isinstance(values, Mapping) or key == GLOBAL:
            target.ignored += [f"{target.where}: {name} of the graph" for name in (values if key == GLOBAL else [key])]
        elif isinstance(key, tuple) and len(key) == 3 and all(isinstance(part, str) for part in key):
            _add_edges(target, key, values)
        elif isinstance(key, str):
            _add_nodes(target, key, values)
        else:
            raise InputError(
                f"{target.where}: expected node types as text, relations as three texts, found {quoted(key)}"
            )


def _no_edges(where: str, parts: Mapping[Any, Any]) -> InputError:
    names = ", ".join(f"{'a sparse ' if is_sparse(value) else ''}{key}" for key, value in list(parts.items())[:8])
    return InputError(
        f"{where}: expected edge_index, found {names or 'nothing'}; for a sparse adj_t: row, col, _ = adj_t.t().coo() "
        "and edge_index = torch.stack([row, col])"
    )


def _add_nodes(target: NamedArrays, node_type: str, values: Mapping[Any, Any]) -> None:
    arrays = target.wrap(values, node_type)
    _, number = target.take(arrays, ("num_nodes",))
    target.nodes[node_type] = arrays
    if number is not None:
        target.counts[node_type] = np.squeeze(number.array).tolist()


def _add_edges(target: NamedArrays, relation: tuple[str, str, str], values: Mapping[Any, Any]) -> None:
    key = relation_key(relation)
    arrays = target.wrap(values, key)
    index = None if is_sparse(values.get("edge_index")) else target.take(arrays, ("edge_index",))[1]
    if index is None:
        raise _no_edges(f"{target.where}: {key}", values)
    target.edges.append((EdgeData(relation, *target.take_ends(index), index.where), arrays))


PYG_READER = Reader(
    _open_pyg,
    takes=NAMED_OPTIONS,
    directory=Detector(
        f"{FILES[0]} (pyg; also in processed/)",
        lambda path: (file := _file_of(path)) is not None and _is_torch_file(file),
    ),
    file=Detector("a file of torch.save (pyg)", _is_torch_file),
)


def _open_dgl(path: Path, context: ImportContext) -> Dataset:
    folder, path = path, context.choose_file(path, files_that(_is_dgl_file), "dgl.save_graphs")
    if not _is_dgl_file(path):
        raise InputError(f"{path}: this is not a file of dgl.save_graphs; give another --format")
    needed, budget = path.stat().st_size, context.scratch.budget
    if needed > budget.left():
        raise BudgetError(
            f"{path}: DGL reads the whole file into memory, {format_bytes(needed)}, found {budget.text} "
            f"({format_bytes(budget.limit)}); give --memory {budget.advised(needed)} or more, or save the arrays with "
            "numpy.save and import those"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            dgl = importlib.import_module("dgl")
        except Exception as error:  # a DGL that does not fit the torch installed raises anything
            raise CapabilityError(
                f"{path}: DGL's files need DGL, which cannot be imported here ({type(error).__name__}); "
                "pip install 'tiering[dgl]', or save the arrays with numpy.save and import those"
            ) from error
        try:
            graphs, labels = dgl.load_graphs(os.fspath(path))
        except Exception as error:
            raise InputError(f"{path}: DGL cannot read it ({one_line(error)}); get the file again") from error
    if len(graphs) != 1:
        raise InputError(f"{path}: expected one graph, found {len(graphs)}; save one of them with save_graphs")
    context.record_file(path)
    if folder != path:
        context.record_ignored(entries(folder))
    target = NamedArrays(path.stem, str(path), path, context.scratch)
    add_dgl_graph(graphs[0], target)
    target.ignored += [f"{path}: {name} of the file" for name in labels]
    return target.make_dataset(context)


def add_dgl_graph(graph: Any, target: NamedArrays) -> None:
    """Add a DGLGraph to `target`; of one type of nodes and edges under the names that other formats have."""
    plain = len(graph.ntypes) == 1 and len(graph.canonical_etypes) == 1
    for node_type in graph.ntypes:
        name = NODE if plain else node_type
        target.nodes[name] = target.wrap(graph.nodes[node_type].data, name)
        target.counts[name] = int(graph.num_nodes(node_type))
    for relation in graph.canonical_etypes:
        key = relation_key(renamed := RELATION if plain else tuple(relation))
        where, arrays = f"{target.where}: edges of {key}", graph.edges[relation].data
        ends = graph.edges(etype=relation, order="eid")
        src, dst = (SourceArray.convert(ids, where, target.path, target.scratch) for ids in ends)
        target.columns += [src, dst]
        target.edges.append((EdgeData(renamed, src.array, dst.array, where), target.wrap(arrays, key)))


def add_matrix(matrix: Any, target: NamedArrays) -> None:
    """Add a square sparse matrix of scipy, torch or torch_sparse to `target`: entry (i, j) is the edge i -> j."""
    if hasattr(matrix, "to_torch_sparse_coo_tensor"):
        matrix = matrix.to_torch_sparse_coo_tensor()
    shape = tuple(matrix.shape)
    if len(shape) != 2 or shape[0] != shape[1]:
        problem = f"expected a square matrix, one row and column per node, found shape {shape}"
        raise InputError(f"{target.where}: {problem}; write edges between two types of nodes as HeteroData")
    if hasattr(matrix, "tocoo"):
        matrix = matrix.tocoo()
        ends, values = (matrix.row, matrix.col), matrix.data
    else:
        matrix = matrix.detach().to_sparse_coo()  # entries that are there twice stay so
        ends, values = tuple(matrix._indices()), matrix._values()
    src, dst = (SourceArray.convert(ids, f"{target.where}: indices", target.path, target.scratch) for ids in ends)
    target.columns += [src, dst]
    target.nodes[NODE], target.counts[NODE] = {}, shape[0]
    target.edges.append((EdgeData(RELATION, src.array, dst.array, target.where), {}))
    target.ignored += [f"{target.where}: values of entries"] if bool((values != 1).any()) else []


def _is_dgl_file(path: Path) -> bool:
    return read_start(path, len(DGL_MAGIC)) == DGL_MAGIC


DGL_READER = Reader(
    _open_dgl,
    NAMED_OPTIONS,
    directory=Detector("one file of dgl.save_graphs", files_that(_is_dgl_file)),
    file=Detector("a file of dgl.save_graphs (dgl)", _is_dgl_file),
)
