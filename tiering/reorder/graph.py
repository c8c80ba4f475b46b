"""Reorder a graph: order, adjacency, edge data, labels, splits and features under new ids, so that id = rank."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tiering.artifacts.artifact import Artifact
from tiering.artifacts.manifest import id_bytes
from tiering.artifacts.storage import AnyArray, open_raw
from tiering.artifacts.writer import ArtifactWriter
from tiering.formats.feature_rows import checked_tables, table_states, take
from tiering.formats.features import FeatureTable
from tiering.formats.graph import Graph, graph_errors, relation_folder
from tiering.formats.order import FIRST
from tiering.formats.scores import Scores
from tiering.formats.user_arrays import UserArray
from tiering.memory import Budget, parse_memory
from tiering.reorder.adjacency import OldRelation, write_relation
from tiering.reorder.arrays import SIZES, NodeArrays, PieceSizes, memory_of
from tiering.reorder.plan import ReorderStep, inverse_kept, own_carrier, reorder_steps
from tiering.reorder.rank import NodeOrders, first_digests
from tiering.reorder.table_reader import TableReader
from tiering.reorder.tasks.order import write_order as write_order_by_tasks
from tiering.reorder.tasks.relabel import write_relation as write_by_tasks
from tiering.reorder.tasks.rows import write_tables
from tiering.run.job import Carrier
from tiering.run.move import Items, move_items
from tiering.run.places import Places
from tiering.text.progress import progress
from tiering.text.units import parse_threads
from tiering.version import __version__

SPLIT_CHUNK = 1 << 20  # ids of a split that are mapped together


@dataclass
class RankMaps:
    """Both directions of the order of a node type, memory-mapped from the artifact that is being written."""

    new_to_old: AnyArray
    old_to_new: AnyArray
    ranks: AnyArray  # ``old_to_new`` for reads at random: in memory, where it was just made and every relation needs it

    @classmethod
    def open(cls, part: ArtifactWriter, node_type: str, count: int, inverse: AnyArray | None = None) -> RankMaps:
        """Map the files that were just written; `inverse` is ``old_to_new`` in memory."""
        folder, dtype = part.path / "nodes" / node_type, np.dtype(f"i{id_bytes(count)}")
        new_to_old, old_to_new = (open_raw(folder / name, dtype, (count,)) for name in ("new_to_old", "old_to_new"))
        return cls(new_to_old, old_to_new, old_to_new if inverse is None else inverse)


def reorder_graph(
    graph: Graph,
    scores: Scores,
    out: str | os.PathLike[str],
    *,
    first: Mapping[str, UserArray] | None = None,
    features: bool = False,
    threads: int | str | None = None,
    memory: str | int | Budget | None = None,
    force: bool = False,
    sizes: PieceSizes | None = None,
    carrier: Carrier | None = None,
) -> Graph:
    """Write `graph` with the nodes of each type renumbered by rank, the same bytes for any memory and tasks.

    The list of a column keeps its order and splits keep theirs, so that a sampler keyed by original ids samples the
    same batches from both graphs. `scores` are stored by rank with the order. Nodes put `first`
    (`tiering.reorder.rank.read_first`) come before all others of their type. Without `features` the tables stay as the
    graph has them, in original order: the layout permutes rows while it places them.

    Cost: the entries of a relation, and each array along its edges, are read once where the memory holds the result (4
    bytes per edge, 8 per destination node, 4 per source node), else once for each window of the result, up to three;
    longer lists are cut first, by tasks of this process. Arrays of nodes and feature rows: see `tiering.run.move`.

    `InputError`: a feature file changed since the import. `FormatError`: an offset or an id is out of range.
    `BudgetError`: the memory is less than `ReorderPlan.least_memory`.
    """
    arrays, first = NodeArrays(parse_memory(memory), sizes or SIZES, parse_threads(threads)), first or {}
    tables = checked_tables(graph) if features else {}
    inputs = {"graph": graph.digest, "scores": scores.digest, **first_digests(first)}
    provenance: dict[str, Any] = {"stage": "reorder", "options": {"features": features}, "inputs": inputs}
    identity = {**provenance, "inputs": {**inputs, **table_states(tables)}}
    orders, drawn = NodeOrders(graph, scores, arrays, first), scores.train_nodes()
    with (
        ArtifactWriter(out, "graph", force=force, identity=identity, reads=(graph, scores)) as writer,
        progress(graph.num_edges(), "reorder", "edge", scale=True) as bar,
        ExitStack() as stack,
    ):
        order, maps = writer.part("order", "order"), dict[str, RankMaps]()
        own = own_carrier(arrays.budget, arrays.threads)
        if own is not None:
            stack.enter_context(own)
        for step in reorder_steps(graph, tables, first, carrier, arrays.budget, own):
            if step.kind == "order":
                maps[step.key] = write_order(order, orders, step.key, step.carrier)
                if len(maps) == len(graph.node_types):
                    _commit_order(order, orders, provenance)
            elif step.kind == "relation":
                with graph_errors(graph, step.key):
                    _write_relation(writer, graph, step, maps, arrays)
                bar.update(graph.num_edges(step.key))
            elif step.kind == "nodes":
                maps[step.key].ranks = maps[step.key].old_to_new  # the memory of the inverse is for rows now
                write_nodes(writer, graph, step.key, maps[step.key], arrays, drawn.get(step.key))
            else:
                part = writer.part("features", "features")
                if step.carrier is not None:
                    write_tables(step.carrier.job(part), part, graph, tables, str(order.path))
                else:
                    _write_features(part, tables, maps, arrays, writer.path / "scratch")
                made = {t: table.entry(row_order="rank", offset=0, file=f"tables/{t}") for t, table in tables.items()}
                part.commit({"tables": made}, provenance)
        if not tables and graph.features is not None:
            writer.adopt(graph.features, "features")
        if (names := graph.part("names")) is not None:
            writer.adopt(names, "names")  # by original id, as before
        writer.commit(_describe(graph, drawn), provenance, requires=graph.manifest.requires)
        if own is not None:
            own.finish()
    return Graph.open(writer.out)


def _describe(graph: Graph, drawn: Collection[str]) -> dict[str, Any]:
    """Return the body of the reordered graph's manifest; types whose training nodes were `drawn` get the split."""
    changes, package = graph.manifest.changes, graph.manifest.provenance["package"]
    earlier = {} if package == f"tiering {__version__}" else {"package": package}  # whose defects stay
    types = {
        t: {**entry, "splits": [*entry["splits"], "train"]} if t in drawn else entry
        for t, entry in graph.manifest.body["node_types"].items()
    }
    return {**graph.manifest.body, "node_types": types, "changes": {**earlier, **changes}}


def _commit_order(part: ArtifactWriter, orders: NodeOrders, provenance: dict[str, Any]) -> None:
    first = {FIRST: {t: array.values.size for t, array in orders.first.items()}} if orders.first else {}
    body = {"graph_digest": orders.graph.digest, "node_types": list(orders.graph.node_types), **first}
    part.commit(body, provenance, requires=tuple(first))


def _write_relation(
    writer: ArtifactWriter, graph: Graph, step: ReorderStep, maps: Mapping[str, RankMaps], arrays: NodeArrays
) -> None:
    folder, data = relation_folder(step.key), graph.edge_data(step.key)
    if step.carrier is None:
        ranks = maps[step.key[2]].ranks, maps[step.key[0]].ranks
        write_relation(writer, folder, OldRelation(*graph.csc(step.key), data, *ranks), arrays)
    elif not writer.has(*(f"{folder}/{name}" for name in ("indptr", "indices", *data))):
        write_by_tasks(step.carrier.job(writer), writer, graph, step.key, str(writer.path / "order"))


def _write_features(
    part: ArtifactWriter, tables: Mapping[str, FeatureTable], maps: Mapping[str, RankMaps], nodes: NodeArrays,
    scratch: Path,
) -> None:  # fmt: skip
    """Write the rows of every table in rank order; space for all is reserved before the first row is read."""
    with ExitStack() as stack:
        files, moves = [], []
        for number, (name, table) in enumerate(tables.items()):
            files.append(stack.enter_context(part.file(f"tables/{name}", table.dtype, (table.rows, table.dim))))
            both = maps[name].new_to_old, maps[name].old_to_new
            reader = TableReader(table, both, nodes.threads, nodes.sizes)
            if table.bytes:
                moves.append(Items(reader, Places.row_by_row(table.rows, table.row_bytes, number), nodes.threads))
        move_items(moves, files, nodes.budget, scratch, "features")


def write_order(part: ArtifactWriter, orders: NodeOrders, node_type: str, carrier: Carrier | None) -> RankMaps:
    """Write the order of a type, its inverse and its scores by rank; files that are there already stay."""
    count, arrays = orders.graph.num_nodes(node_type), orders.arrays
    new_to_old, old_to_new, score = (f"nodes/{node_type}/{name}" for name in ("new_to_old", "old_to_new", "score"))
    if carrier is not None:
        if not part.has(new_to_old, old_to_new, score):
            write_order_by_tasks(carrier.job(part), part, orders.scores, node_type, count)
        return RankMaps.open(part, node_type, count)
    order = None if part.has(new_to_old) else _write_pieces(part, new_to_old, count, orders.pieces(node_type))
    inverse = None
    if not part.has(old_to_new):
        if order is None:
            order = open_raw(part.path / new_to_old, np.dtype(f"i{id_bytes(count)}"), (count,))
        others = arrays.without(memory_of(order))
        if others.fits(order.nbytes):
            inverse = others.inverted(order)
            part.put(old_to_new, inverse)
        else:
            with part.file(old_to_new, order.dtype.name, order.shape) as file:
                others.inverse(file, order)
    del order  # before the scores are read
    if inverse is not None and not inverse_kept(len(orders.graph.node_types), inverse.nbytes, arrays.budget):
        inverse = None
    maps = RankMaps.open(part, node_type, count, inverse)
    _write_array(part, score, orders.scores, f"nodes/{node_type}/feature", maps, arrays)
    return maps


def _write_pieces(part: ArtifactWriter, name: str, count: int, pieces: Iterator[AnyArray]) -> AnyArray | None:
    """Write an order; return it if it came in one piece."""
    piece, following = next(pieces), next(pieces, None)
    if following is None:
        part.put(name, piece)
        return piece
    with part.file(name, piece.dtype.name, (count,)) as file:
        file.append(piece)
        file.append(following)
        del piece, following
        for piece in pieces:
            file.append(piece)
    return None


def _write_array(
    to: ArtifactWriter, name: str, source: Artifact, source_name: str, maps: RankMaps, arrays: NodeArrays
) -> None:
    """Write the array `source_name` of `source` in rank order, unless the file is there already."""
    entry = source.manifest.files[source_name]
    if to.has(name):
        return
    if entry.bytes == 0:
        to.put(name, source.manifest.array(source_name), entry.dtype)
        return
    with to.file(name, entry.dtype, entry.shape) as file:
        arrays.without(memory_of(maps.ranks)).permuted(file, source.manifest.array(source_name), maps.ranks)


def write_nodes(
    writer: ArtifactWriter, graph: Graph, node_type: str, maps: RankMaps, arrays: NodeArrays,
    train: np.ndarray[Any, Any] | None = None,
) -> None:  # fmt: skip
    """Write every array of a node type: splits hold ids, which are mapped in place; all others run along the nodes.

    `train`: the split of that name where the graph has none.
    """
    folder = f"nodes/{node_type}/"
    splits = {f"{folder}split-{name}": graph.split(name, node_type) for name in graph.splits(node_type)}
    splits |= {} if train is None else {f"{folder}split-train": train}
    for name in sorted({*graph.manifest.files, *splits}):
        if name.startswith(folder) and name not in splits:
            _write_array(writer, name, graph, name, maps, arrays)
        elif name in splits and not writer.has(name):
            ids = splits[name]
            with writer.file(name, "int64", ids.shape) as file:
                for begin in range(0, ids.shape[0], SPLIT_CHUNK):
                    new = take(maps.old_to_new, ids[begin : begin + SPLIT_CHUNK], arrays.threads)
                    file.append(new.astype(np.int64, copy=False))
