"""Format ``dgl``: a file of ``dgl.save_graphs`` with one graph, which DGL itself reads into memory as a whole."""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from typing import Any

from tiering.artifacts.manifest import relation_key
from tiering.datasets.arrays import SourceArray
from tiering.datasets.import_context import NODE, RELATION, Detector, ImportContext, Reader, one_line
from tiering.datasets.named_arrays import NAMED_OPTIONS, NamedArrays, NamedNodes
from tiering.errors import BudgetError, CapabilityError, InputError
from tiering.formats.dataset import Dataset, EdgeData
from tiering.formats.npy_file import read_start
from tiering.units import format_bytes

MAGIC = (0xDD2E4FF046B4A13F).to_bytes(8, "little")


def _open_dgl(path: Path, context: ImportContext) -> Dataset:
    if not _is_dgl_file(path):
        raise InputError(f"{path}: expected a file of dgl.save_graphs, found another; name another --format")
    needed, budget = path.stat().st_size, context.scratch.budget
    if needed > budget.left():
        raise BudgetError(
            f"{path}: DGL reads its files into memory as a whole, {format_bytes(needed)}, found {budget.text} "
            f"({format_bytes(budget.limit)}); give --memory {budget.advised(needed)} or more, or save the arrays with "
            "numpy.save and import those"
        )
    graphs, labels = _load(path)
    if len(graphs) != 1:
        raise InputError(f"{path}: expected one graph, found {len(graphs)}; save the one meant with save_graphs")
    context.record_file(path)
    target = NamedArrays(path.stem, str(path), path, context.scratch)
    add_dgl_graph(graphs[0], target)
    target.ignored += [f"{path}: {name} of the file" for name in labels]
    return target.make_dataset(context)


def add_dgl_graph(graph: Any, target: NamedArrays) -> None:
    """Add a DGLGraph to `target`; of one type of nodes and edges under the names that other formats have."""
    plain = len(graph.ntypes) == 1 and len(graph.canonical_etypes) == 1
    for node_type in graph.ntypes:
        name = NODE if plain else node_type
        arrays = target.wrap(graph.nodes[node_type].data, name)
        target.nodes[name] = NamedNodes(arrays, int(graph.num_nodes(node_type)))
    for relation in graph.canonical_etypes:
        key = relation_key(renamed := RELATION if plain else tuple(relation))
        where, arrays = f"{target.where}: edges of {key}", graph.edges[relation].data
        ends = graph.edges(etype=relation, order="eid")
        src, dst = (SourceArray.convert(ids, where, target.path, target.scratch) for ids in ends)
        target.columns += [src, dst]
        target.edges.append((EdgeData(renamed, src.array, dst.array, where), target.wrap(arrays, key)))


def _load(path: Path) -> tuple[list[Any], dict[str, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            dgl = importlib.import_module("dgl")
        except Exception as error:  # a DGL that does not fit the torch installed raises anything
            raise CapabilityError(
                f"{path}: DGL's own files are read by DGL, which cannot be imported here ({type(error).__name__}); "
                "pip install 'tiering[dgl]', or save the arrays with numpy.save and import those"
            ) from error
        try:
            graphs, labels = dgl.load_graphs(str(path))
        except Exception as error:
            raise InputError(f"{path}: DGL cannot read it ({one_line(error)}); get the file again") from error
    return graphs, labels


def _is_dgl_file(path: Path) -> bool:
    return read_start(path, len(MAGIC)) == MAGIC


READER = Reader(_open_dgl, NAMED_OPTIONS, file=Detector("a file of dgl.save_graphs (dgl)", _is_dgl_file))
