"""The out-edges: one relation's adjacency by source, in memory, or a whole graph with every edge turned round."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.manifest import Relation, id_bytes
from tiering.artifacts.writer import ArtifactWriter
from tiering.formats.feature_rows import take
from tiering.formats.graph import Graph, relation_folder
from tiering.formats.protocols import EdgeData
from tiering.formats.refusals import graph_errors
from tiering.formats.shape import value_bytes
from tiering.graph.bucket_sort import write_by_buckets
from tiering.graph.plan import SIZES, CscSizes, SortSizes, plan_relation
from tiering.memory import Budget, parse_memory
from tiering.progress import progress
from tiering.units import parse_threads
from tiering.version import __version__


def csr(
    graph: Graph, relation: Relation | str | None = None, threads: int | str | None = None
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Adjacency of a relation by source, in memory.

    Parameters
    ----------
    relation
        As in `Graph.csc`; may be left out where the graph has one.

    Returns
    -------
    indptr : numpy.ndarray
        int64, shape (nodes of the source type + 1,).
    indices : numpy.ndarray
        int32 or int64, shape (edges,): ``indices[indptr[u]:indptr[u + 1]]`` are the out-neighbours of u, ascending.

    Notes
    -----
    Cost: two passes over the edges; memory 4 or 8 bytes per edge.
    """
    source, _, _ = resolved = graph.relation(relation)
    indptr, indices = graph.csc(resolved)
    with graph_errors(graph, resolved):
        rows, columns, _ = native.transpose(indptr, indices, graph.num_nodes(source), parse_threads(threads), False)
    return rows, columns


def transpose_graph(
    graph: Graph,
    out: str | os.PathLike[str],
    *,
    threads: int | str | None = None,
    memory: str | int | Budget | None = None,
    force: bool = False,
    sizes: SortSizes = SIZES,
) -> Graph:
    """Write `graph` with every edge turned round: list u holds the nodes that u pointed to, ascending.

    Relation ``writes`` from author to paper becomes ``rev_writes`` from paper to author; turned round twice it has its
    name again. Edge data goes with its edges; nodes, features and order are as they were.

    Parameters
    ----------
    graph
        The graph.
    out
        Directory to create.
    memory
        What to stay within: a relation that does not fit goes by way of the disk (`tiering.graph.bucket_sort`).
    threads, force
        As in every stage.
    sizes
        How much is done at a time; the result is the same bytes for any.

    Raises
    ------
    BudgetError
        As in `tiering.graph.build_graph`.

    Notes
    -----
    Cost: two passes over the edges, or one and a scatter. Memory: that of the import of as many edges
    (`tiering.graph.plan.CscSizes`).
    """
    budget, workers = parse_memory(memory), parse_threads(threads)
    provenance = {"stage": "transpose", "options": {}, "inputs": {"graph": graph.digest}}
    identity = {**provenance, "package": __version__}
    with ArtifactWriter(out, "graph", force=force, identity=identity, reads=(graph,)) as writer:
        relations = []
        with progress(graph.num_edges(), "transpose", "edge", scale=True) as bar:
            for relation in graph.relations:
                with graph_errors(graph, relation):
                    relations.append(_write_relation(writer, graph, relation, budget, sizes, workers))
                bar.update(graph.num_edges(relation))
        for name in sorted(graph.manifest.files):
            if name.startswith("nodes/"):
                writer.put(name, graph.manifest.array(name))
        for name, part in graph.parts().items():
            writer.adopt(part, name)
        writer.commit({**graph.manifest.body, "relations": relations}, provenance)
    return Graph.open(writer.out)


def reversed_relation(relation: Relation) -> Relation:
    """The relation the other way round: its name gains, or loses, the prefix ``rev_``."""
    source, name, destination = relation
    return destination, name.removeprefix("rev_") if name.startswith("rev_") else f"rev_{name}", source


def _write_relation(
    writer: ArtifactWriter, graph: Graph, relation: Relation, budget: Budget, sizes: SortSizes, threads: int
) -> dict[str, Any]:
    source, name, destination = turned = reversed_relation(relation)
    folder, data = relation_folder(turned), dict(sorted(graph.edge_data(relation).items()))
    indptr, indices = graph.csc(relation)
    ids = cast("npt.NDArray[Any]", _ColumnIds(indptr, id_bytes(graph.num_nodes(source))))
    given = {key: array for key, array in data.items() if key != "edge_ids"}
    edges = EdgeData(turned, ids, indices, where=str(graph.path), data=given, edge_ids=data.get("edge_ids"))
    values = {key: value_bytes(array) for key, array in data.items()}
    csc = CscSizes.of(edges, graph.num_nodes(source), graph.num_nodes(destination), values)
    if not writer.has(*(f"{folder}/{file}" for file in ("indptr", "indices", *data))):
        plan = plan_relation(csc, edges, budget, sizes, folder)
        if plan is None:
            rows, columns, positions = native.transpose(indptr, indices, csc.num_dst, threads, bool(data))
            writer.put(f"{folder}/indptr", rows)
            writer.put(f"{folder}/indices", columns)
            for key, array in data.items():
                writer.put(f"{folder}/{key}", take(array, cast("npt.NDArray[np.int64]", positions), threads))
        else:
            native.check_indptr(indptr, csc.num_edges, threads)
            write_by_buckets(writer, folder, edges, csc, plan, sizes, threads)
    return {"src": source, "name": name, "dst": destination, "num_edges": csc.num_edges, "edge_data": list(data)}


class _ColumnIds:
    """The column of every entry of a CSC, made where it is asked for: an array that takes no memory."""

    ndim = 1

    def __init__(self, indptr: npt.NDArray[np.int64], item: int) -> None:
        self._indptr, self.dtype = indptr, np.dtype(f"int{8 * item}")
        self.shape: Sequence[int] = (int(indptr[-1]),)

    def __getitem__(self, part: slice) -> npt.NDArray[Any]:
        """Columns of the entries [start, stop)."""
        first, stop, _ = part.indices(self.shape[0])
        begin = int(np.searchsorted(self._indptr, first, "right")) - 1
        end = int(np.searchsorted(self._indptr, stop, "left"))
        bounds = np.clip(self._indptr[begin : end + 1], first, stop)
        return np.repeat(np.arange(begin, end, dtype=self.dtype), np.diff(bounds))
