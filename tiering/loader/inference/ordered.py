"""Scratch files of a run that takes nodes in another order than ranks: graph, features and tables in that order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tiering.artifacts.file_writer import FileWriter
from tiering.artifacts.manifest import FileEntry, Manifest, id_bytes
from tiering.artifacts.storage import AnyArray, open_raw
from tiering.artifacts.writer import ArtifactWriter
from tiering.formats.embeddings import RowsEntry
from tiering.formats.graph import Graph, graph_errors, relation_folder
from tiering.formats.layout import Layout
from tiering.formats.order import Order
from tiering.formats.tier_rows import TierRows
from tiering.loader.inference.order import NodeOrder
from tiering.memory import Budget
from tiering.reorder.adjacency import OldRelation, RelabelSizes, write_relation
from tiering.reorder.arrays import SIZES, NodeArrays, NodeReader, plan_nodes
from tiering.reorder.table_reader import TableReader
from tiering.run.move import Items, move_items, plan_moves
from tiering.run.places import Places
from tiering.text.units import parse_threads

FOLDER = "ordered"  # part of a run's directory
_SIZES = replace(SIZES, block=16 << 20, entries=4 << 20, nodes=1 << 16, chunk=4 << 20)  # for little memory
_GROWN = 32 << 20  # bytes that this process may hold in addition when rows are moved: torch's own, pieces that are read


def graph_bytes(graph: Graph) -> int:
    """Return the bytes on disk of a graph in an order: in-lists, and the nodes' original ids."""
    nodes = sum(id_bytes(graph.num_nodes(t)) * graph.num_nodes(t) for t in graph.node_types)
    return nodes + sum(graph.manifest.files[name].bytes for name in _list_files(graph))


def _list_files(graph: Graph) -> list[str]:
    return [f"{relation_folder(relation)}/{name}" for relation in graph.relations for name in ("indptr", "indices")]


def write_graph(writer: ArtifactWriter, graph: Graph, order: NodeOrder, budget: Budget) -> Graph:
    """Return the graph whose ids are positions in an order, without labels, splits and edge data.

    In-lists keep their order, and nodes their original ids as keys of random numbers. Files that are there stay.
    """
    part, positions = writer.part(FOLDER, Graph.kind), order.positions
    nodes, keys = NodeArrays(budget, _SIZES, parse_threads(None)), dict[str, FileEntry]()
    for relation in graph.relations:
        with graph_errors(graph, relation):
            old = OldRelation(*graph.csc(relation), {}, positions[relation[2]], positions[relation[0]])
            write_relation(part, relation_folder(relation), old, nodes)
    for t in graph.node_types:
        ids, name = graph.new_to_old(t), f"nodes/{t}/new_to_old"
        keys[name] = FileEntry(ids.dtype.name, ids.shape, "")
        if not part.has(name) and not ids.size:
            part.put(name, ids)
        elif not part.has(name):
            with part.file(name, ids.dtype.name, ids.shape) as file:
                nodes.permuted(file, ids, positions[t])
    body = {
        "node_types": {
            t: {"num_nodes": graph.num_nodes(t), "num_classes": None, "splits": []} for t in graph.node_types
        },
        "relations": [{**entry, "edge_data": []} for entry in graph.manifest.body["relations"]], "changes": {},
    }  # fmt: skip

    def manifest(kind: str, files: dict[str, FileEntry], body: dict[str, Any]) -> Manifest:
        return Manifest(part.path, kind, (1, 0), files, {}, {}, {}, body, f"{graph.digest} {order.name}")

    made = Graph(manifest(Graph.kind, {name: graph.manifest.files[name] for name in _list_files(graph)}, body))
    made._nested["order"] = Order(manifest(Order.kind, keys, {"node_types": graph.node_types}))
    made._sound.add("order")  # of which there are the original ids alone
    return made


def feature_entries(layout: Layout) -> dict[str, RowsEntry]:
    """Return the places of a layout's feature rows, as they are stored, in one file."""
    tables = [layout.type_layout(t) for t in layout.feature_types]
    return RowsEntry.plan({e.node_type: (e.num_nodes, e.dim, e.dtype, e.codec) for e in tables})


def feature_moves(layout: Layout, order: NodeOrder) -> list[Items]:
    """Return the moves of a layout's feature rows to their positions in an order."""
    maps, threads = {t: (order.ranks[t], order.positions[t]) for t in layout.feature_types}, parse_threads(None)
    return _moves(
        {t: TableReader(TierRows(layout, t), maps[t], threads, _SIZES) for t in maps}, feature_entries(layout)
    )


def table_moves(table: Path, entries: Mapping[str, RowsEntry], numbers: Mapping[str, AnyArray]) -> list[Items]:
    """Return the moves of the rows of a table, whose row i of a type becomes row ``numbers[type][i]``."""
    rows = open_raw(table, np.dtype(np.uint8), (RowsEntry.total(entries),))
    own = {t: rows[e.offset :][: e.rows * e.row_bytes].reshape(e.rows, e.row_bytes) for t, e in entries.items()}
    return _moves({t: NodeReader(own[t], numbers[t], _SIZES) for t in entries}, entries)


def _moves(readers: Mapping[str, Any], entries: Mapping[str, RowsEntry]) -> list[Items]:
    sizes = {"0": RowsEntry.total(entries)}
    places = {t: Places.row_by_row(e.rows, e.row_bytes, base=e.offset) for t, e in entries.items()}
    return [Items(readers[t], replace(places[t], sizes=sizes), parse_threads(None)) for t in entries if entries[t].rows]


def scratch_bytes(graph: Graph, tables: Sequence[Mapping[str, RowsEntry]], budget: Budget) -> int:
    """Return the bytes of shuffle files that moving tables leaves on disk at a time, about.

    `BudgetError`: the graph or a table cannot be moved in this memory.
    """
    budget = budget.without(_GROWN)
    for source, name, target in graph.relations:
        edges, nodes = graph.num_edges((source, name, target)), (graph.num_nodes(source), graph.num_nodes(target))
        sizes = RelabelSizes(edges, *nodes, sizes=_SIZES)
        sizes.require("a graph in another order than ranks", budget)
    most = 0
    for entries in tables:
        rows = [
            (Places.row_by_row(e.rows, e.row_bytes), plan_nodes(e.rows, e.row_bytes, _SIZES)) for e in entries.values()
        ]
        costs = plan_moves(rows, budget, "rows that are moved into another order than ranks").costs
        most = max(most, sum(cost.scratch for cost in costs))
    return most


def write_moved(file: FileWriter, moves: Sequence[Items], budget: Budget, desc: str) -> None:
    """Write what is missing of a file of all tables."""
    move_items(moves, [file], budget, file.path.with_name(f"{file.path.name}.pieces"), desc)
