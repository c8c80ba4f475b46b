"""What a reorder will take, after the ranking: memory and disk of maps, relations, node arrays and features."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tiering.artifacts.checksum import BLOCK_BYTES
from tiering.artifacts.file_writer import appending_memory
from tiering.artifacts.manifest import relation_key
from tiering.artifacts.windows import count_windows
from tiering.formats.features import FeatureTable
from tiering.formats.shape import EdgeShape, GraphShape
from tiering.memory import Budget
from tiering.plan import StagePlan, Step, held_memory
from tiering.ranked_rows import least_memory, predict_rows
from tiering.reorder.arrays import small_chunk, whole_rows
from tiering.reorder.windows import BUFFERS, LARGE_MAP, RelabelSizes, require_relabel, widened


def predict_reorder(
    shape: GraphShape,
    ranking: list[Step],
    out: Path,
    budget: Budget,
    *,
    features: bool = False,
    uncached: float = 0.0,
) -> StagePlan:
    """Plan of a reorder.

    Parameters
    ----------
    ranking
        Steps that come before (`tiering.order.predict`).
    features
        The feature tables are written again in rank order.
    uncached
        Share of the scores that the page cache does not hold.

    Raises
    ------
    BudgetError
        Where the reorder would.

    Notes
    -----
    Memory: both maps of a type while they are made; per relation `RelabelSizes.in_memory`, or what the budget leaves;
    for arrays of the nodes a window, and for features that of `tiering.ranked_rows`.
    """
    steps = [*ranking]
    for name in shape.node_types:
        steps += _maps(name, shape, budget, uncached)
    for edges in shape.edges:
        steps += _relation(edges, shape, budget)
    for name in shape.node_types:
        steps += _node_arrays(name, shape, budget)
    left = shape.graph_bytes() + shape.order_bytes()
    if features:
        steps += [_features(name, table, budget) for name, table in shape.tables.items()]
        left += sum(table.bytes for table in shape.tables.values())
    return StagePlan("reorder", out, tuple(steps), {out: left}, held_memory())


def _kept(shape: GraphShape, node_type: str, budget: Budget) -> int:
    """Bytes of the inverse order, if it stays in memory after it was made."""
    node = shape.nodes[node_type]
    one = node.id_bytes * node.num_nodes
    return one if len(shape.nodes) == 1 and 6 * one <= budget.left() else 0


def _maps(node_type: str, shape: GraphShape, budget: Budget, uncached: float) -> Iterator[Step]:
    """The order, its inverse, and the score by rank."""
    node = shape.nodes[node_type]
    count, one = node.num_nodes, node.num_nodes * node.id_bytes
    windows = -(-one // max(BLOCK_BYTES, budget.left() - small_chunk())) if 2 * one > budget.left() else 1
    memory = 2 * one if windows == 1 else budget.left()
    read = one * windows if windows > 1 else 0
    how = "in memory" if windows == 1 else f"{windows} windows"
    yield Step(f"order of {node_type}", how, memory, read, 2 * one, 0, count, "node")
    yield _array(f"score of {node_type}", node_type, shape, 8 * count, budget, uncached)


def _array(name: str, node_type: str, shape: GraphShape, nbytes: int, budget: Budget, uncached: float = 0.0) -> Step:
    """An array that runs along the nodes of a type, brought into rank order."""
    count, kept = max(1, shape.num_nodes(node_type)), _kept(shape, node_type, budget)
    row_bytes = nbytes // count
    if not nbytes or not whole_rows(row_bytes):
        table = FeatureTable(Path(name), count, row_bytes, "uint8", 0, "original")
        rows = predict_rows(table, False, budget, cached=True)
        return Step(
            name, rows.how, rows.plan.memory, rows.disk_read + nbytes // row_bytes * shape.nodes[node_type].id_bytes,
            table.bytes, rows.plan.bytes_scratch, count, "row",
        )  # fmt: skip
    room = max(BLOCK_BYTES, budget.left() - kept - small_chunk())
    windows = -(-nbytes // (room // BLOCK_BYTES * BLOCK_BYTES))
    ranks = 0 if kept else shape.nodes[node_type].id_bytes * count
    read = windows * (round(nbytes * uncached) + ranks)
    how = "in memory" if windows == 1 else f"{windows} windows"
    memory = kept + min(nbytes, room) + min(small_chunk(), 4 * nbytes)
    return Step(name, how, memory, read, nbytes, 0, windows * count, "row")


def _features(name: str, table: FeatureTable, budget: Budget) -> Step:
    """A feature table in rank order, written in pieces in the background."""
    pieces = appending_memory(table.bytes)
    rows = predict_rows(table, False, budget.without(pieces))
    return Step(
        f"features of {name}", rows.how, rows.plan.memory + pieces, rows.disk_read, table.bytes,
        rows.plan.bytes_scratch, table.rows, "row",
    )  # fmt: skip


def _node_arrays(node_type: str, shape: GraphShape, budget: Budget) -> Iterator[Step]:
    for name, nbytes in sorted(shape.nodes[node_type].arrays.items()):
        if name.startswith("split-"):
            yield Step(f"{node_type} {name}", "some at a time", 20 << 20, 0, nbytes, 0, nbytes // 8, "node")
        else:
            yield _array(f"{node_type} {name}", node_type, shape, nbytes, budget)


def expected_memory(shape: GraphShape, features: bool) -> int:
    """Bytes with which relations and rows can be brought into order at all."""
    relations = [_relabel_sizes(each, shape).least() for each in shape.edges]
    tables = shape.tables.values() if features else ()
    return max([*relations, *(least_memory(each, False) + appending_memory(each.bytes) for each in tables)], default=0)


def _relabel_sizes(edges: EdgeShape, shape: GraphShape) -> RelabelSizes:
    source, _, destination = edges.relation
    return RelabelSizes(
        edges.num_edges, shape.num_nodes(source), shape.num_nodes(destination), tuple(edges.values.values())
    )


def _relation(edges: EdgeShape, shape: GraphShape, budget: Budget) -> Iterator[Step]:
    """Offsets, then each file that runs along the entries by windows."""
    sizes, destination = _relabel_sizes(edges, shape), edges.relation[2]
    name, kept = relation_key(edges.relation), _kept(shape, destination, budget)
    require_relabel(name, sizes, budget)
    offsets = 8 * (sizes.num_dst + 1)
    read = round(offsets * edges.uncached) + (0 if kept else shape.nodes[destination].id_bytes * sizes.num_dst)
    memory = kept + min(offsets, budget.left())
    yield Step(f"{name} indptr", "in memory", memory, read, offsets, 0, sizes.num_dst, "node")
    inside = sizes.in_memory() <= budget.left()
    held = sizes.parts()[0] + (offsets if inside else 0)
    again = (0 if kept else sizes.parts()[0]) + (0 if inside else offsets)
    yield _windows(f"{name} indices", sizes, sizes.id_bytes, held, again, edges.uncached, budget)
    for key, item in sorted(edges.values.items()):
        held = offsets if inside else 0
        yield _windows(f"{name} {key}", sizes, item, held, 0, edges.uncached, budget)


def _windows(name: str, sizes: RelabelSizes, item: int, held: int, again: int, uncached: float, budget: Budget) -> Step:
    """A file along the entries; `held` bytes are maps and offsets, of which `again` are read back."""
    written = sizes.num_edges * item
    inside = held >= 8 * (sizes.num_dst + 1)
    columns = 0 if inside else sizes.num_dst
    room = budget.left() - held - sizes.pieces()
    count = count_windows(sizes.num_edges, columns, item, room)
    window = min(written, -(-written // max(1, count) // BLOCK_BYTES) * BLOCK_BYTES)
    starts = 8 * -(-columns // max(1, count))
    chunks = sizes.pieces() if uncached else 0
    large = held >= sizes.parts()[0] >= LARGE_MAP and name.endswith("indices")
    if large:
        chunks = BUFFERS * widened(room - window - starts, written)
    read = round(count * written * max(uncached, 0.0)) + again
    how = "in memory" if count <= 1 else f"{count} windows"
    return Step(name, how, held + chunks + window + starts, read, written, 0, count * sizes.num_edges, "edge")
