"""Tables of evaluations: hit rates, the same by node type, what a tier plan moves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tiering.description import Line, Part, Table
from tiering.evaluation.figures import fanouts_label
from tiering.evaluation.ssd_reading import LOOK_AHEAD, STATIC
from tiering.units import format_bytes, format_count, format_share

if TYPE_CHECKING:
    from tiering.evaluation.link_traffic import LinkTraffic
    from tiering.evaluation.result import Curve, Evaluation
    from tiering.evaluation.ssd_reading import SsdReading

_LINKS = {"gpu_memory": "GPU memory", "peer_link": "peer link", "host_link": "host link", "ssd": "SSD"}


def evaluation_tables(result: Evaluation, several: bool = False) -> list[Part]:
    """Return all tables of one evaluation and what was counted; among several, each names its fanouts."""
    heading = f"Fanouts {fanouts_label(result)}: s" if several else "S"
    bars = any(curve.intervals for curve in result.scores.values())
    meaning = ", ± half of its 95 % interval" if bars else ""
    capacities = [f"{100 * share:g} %" for share in result.shares]
    cached = "rows cached" if _one_size(result) else "bytes cached"
    rows = [(name, *_rates(result.scores[name])) for name in result.names()]
    title = f"{heading}hare of feature reads served, in %{meaning}"
    parts: list[Part] = [Table(title, (cached, *capacities), rows)]
    if len(result.types) > 1:
        parts.append(_by_type(result, capacities))
    if result.tiers is not None:
        parts += _tiers(result)
    if result.ssd_reading is not None:
        parts += _reading(result.ssd_reading)
    return [*parts, Line(_summary(result))]


def notes_on(results: Sequence[Evaluation]) -> Iterator[str]:
    """Yield what the user should know about the numbers: assumptions, epochs that a score has seen."""
    first = results[0]
    if any(entry.row_bytes_from == "assumed" for entry in first.types.values()):
        yield "the graph has no features: every row counts as 1 B, sizes are rows; --row-bytes says what a row has"
    for name in first.overlap:
        seen = first.seen[name]
        yield (
            f"{name} has counted epochs {seen.start} to {seen.stop - 1} of this very run: on these its hit rate "
            "is no prediction"
        )


def _by_type(result: Evaluation, capacities: Sequence[str]) -> Table:
    rows = []
    for node_type, entry in result.types.items():
        for i, name in enumerate(result.names()):
            parts = (format_share(entry.accesses, result.accesses), format_share(entry.rows, result.num_rows))
            head = ("", name, "", "") if i else (node_type, name, *parts)
            rows.append((*head, *_rates(entry.scores[name])))
    title = "By node type: share of the type's own reads served at the same capacities, in %"
    return Table(title, ("type", "score", "of all reads", "of all rows", *capacities), rows, left=2)


def _tiers(result: Evaluation) -> list[Part]:
    plans = result.tiers or {}
    sizes = result.capacities or {}
    used = [tier for tier in ("gpu", "peer", "cpu", "ssd") if any(plan.rows(tier) for plan in plans.values())]
    links = [link for link in _LINKS if any(plan.moved()[link] for plan in plans.values())]
    unit = "Rows" if _assumed(result) else "Bytes"
    columns = [*(_LINKS[link] for link in links), *_device_columns(result)]

    def cells(name: str, node_type: str | None) -> list[str]:
        plan = plans[name]
        return [*(_moved(plan, link, node_type, _assumed(result)) for link in links), *_device(plan, node_type)]

    rows = [(name, *cells(name, None)) for name in result.names()]
    parts: list[Part] = [Table(f"{unit} moved per epoch, with {_sizes(sizes)}", ("score", *columns), rows)]
    types = list(result.types)
    if len(types) > 1:
        rows = [(name if t == types[0] else "", t, *cells(name, t)) for name in result.names() for t in types]
        parts.append(Table(f"{unit} moved per epoch, by node type", ("score", "type", *columns), rows, left=2))
    return [*parts, _rows(result, used), _reads(result)]


def _rows(result: Evaluation, used: Sequence[str]) -> Table:
    """Return the rows of each type in each tier; the same for all scores where there is one type."""
    plans, names, types = result.tiers or {}, result.names(), list(result.types)
    if len(types) == 1:
        rows = [tuple(format_count(plans[names[0]].rows(tier)) for tier in used)]
        return Table("Rows in each tier", used, rows, left=0)
    rows = [
        (name if t == types[0] else "", t, *(format_count(plans[name].rows(tier, t)) for tier in used))
        for name in names
        for t in types
    ]
    return Table("Rows in each tier", ("score", "type", *used), rows, left=2)


def _reads(result: Evaluation) -> Table:
    """Return what an epoch reads of features and adjacency, wherever it lies."""
    features = {t: (entry.accesses, entry.accesses * entry.row_bytes) for t, entry in result.types.items()}
    lists = {relation: (entry.reads, entry.bytes) for relation, entry in result.adjacency.items()}
    rows = []
    for name, parts, sized in (("features", features, not _assumed(result)), ("adjacency", lists, True)):
        total = (sum(reads for reads, _ in parts.values()), sum(moved for _, moved in parts.values()))
        rows.append((name, "", *_per_epoch(result, total, sized)))
        if len(parts) > 1:
            rows += [("", part, *_per_epoch(result, sums, sized)) for part, sums in parts.items()]
    return Table("Read per epoch, from wherever it lies", ("", "", "reads", "bytes", "bytes a read"), rows, left=2)


def _per_epoch(result: Evaluation, sums: tuple[int, float], with_bytes: bool) -> tuple[str, str, str]:
    (reads, moved), epochs = sums, len(result.epochs)
    size = (format_bytes(moved / epochs), format_bytes(moved / max(1, reads))) if with_bytes else ("-", "-")
    return (format_count(round(reads / epochs)), *size)


def _rates(curve: Curve) -> Iterator[str]:
    for i, rate in enumerate(curve.hit_rates):
        ends = None if curve.intervals is None else curve.intervals[i]
        yield f"{100 * rate:.1f}{_half(ends)}"


def _half(ends: tuple[float, float] | None) -> str:
    if ends is None:
        return ""
    half = 50 * (ends[1] - ends[0])
    return f" ±{half:.1f}" if half >= 0.05 or half == 0 else f" ±{half:.2f}"


def _moved(plan: LinkTraffic, link: str, node_type: str | None, rows: bool) -> str:
    moved, part = plan.moved(node_type)[link], plan.shares(node_type)[link]
    ends = None if plan.intervals is None or node_type is not None else plan.intervals[link]
    return f"{format_count(round(moved)) if rows else format_bytes(moved)}  {100 * part:.1f}{_half(ends)} %"


def _device_columns(result: Evaluation) -> list[str]:
    """Return the headings of `_device`: reads of the drives for the rows in the column before."""
    return ["read from SSD", "pages"] if any(plan.ssd_reads for plan in (result.tiers or {}).values()) else []


def _device(plan: LinkTraffic, node_type: str | None) -> list[str]:
    reads = plan.device(node_type)
    return [] if reads is None else [format_bytes(reads["bytes"]), format_count(round(reads["pages"]))]


def _reading(reading: SsdReading) -> list[Part]:
    """Return one table for each size of memory: cost of each policy, for each score's order on disk."""
    parts: list[Part] = []
    for size, first in enumerate(next(iter(reading.scores.values()))):
        rows: list[tuple[str, ...]] = []
        for name, sizes in reading.scores.items():
            for policy, read in sizes[size].policies.items():
                amounts = (f"{read.seconds:.5f}", format_count(round(read.requests)), format_bytes(read.bytes))
                choice = str(sizes[size].choice) if policy == LOOK_AHEAD else ""
                rows.append((name if policy == STATIC else "", policy, *amounts, choice))
        held = f"{first.memory.text} ({format_bytes(first.bytes)}, {format_count(first.rows)} rows)"
        columns = ("rows in order of", "policy", "I/O seconds", "requests", "bytes", "")
        parts.append(Table(f"Read from SSD per batch, simulated, with {held} in memory", columns, rows, left=2))
    counted = f"the last {format_count(reading.counted)} of {format_count(reading.batches)} batches"
    return [*parts, Line(f"Simulated: {counted}, those before fill the memory; a disk of {reading.speed}")]


def _sizes(sizes: dict[str, Any]) -> str:
    peers = f"{sizes['num_peers']}x{sizes['peer']}" if sizes["peer"] else None
    named = {"gpu": sizes["gpu"], "peer": peers, "cpu": sizes["cpu"], "ssd": "for the rest" if sizes["ssd"] else None}
    return ", ".join(f"{tier} {size}" for tier, size in named.items() if size)


def _summary(result: Evaluation) -> str:
    epochs = result.epochs
    which = f"epoch {epochs.start}" if len(epochs) == 1 else f"epochs {epochs.start} to {epochs.stop - 1}"
    return (
        f"{format_count(result.accesses)} reads in {format_count(result.batches)} batches of {which} "
        f"({format_count(round(result.accesses / max(1, result.batches)))} rows a batch); "
        f"{format_count(result.touched)} of {format_count(result.num_rows)} rows were read at least once"
    )


def _one_size(result: Evaluation) -> bool:
    return len({entry.row_bytes for entry in result.types.values()}) <= 1


def _assumed(result: Evaluation) -> bool:
    return any(entry.row_bytes_from == "assumed" for entry in result.types.values())
