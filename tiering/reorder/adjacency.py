"""Relabel a graph by an order: adjacency, edge data, labels and splits, so that id = rank."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from tiering import native
from tiering.errors import InputError
from tiering.formats.artifact import ArtifactWriter
from tiering.formats.feature_rows import checked_tables, table_states, take
from tiering.formats.graph import Graph, relation_folder
from tiering.formats.manifest import Relation
from tiering.formats.scores import Scores
from tiering.progress import progress
from tiering.reorder.features import refer_features, write_features
from tiering.units import parse_threads
from tiering.version import __version__

Maps: TypeAlias = "dict[str, np.ndarray[Any, Any]]"


def reorder_graph(
    graph: Graph,
    scores: Scores,
    new_to_old: Mapping[str, np.ndarray[Any, Any]],
    out: str | os.PathLike[str],
    *,
    features: bool = False,
    threads: int | str | None = None,
    force: bool = False,
) -> Graph:
    """Write `graph` with the nodes of each type renumbered by rank.

    The list of a column keeps its order and splits keep theirs, so that a sampler keyed by original ids draws the
    same batches from both graphs.

    Parameters
    ----------
    graph
        A graph in original ids.
    scores
        Scores of `graph`; stored by rank with the order, for whoever places rows later.
    new_to_old
        Original id of each rank per node type (`tiering.order.order_nodes`).
    out
        Directory to create.
    features
        Also write the feature tables in rank order. Otherwise the source files are referred to, in original order:
        the layout permutes rows while it places them.
    threads, force
        As in every stage.

    Raises
    ------
    InputError
        If the graph is reordered already, an order is no permutation, or a feature file changed since the import.

    Notes
    -----
    Cost: one pass over the edges with random access to the maps; memory for one relation at a time.
    """
    workers = parse_threads(threads)
    if graph.order is not None:
        raise InputError(
            f"{graph.path}: this graph is reordered already; reorder the graph it was made from "
            "(its digest is in the provenance)"
        )
    tables = checked_tables(graph) if features else {}
    provenance: dict[str, Any] = {
        "stage": "reorder",
        "options": {"features": features},
        "inputs": {"graph": graph.digest, "scores": scores.digest},
    }
    inputs = {**provenance["inputs"], **table_states(tables)}
    identity = {**provenance, "inputs": inputs, "package": __version__}
    with ArtifactWriter(out, "graph", force=force, identity=identity) as writer:
        maps = _write_order(writer, graph, scores, new_to_old, provenance, workers)
        with progress(graph.num_edges(), "reorder", "edge", scale=True) as bar:
            for relation in graph.relations:
                _write_relation(writer, graph, relation, new_to_old, maps, workers)
                bar.update(graph.num_edges(relation))
        for node_type in graph.node_types:
            _write_nodes(writer, graph, node_type, new_to_old[node_type], maps[node_type], workers)
        if features and tables:
            write_features(writer, tables, new_to_old, provenance, workers)
        elif graph.features is not None:
            refer_features(writer, graph, provenance)
        writer.commit(dict(graph.manifest.body), provenance)
    return Graph.open(writer.out)


def _write_order(
    writer: ArtifactWriter,
    graph: Graph,
    scores: Scores,
    new_to_old: Mapping[str, np.ndarray[Any, Any]],
    provenance: dict[str, Any],
    threads: int,
) -> Maps:
    """Write the nested order artifact; return ``old_to_new`` per node type."""
    part = writer.part("order", "order")
    maps: Maps = {}
    for node_type in graph.node_types:
        order = new_to_old[node_type]
        if order.shape != (graph.num_nodes(node_type),):
            raise InputError(
                f"order of node type {node_type!r}: expected {graph.num_nodes(node_type)} ids, found {order.shape}"
            )
        try:
            maps[node_type] = native.invert_permutation(order, threads)
        except ValueError as error:
            raise InputError(f"order of node type {node_type!r}: not a permutation: {error}") from error
        part.put(f"nodes/{node_type}/new_to_old", order)
        part.put(f"nodes/{node_type}/old_to_new", maps[node_type])
        part.put(f"nodes/{node_type}/score", take(scores.values(node_type), order, threads))
    part.commit({"graph_digest": graph.digest, "node_types": list(graph.node_types)}, provenance)
    return maps


def _write_relation(
    writer: ArtifactWriter,
    graph: Graph,
    relation: Relation,
    new_to_old: Mapping[str, np.ndarray[Any, Any]],
    old_to_new: Maps,
    threads: int,
) -> None:
    source, _, destination = relation
    edge_data, folder = graph.edge_data(relation), relation_folder(relation)
    if writer.has(*(f"{folder}/{name}" for name in ("indptr", "indices", *edge_data))):
        return
    indptr, indices, positions = native.relabel_csc(
        *graph.csc(relation), new_to_old[destination], old_to_new[source], threads, bool(edge_data)
    )
    writer.put(f"{folder}/indptr", indptr)
    writer.put(f"{folder}/indices", indices)
    if positions is not None:
        for name, values in edge_data.items():
            writer.put(f"{folder}/{name}", take(values, positions, threads))


def _write_nodes(
    writer: ArtifactWriter,
    graph: Graph,
    node_type: str,
    new_to_old: np.ndarray[Any, Any],
    old_to_new: np.ndarray[Any, Any],
    threads: int,
) -> None:
    """Write every array of a node type: splits hold ids, which are mapped in place; all others run along the nodes."""
    folder = f"nodes/{node_type}/"
    splits = {f"{folder}split-{name}" for name in graph.splits(node_type)}
    for name in sorted(graph.manifest.files):
        if not name.startswith(folder):
            continue
        values = graph.manifest.array(name)
        if name in splits:
            writer.put(name, take(old_to_new, values, threads).astype(np.int64, copy=False))
        else:
            writer.put(name, take(values, new_to_old, threads))
