"""The nodes of a reordered graph: the order itself, scores by rank, labels, splits, extra arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tiering.artifacts.artifact import Artifact
from tiering.artifacts.manifest import id_bytes
from tiering.artifacts.storage import AnyArray, open_raw
from tiering.artifacts.writer import ArtifactWriter
from tiering.formats.feature_rows import take
from tiering.formats.graph import Graph
from tiering.memory import Budget
from tiering.reorder.arrays import NodeWindows, memory_of
from tiering.reorder.rank import NodeOrders
from tiering.reorder.tasks.order import write_order as write_order_by_tasks
from tiering.run.carrier import Carrier

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


def inverse_kept(num_types: int, nbytes: int, budget: Budget) -> int:
    """Return the bytes of an inverse order that stay in memory when it is made: all `nbytes`, or none."""
    # Relations of several types take turns: each reads its own.
    return nbytes if num_types == 1 and 5 * nbytes <= budget.left() else 0


def write_order(part: ArtifactWriter, orders: NodeOrders, node_type: str, carrier: Carrier | None) -> RankMaps:
    """Write the order of a type, its inverse and its scores by rank; what is there already stays."""
    count, windows = orders.graph.num_nodes(node_type), orders.windows
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
        with part.file(old_to_new, order.dtype.name, order.shape) as file:
            inverse = windows.without(memory_of(order)).inverse(file, order)
    del order  # before the scores are read
    if inverse is not None and not inverse_kept(len(orders.graph.node_types), inverse.nbytes, windows.budget):
        inverse = None
    maps = RankMaps.open(part, node_type, count, inverse)
    _write_array(part, score, orders.scores, f"nodes/{node_type}/feature", maps, windows)
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
        windows.without(memory_of(maps.ranks)).permuted(file, source.manifest.array(source_name), maps.ranks)


def write_nodes(writer: ArtifactWriter, graph: Graph, node_type: str, maps: RankMaps, windows: NodeWindows) -> None:
    """Write every array of a node type: splits hold ids, which are mapped in place; all others run along the nodes."""
    folder = f"nodes/{node_type}/"
    splits = {f"{folder}split-{name}" for name in graph.splits(node_type)}
    for name in sorted(graph.manifest.files):
        if name.startswith(folder) and name not in splits:
            _write_array(writer, name, graph, name, maps, windows)
        elif name in splits and not writer.has(name):
            ids = graph.manifest.array(name)
            with writer.file(name, "int64", ids.shape) as file:
                for begin in range(0, ids.shape[0], SPLIT_CHUNK):
                    new = take(maps.old_to_new, ids[begin : begin + SPLIT_CHUNK], windows.threads)
                    file.append(new.astype(np.int64, copy=False))
