"""What a reorder will take, after the ranking: memory, disk and time of maps, relations, node arrays and features."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tiering.execution import Budget
from tiering.execution.costs import (
    SYNCS_OF_STAGE,
    hash_seconds,
    kernel_seconds,
    put_seconds,
    read_seconds,
    write_seconds,
)
from tiering.execution.executor import count_windows
from tiering.execution.plan import StagePlan, Step, held_memory
from tiering.execution.rates import Rates
from tiering.formats.features import FeatureTable
from tiering.formats.manifest import relation_key
from tiering.formats.shape import EdgeShape, GraphShape
from tiering.io.appended import appending_memory
from tiering.io.checksum import BLOCK_BYTES
from tiering.ranked_rows import predict_rows
from tiering.reorder.windows import RelabelSizes, require_relabel


def predict_reorder(
    shape: GraphShape, ranking: list[Step], out: Path, budget: Budget, rates: Rates, *, features: bool = False
) -> StagePlan:
    """Plan of a reorder.

    Parameters
    ----------
    ranking
        Steps that come before (`tiering.order.predict`).
    features
        The feature tables are written again in rank order.

    Raises
    ------
    BudgetError
        Where the reorder would.

    Notes
    -----
    Memory: both maps of a type while they are made; per relation `RelabelSizes.in_memory`, or what the budget leaves;
    for arrays of the nodes and features that of `tiering.ranked_rows`.
    """
    steps = [*ranking]
    for name in shape.node_types:
        steps += _maps(name, shape, budget, rates)
    for edges in shape.edges:
        steps += _relation(edges, shape, budget, rates)
    for name in shape.node_types:
        steps += _node_arrays(name, shape, budget, rates)
    left = shape.graph_bytes() + shape.order_bytes()
    if features:
        steps += [_features(name, table, budget, rates) for name, table in shape.tables.items()]
        left += sum(table.bytes for table in shape.tables.values())
    steps.append(Step("manifests", "", seconds=2 * SYNCS_OF_STAGE * rates.target.sync))
    return StagePlan("reorder", out, tuple(steps), {out: left}, held_memory())


def _maps(node_type: str, shape: GraphShape, budget: Budget, rates: Rates) -> Iterator[Step]:
    """The order, its inverse, and the score by rank."""
    node = shape.nodes[node_type]
    count, written = node.num_nodes, 2 * node.num_nodes * node.id_bytes
    seconds = kernel_seconds("invert", count, rates, count) + _blocks_seconds(written, 2, rates)
    yield Step(f"order of {node_type}", "in memory", written, 0, written, 0, seconds, count, "node")
    score = _array(f"score of {node_type}", node_type, shape, 8 * count, budget, rates)
    yield replace(score, disk_read=score.disk_read + written // 2)  # the order, which was written past the cache


def _blocks_seconds(nbytes: int, files: int, rates: Rates) -> float:
    """Seconds of arrays that are written in blocks."""
    return max(write_seconds(nbytes, rates.target), put_seconds(0, rates, files))


def _array(name: str, node_type: str, shape: GraphShape, nbytes: int, budget: Budget, rates: Rates) -> Step:
    """An array that runs along the nodes of a type, brought into rank order."""
    count = max(1, shape.num_nodes(node_type))
    table = FeatureTable(Path(name), count, nbytes // count, "uint8", 0, "original")
    return _rows(name, table, budget, rates)


def _rows(name: str, table: FeatureTable, budget: Budget, rates: Rates) -> Step:
    rows = predict_rows(table, False, budget, rates, cached=True)
    put = put_seconds(table.bytes, rates)
    return Step(
        name, rows.how, rows.plan.memory, rows.disk_read, table.bytes, rows.plan.bytes_scratch,
        rows.seconds_with(0.0, put), table.rows, "row",
    )  # fmt: skip


def _features(name: str, table: FeatureTable, budget: Budget, rates: Rates) -> Step:
    """A feature table in rank order, written in pieces in the background."""
    pieces = appending_memory(table.bytes)
    rows = predict_rows(table, False, Budget(budget.limit - pieces, budget.text), rates)
    writing, hashing = write_seconds(table.bytes, rates.target), hash_seconds(table.bytes, rates)
    return Step(
        f"features of {name}", rows.how, rows.plan.memory + pieces, rows.disk_read, table.bytes,
        rows.plan.bytes_scratch, rows.seconds_with(writing, hashing), table.rows, "row",
    )  # fmt: skip


def _node_arrays(node_type: str, shape: GraphShape, budget: Budget, rates: Rates) -> Iterator[Step]:
    for name, nbytes in sorted(shape.nodes[node_type].arrays.items()):
        if name.startswith("split-"):
            seconds = kernel_seconds("row", nbytes // 8, rates, shape.num_nodes(node_type))
            seconds += put_seconds(nbytes, rates)
            yield Step(f"{node_type} {name}", "some at a time", 20 << 20, 0, nbytes, 0, seconds, nbytes // 8, "node")
        else:
            yield _array(f"{node_type} {name}", node_type, shape, nbytes, budget, rates)


def _relation(edges: EdgeShape, shape: GraphShape, budget: Budget, rates: Rates) -> Iterator[Step]:
    """Offsets, then each file that runs along the entries by windows."""
    source, _, destination = edges.relation
    sizes = RelabelSizes(
        edges.num_edges, shape.num_nodes(source), shape.num_nodes(destination), tuple(edges.values.values())
    )
    name = relation_key(edges.relation)
    require_relabel(name, sizes, budget)
    offsets = 8 * (sizes.num_dst + 1)
    seconds = kernel_seconds("relabel column", sizes.num_dst, rates, sizes.num_dst, 8)
    seconds += _blocks_seconds(offsets, 1, rates)
    yield Step(f"{name} indptr", "in memory", offsets, 0, offsets, 0, seconds, sizes.num_dst, "node")
    yield _windows(
        f"{name} indices", sizes, sizes.id_bytes, sizes.id_bytes * sizes.num_src, edges.uncached, budget, rates
    )
    for key, item in sorted(edges.values.items()):
        yield _windows(f"{name} {key}", sizes, item, 0, edges.uncached, budget, rates)


def _windows(
    name: str, sizes: RelabelSizes, item: int, held: int, uncached: float, budget: Budget, rates: Rates
) -> Step:
    """A file along the entries; `held` bytes are the sources' new ids."""
    written = sizes.num_edges * item
    count = count_windows(sizes.num_edges, sizes.num_dst, item, budget.left() - held - sizes.pieces())
    window = min(written, -(-written // max(1, count) // BLOCK_BYTES) * BLOCK_BYTES)
    chunks = sizes.pieces() if uncached else 0
    columns = 8 * -(-sizes.num_dst // max(1, count))
    read = count * written if uncached else 0
    read += held + 8 * (sizes.num_dst + 1) if held else 0  # the map and the offsets, which were written past the cache
    passing = kernel_seconds("relabel", sizes.num_edges, rates, sizes.num_src if held else 0, sizes.id_bytes)
    passing += kernel_seconds("relabel pass", count * sizes.num_edges, rates)
    seconds = max(read_seconds(read, rates.source), passing) + window / rates.touch + held / rates.touch
    seconds += _blocks_seconds(written, 1, rates)
    how = "in memory" if count <= 1 else f"{count} windows"
    memory = held + chunks + window + columns
    return Step(name, how, memory, read, written, 0, seconds, count * sizes.num_edges, "edge")
