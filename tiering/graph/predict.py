"""What an import will take: memory, disk and time, relation by relation, by the strategies that it will choose."""

from __future__ import annotations

from pathlib import Path

from tiering.artifacts.checksum import BLOCK_BYTES
from tiering.artifacts.manifest import relation_key
from tiering.artifacts.streaming import bytes_on_disk, uncached_bytes
from tiering.execution import Budget
from tiering.execution.costs import kernel_seconds, put_seconds, read_seconds, stage_seconds, write_seconds
from tiering.execution.executor import count_windows
from tiering.execution.plan import StagePlan, Step, held_memory
from tiering.execution.rates import Rates
from tiering.formats.protocols import Dataset, EdgeData
from tiering.formats.shape import EdgeShape, GraphShape
from tiering.graph.external import best_in_memory, require_windows
from tiering.graph.scatter import SLOW_TOUCH
from tiering.graph.scatter_plan import ScatterPlan, plan_scatter
from tiering.graph.sizes import CHUNK_BYTES_PER_EDGE, CscSizes
from tiering.graph.windows import chunk_edges


def predict_import(
    dataset: Dataset, out: Path, budget: Budget, rates: Rates, *, edge_ids: bool = False
) -> tuple[StagePlan, GraphShape]:
    """Plan of an import, and the sizes of the graph it makes.

    Raises
    ------
    BudgetError
        Where the import would.

    Notes
    -----
    Memory per relation: `CscSizes.in_memory`, `plan_scatter` or `CscSizes.by_windows`, whichever the import takes.
    """
    shape = GraphShape.of_dataset(dataset, edge_ids=edge_ids)
    steps: list[Step] = []
    edges = []
    for data, each in zip(dataset.edges, shape.edges, strict=True):
        sizes = CscSizes.of(shape, each)
        within = best_in_memory(sizes, data, budget)
        steps += [_in_memory(each, data, sizes, rates)] if within else _external(each, data, sizes, budget, rates)
        edges.append(EdgeShape(each.relation, each.num_edges, each.values, uncached=float(not within)))
    steps.append(_nodes(dataset, shape, rates))
    plan = StagePlan("import", out, tuple(steps), {out: shape.graph_bytes()}, held_memory())
    return plan, GraphShape(shape.nodes, tuple(edges))


def _in_memory(edges: EdgeShape, data: EdgeData, sizes: CscSizes, rates: Rates) -> Step:
    read = sum(map(uncached_bytes, _files(data)))
    written = 8 * (sizes.num_dst + 1) + sizes.num_edges * (sizes.id_bytes + sum(sizes.item_bytes))
    seconds = (
        read_seconds(read, rates.source)
        + kernel_seconds("csc", sizes.num_edges, rates, sizes.num_dst, 8)
        + len(sizes.item_bytes) * kernel_seconds("value", sizes.num_edges, rates, sizes.num_edges, 8)
        + put_seconds(written, rates, 2 + len(sizes.item_bytes))
    )
    name = relation_key(edges.relation)
    return Step(name, "in memory", sizes.in_memory(), read, written, 0, seconds, sizes.num_edges, "edge")


def _files(data: EdgeData) -> list:  # type: ignore[type-arg]
    """Arrays along the edges that the dataset brings."""
    return [data.src, data.dst, *data.data.values(), *([] if data.edge_ids is None else [data.edge_ids])]


def _external(edges: EdgeShape, data: EdgeData, sizes: CscSizes, budget: Budget, rates: Rates) -> list[Step]:
    """Steps of a relation that does not fit: its adjacency, then each array along the edges."""
    name, room = relation_key(edges.relation), budget.left()
    plan = plan_scatter(sizes, room) if sizes.num_edges else None
    if plan is not None:
        steps = _scatter(name, data, sizes, plan, rates)
    else:
        require_windows(name, sizes, budget)
        steps = [_count(name, data, sizes, budget, rates)]
        steps.append(_windows(f"{name} indices", data, sizes, sizes.id_bytes, 0, budget, rates))
    for key, item in edges.values.items():
        require_windows(name, sizes, budget)
        values = data.edge_ids if key == "edge_ids" else data.data[key]
        read = 0 if values is None else bytes_on_disk([values])
        steps.append(_windows(f"{name} {key}", data, sizes, item, read, budget, rates))
    return steps


def _scatter(name: str, data: EdgeData, sizes: CscSizes, plan: ScatterPlan, rates: Rates) -> list[Step]:
    """Both halves: scattering reads while it computes and writes; so does sorting."""
    read, edges = bytes_on_disk([data.dst, data.src]), sizes.num_edges
    whole = edges * sizes.record_bytes
    slow = 1 / rates.touch > SLOW_TOUCH
    scratch = whole if slow and plan.bytes_scratch else plan.bytes_scratch
    written = 8 * (sizes.num_dst + 1) + edges * sizes.id_bytes
    source, target = rates.source, rates.target
    memory_touched = (whole - scratch) / rates.touch
    reading, writing = read_seconds(read, source), write_seconds(scratch, target)
    disk = reading + writing if rates.one_disk else max(reading, writing)
    first = max(disk, kernel_seconds("scatter", edges, rates) + memory_touched)
    second = max(
        read_seconds(scratch, target) + write_seconds(written, target),
        kernel_seconds("sort", edges, rates),
    )
    share = f"scatter, {scratch / whole:.0%} on disk"
    return [
        Step(name, share, plan.memory, read, 0, scratch, first, edges, "edge"),
        Step(f"{name} sorted", share, plan.memory, 0, written, 0, second, edges, "edge"),
    ]


def _count(name: str, data: EdgeData, sizes: CscSizes, budget: Budget, rates: Rates) -> Step:
    read, written = bytes_on_disk([data.dst]), 8 * (sizes.num_dst + 1)
    memory = written + chunk_edges(budget) * 16
    counting = kernel_seconds("count", sizes.num_edges, rates, sizes.num_dst, 8)
    seconds = max(read_seconds(read, rates.source), counting) + put_seconds(written, rates)
    return Step(f"{name} indptr", "one pass", memory, read, written, 0, seconds, sizes.num_edges, "edge")


def _windows(name: str, data: EdgeData, sizes: CscSizes, item: int, values: int, budget: Budget, rates: Rates) -> Step:
    """A file by windows: all edges pass once for each; `values` are bytes read beside destinations (and sources)."""
    chunk = chunk_edges(budget) * CHUNK_BYTES_PER_EDGE
    room, written = budget.left() - chunk, sizes.num_edges * item
    count = count_windows(sizes.num_edges, sizes.num_dst, item, room)
    arrays = [data.dst] if name.rpartition(" ")[2] != "indices" else [data.dst, data.src]
    read = count * (bytes_on_disk(arrays) + values)
    window = min(written, -(-written // max(1, count) // BLOCK_BYTES) * BLOCK_BYTES)
    memory = min(chunk + window + 8 * sizes.num_dst, max(budget.left(), sizes.by_windows()))
    passing = kernel_seconds("pass", count * sizes.num_edges, rates)
    placing = kernel_seconds("place", sizes.num_edges, rates, sizes.num_dst, 8)
    seconds = max(read_seconds(read, rates.source), passing + placing) + write_seconds(written, rates.target)
    how = "1 window" if count == 1 else f"{count} windows"
    return Step(name, how, memory, read, written, 0, seconds, count * sizes.num_edges, "edge")


def _nodes(dataset: Dataset, shape: GraphShape, rates: Rates) -> Step:
    """Labels, splits and other arrays of the nodes; the manifests."""
    written = sum(map(shape.node_bytes, shape.node_types))
    arrays = [
        values
        for data in dataset.nodes.values()
        for values in (data.labels, *data.splits.values(), *data.extra.values())
        if values is not None
    ]
    read = sum(map(uncached_bytes, arrays))
    copied = max((8 * v.size for v in arrays if v.dtype.itemsize != 8 or not v.flags.c_contiguous), default=0)
    files = sum(len(node.arrays) for node in shape.nodes.values())
    seconds = read_seconds(read, rates.source) + put_seconds(written, rates, files)
    seconds += stage_seconds(rates)
    return Step("nodes", "in memory", copied, read, written, 0, seconds, shape.num_nodes(), "node")
