"""A graph with every edge turned round."""

from __future__ import annotations

import os
from functools import partial
from typing import Any, cast

import numpy.typing as npt

from tiering import native
from tiering.artifacts.manifest import Relation, id_bytes
from tiering.artifacts.writer import ArtifactWriter
from tiering.formats.column_ids import ColumnIds
from tiering.formats.graph import Graph
from tiering.formats.protocols import EdgeData
from tiering.formats.refusals import graph_errors
from tiering.formats.shape import value_bytes
from tiering.graph.build import write_relation
from tiering.graph.plan import SIZES, CscSizes, SortSizes, plan_relation
from tiering.memory import Budget, parse_memory
from tiering.progress import progress
from tiering.units import parse_threads
from tiering.version import __version__


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

    Cost: two passes over the edges, or one and a scatter by way of the disk where a relation does not fit; memory: that
    of the import of as many edges, as in `tiering.graph.build_graph`.
    """
    budget, workers = parse_memory(memory), parse_threads(threads)
    provenance = {"stage": "transpose", "options": {}, "inputs": {"graph": graph.digest}}
    identity = {**provenance, "package": __version__}
    with ArtifactWriter(out, "graph", force=force, identity=identity, reads=(graph,)) as writer:
        relations = []
        with progress(graph.num_edges(), "transpose", "edge", scale=True) as bar:
            for relation in graph.relations:
                with graph_errors(graph, relation):
                    relations.append(_write_turned(writer, graph, relation, budget, sizes, workers))
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


def _write_turned(
    writer: ArtifactWriter, graph: Graph, relation: Relation, budget: Budget, sizes: SortSizes, threads: int
) -> dict[str, Any]:
    source, _, destination = turned = reversed_relation(relation)
    data = dict(sorted(graph.edge_data(relation).items()))
    indptr, indices = graph.csc(relation)
    ids = cast("npt.NDArray[Any]", ColumnIds(indptr, id_bytes(graph.num_nodes(source))))
    values = {key: value_bytes(array) for key, array in data.items()}
    own_ids = data.pop("edge_ids", None)
    edges = EdgeData(turned, ids, indices, where=str(graph.path), data=data, edge_ids=own_ids)
    csc = CscSizes.of(edges, graph.num_nodes(source), graph.num_nodes(destination), values)
    plan = plan_relation(csc, edges, budget, sizes)
    if plan.buckets is not None:
        native.check_indptr(indptr, csc.num_edges, threads)
    convert = partial(native.transpose, indptr, indices, csc.num_dst, threads, bool(values))
    return write_relation(writer, plan, threads, convert)
