"""The nodes of a reordered graph: the order itself, scores by rank, labels, splits, extra arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiering.artifacts.artifact import Artifact
from tiering.artifacts.storage import open_raw
from tiering.artifacts.writer import ArtifactWriter
from tiering.errors import InputError, TieringError
from tiering.formats.feature_rows import take
from tiering.formats.graph import Graph
from tiering.formats.order import FIRST
from tiering.formats.scores import Scores
from tiering.memory import Budget
from tiering.reorder.arrays import AnyArray, NodeWindows, memory_of
from tiering.reorder.rank import NodeOrders
from tiering.reorder.tasks.order import NODE_BYTES
from tiering.reorder.tasks.order import write_order as write_order_by_tasks
from tiering.run.carrier import Carrier

MAPS = ("new_to_old", "old_to_new")
SPLIT_CHUNK = 1 << 20  # ids of a split that are mapped together


@dataclass
class RankMaps:
    """Both directions of the order of a node type, memory-mapped from the artifact that is being written."""

    new_to_old: AnyArray
    old_to_new: AnyArray
    inverse: AnyArray | None = None  # ``old_to_new`` in memory, where it was just made and every relation needs it

    def random(self) -> AnyArray:
        """Return ``old_to_new``, in memory if it is there."""
        return self.old_to_new if self.inverse is None else self.inverse


def inverse_kept(num_types: int, nbytes: int, budget: Budget) -> int:
    """Return the bytes of an inverse order that stay in memory when it is made: all `nbytes`, or none.

    Relations of several types take turns: each reads its own.
    """
    return nbytes if num_types == 1 and 5 * nbytes <= budget.left() else 0


def write_order(
    writer: ArtifactWriter,
    graph: Graph,
    scores: Scores,
    orders: Mapping[str, AnyArray],
    first: Mapping[str, int],
    windows: NodeWindows,
    provenance: dict[str, Any],
    carrier: Carrier | None = None,
) -> dict[str, RankMaps]:
    """Write the nested order artifact; return both maps per node type. An order is asked for once, and dropped.

    `first`: how many nodes of a type the user has put first.
    """
    part = writer.part("order", "order")
    maps: dict[str, RankMaps] = {}
    for node_type in graph.node_types:
        folder, count = f"nodes/{node_type}/", graph.num_nodes(node_type)
        if carrier is not None and node_type not in first and carrier.cuts(count * NODE_BYTES):
            if not part.has(*(f"{folder}{name}" for name in (*MAPS, "score"))):
                write_order_by_tasks(carrier.job(part), part, scores, node_type, count)
            maps[node_type] = RankMaps(*(_mapped(part, f"{folder}{name}", count) for name in MAPS))
            continue
        maps[node_type] = own = _write_maps(part, node_type, count, orders, windows)
        if own.inverse is not None and not inverse_kept(len(graph.node_types), own.inverse.nbytes, windows.budget):
            own.inverse = None
        _write_array(part, f"{folder}score", scores, f"{folder}feature", own, windows)
    body = {"graph_digest": graph.digest, "node_types": list(graph.node_types)}
    if first:
        part.commit({**body, FIRST: dict(first)}, provenance, requires=(FIRST,))
    else:
        part.commit(body, provenance)
    return maps


def _write_maps(
    part: ArtifactWriter, node_type: str, count: int, orders: Mapping[str, AnyArray], windows: NodeWindows
) -> RankMaps:
    """Write an order and its inverse, which proves that it is a permutation."""
    names = [f"nodes/{node_type}/{name}" for name in MAPS]
    inverse = None
    try:
        order = None if part.has(names[0]) else _write_pieces(part, names[0], node_type, count, orders)
        if order is None:
            order = _mapped(part, names[0], count)
        if not part.has(names[1]):
            with part.file(names[1], order.dtype.name, order.shape) as file:
                inverse = windows.without(memory_of(order)).inverse(file, order)
        del order
    except TieringError:
        raise
    except ValueError as error:
        raise InputError(f"order of node type {node_type!r}: not a permutation: {error}") from error
    return RankMaps(_mapped(part, names[0], count), _mapped(part, names[1], count), inverse)


def _write_pieces(
    part: ArtifactWriter, name: str, node_type: str, count: int, orders: Mapping[str, AnyArray]
) -> AnyArray | None:
    """Write an order; return it if it came in one piece."""
    pieces = orders.pieces(node_type) if isinstance(orders, NodeOrders) else iter([orders[node_type]])
    first, second = next(pieces), next(pieces, None)
    if second is None:
        if first.shape != (count,):
            raise InputError(f"order of node type {node_type!r}: expected {count} ids, found {first.shape}")
        part.put(name, first)
        return first
    with part.file(name, first.dtype.name, (count,)) as file:
        file.append(first)
        file.append(second)
        del first, second
        for piece in pieces:
            file.append(piece)
    return None


def _mapped(part: ArtifactWriter, name: str, count: int) -> AnyArray:
    """Map a file of ids that was just written."""
    wide = (part.path / name).stat().st_size == 8 * count
    return open_raw(part.path / name, np.dtype(np.int64 if wide else np.int32), (count,))


def _write_array(
    to: ArtifactWriter, name: str, source: Artifact, source_name: str, maps: RankMaps, windows: NodeWindows
) -> None:
    """Write the array `source_name` of `source` in rank order; what is there already stays."""
    entry = source.manifest.files[source_name]
    if to.has(name):
        return
    if entry.bytes == 0:
        to.put(name, source.manifest.array(source_name), entry.dtype)
        return
    with to.file(name, entry.dtype, entry.shape) as file:
        ranks = maps.random()
        windows.without(memory_of(ranks)).permuted(file, source.manifest.array(source_name), ranks)


def write_nodes(writer: ArtifactWriter, graph: Graph, node_type: str, maps: RankMaps, windows: NodeWindows) -> None:
    """Write every array of a node type: splits hold ids, which are mapped in place; all others run along the nodes."""
    folder = f"nodes/{node_type}/"
    splits = {f"{folder}split-{name}" for name in graph.splits(node_type)}
    for name in sorted(graph.manifest.files):
        if name in splits:
            _write_split(writer, name, graph.manifest.array(name), maps.old_to_new, windows.threads)
        elif name.startswith(folder):
            _write_array(writer, name, graph, name, maps, windows)


def _write_split(writer: ArtifactWriter, name: str, ids: AnyArray, old_to_new: AnyArray, threads: int) -> None:
    """Write the new ids of a split, some at a time."""
    if writer.has(name):
        return
    with writer.file(name, "int64", ids.shape) as file:
        for begin in range(0, ids.shape[0], SPLIT_CHUNK):
            new = take(old_to_new, ids[begin : begin + SPLIT_CHUNK], threads)
            file.append(new.astype(np.int64, copy=False))
