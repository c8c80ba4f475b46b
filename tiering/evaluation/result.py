"""The result of an evaluation: numbers, their tables, their JSON form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from tiering.evaluation.cache_order import ASSUMED, ORACLE, FloatArray, IntArray, LinkTraffic
from tiering.evaluation.figures import draw_evaluation
from tiering.evaluation.locality import Locality
from tiering.formats.layout import TIERS
from tiering.text.description import Described, Part, Plot, Table
from tiering.text.units import format_bytes, format_count, format_fanouts, format_share

_LABEL = 28  # characters of the fanouts
_LINKS = {"gpu_memory": "GPU memory", "peer_link": "peer link", "host_link": "host link", "ssd": "SSD"}


@dataclass(frozen=True)
class Rates:
    """Hit rates over some rows of caches filled by each score, and last by `ORACLE`: one entry per capacity."""

    hit_rates: dict[str, list[float]]  # fraction of the accesses to these rows that is served
    intervals: dict[str, list[Any]]
    """Ends of their 95 % intervals, ``None`` with fewer than 2 batches; none for the oracle."""
    cached_rows: dict[str, list[int]]  # number of these rows in the cache


@dataclass(frozen=True)
class TypeResult(Rates):
    """Accesses to the rows of one node type over all epochs, and what the common capacities serve of them."""

    rows: int
    row_bytes: int
    row_bytes_from: str
    """``features``: the graph's feature table; ``given``: the caller; ``assumed``: unknown, a row counts as 1 byte."""
    accesses: int
    access_share: float
    touched_rows: int  # rows accessed at least once


@dataclass(frozen=True)
class Evaluation(Rates, Described):
    """Hit rates of each score and of the oracle over all rows that compete, and what else was counted; shows itself.

    `shares` are capacities as fractions of `num_bytes`; `types` the competing node types. `parameters`: sampling
    options, epochs counted, training nodes per type. At each of `curve_bytes`, capacities that ascend from 0 to
    `num_bytes`: by score hit rate, rows that fit, and for `bands` of scores that have intervals these, shape
    (capacities, 2). `tiers` is ``None`` unless requested.
    """

    shares: list[float]
    types: dict[str, TypeResult]
    num_rows: int
    num_bytes: int
    accesses: int  # accesses over all epochs
    curve_bytes: IntArray = field(repr=False)
    curves: dict[str, FloatArray] = field(repr=False)
    curve_rows: dict[str, IntArray] = field(repr=False)
    bands: dict[str, FloatArray] = field(repr=False)
    parameters: dict[str, Any]
    touched_rows: int  # rows accessed at least once
    batches: int
    tiers: dict[str, LinkTraffic] | None  # per score, and `ORACLE` last: traffic of the tier plan
    capacities: dict[str, Any] | None
    """``gpu``, ``peer``, ``num_peers``, ``cpu``, ``ssd`` as given; ``page_bytes``, ``block_bytes``."""
    adjacency: dict[str, Any]  # lists that sampling read: `tiering.evaluation.counting.count_list_reads`
    seen: dict[str, range]  # per pre-sampled score of the same run (seed): the epochs it has counted
    locality: Locality

    @property
    def epochs(self) -> range:
        """Epochs counted."""
        first = int(self.parameters["first_epoch"])
        return range(first, first + int(self.parameters["epochs"]))

    @property
    def fanouts(self) -> str:
        """The fanouts in a few characters: ``10,10``; those per relation are cut short."""
        text = format_fanouts(self.parameters["fanouts"])
        return text if len(text) <= _LABEL else text[: _LABEL - 1] + "…"

    @property
    def epochs_label(self) -> str:
        """The epochs counted in words."""
        epochs = self.epochs
        return f"epoch {epochs.start}" if len(epochs) == 1 else f"epochs {epochs.start} to {epochs.stop - 1}"

    @property
    def overlap(self) -> list[str]:
        """Scores that have counted some of these epochs: their hit rates are no predictions."""
        own = self.epochs
        return [name for name, seen in self.seen.items() if max(seen.start, own.start) < min(seen.stop, own.stop)]

    def names(self) -> list[str]:
        """Return the scores, best first at the middle capacity, the oracle last."""
        names, middle = [name for name in self.hit_rates if name != ORACLE], len(self.shares) // 2
        return [*sorted(names, key=lambda name: -self.hit_rates[name][middle]), ORACLE]

    def table(self) -> str:
        """Return the hit rates as text, one line per score."""
        width = max(len("bytes cached"), *(len(name) for name in self.hit_rates))
        lines = [f"{'bytes cached':<{width}}" + "".join(f"{100 * share:>8.4g}%" for share in self.shares)]
        for name in self.names():
            lines.append(f"{name:<{width}}" + "".join(f"{rate:>9.3f}" for rate in self.hit_rates[name]))
        return "\n".join(lines)

    def describe(self) -> list[Part]:
        """Return the tables, notes on them, and the curves."""
        notes = [f"note: {text}" for text in notes_on([self])]
        plot = Plot("Hit rates of a cache filled by each score", partial(draw_evaluation, result=self))
        return [*evaluation_tables(self), *notes, plot]

    def to_json(self) -> dict[str, Any]:
        """Return the document of ``--json``, which docs/evaluate.md describes."""
        names = ("shares", "hit_rates", "intervals", "cached_rows", "num_rows", "num_bytes", "touched_rows")
        document = {name: getattr(self, name) for name in (*names, "accesses", "batches", "adjacency", "parameters")}
        document |= {"rows_per_batch": self.accesses / max(1, self.batches), "locality": self.locality.to_json()}
        document["types"] = {name: asdict(entry) for name, entry in self.types.items()}
        scores = {name: traffic.to_json() for name, traffic in (self.tiers or {}).items()}
        document["tiers"] = None if self.tiers is None else {"capacities": self.capacities, "scores": scores}
        seen = {name: [seen.start, seen.stop] for name, seen in self.seen.items()}
        first, count = self.epochs.start, len(self.epochs)
        document["epochs"] = {"first": first, "count": count, "seen": seen, "overlap": self.overlap}
        return document


def notes_on(results: Sequence[Evaluation]) -> Iterator[str]:
    """Yield what the user should know about the numbers: assumptions, epochs that a score has seen."""
    if _assumed(results[0]):
        yield "the graph has no features: every row counts as 1 B; give the size of a row with --row-bytes"
    for name in results[0].overlap:
        seen = results[0].seen[name]
        yield (
            f"{name} has counted epochs {seen.start} to {seen.stop - 1} of this same run: for these epochs its hit "
            "rate is not a prediction"
        )


def evaluation_tables(result: Evaluation, several: bool = False) -> list[Part]:
    """Return all tables of one evaluation and what was counted; among several, each names its fanouts."""
    heading = f"Fanouts {result.fanouts}: p" if several else "P"
    meaning = ", ± half the 95 % interval" if result.bands else ""
    capacities = [f"{100 * share:g} %" for share in result.shares]
    cached = "rows cached" if len({entry.row_bytes for entry in result.types.values()}) <= 1 else "bytes cached"
    rows: list[tuple[str, ...]] = [(name, *_rates(result, name)) for name in result.names()]
    parts: list[Part] = [Table(f"{heading}ercent of feature reads served{meaning}", (cached, *capacities), rows)]
    if len(result.types) > 1:
        rows = []
        for node_type, entry in result.types.items():
            of_all = (format_share(entry.accesses, result.accesses), format_share(entry.rows, result.num_rows))
            for i, name in enumerate(result.names()):
                rows.append((*(("", name, "", "") if i else (node_type, name, *of_all)), *_rates(entry, name)))
        title = "By node type: percent of the type's reads served, at the same capacities"
        parts.append(Table(title, ("type", "score", "% of all reads", "% of all rows", *capacities), rows, left=2))
    if result.tiers is not None:
        parts += _traffic_tables(result, result.tiers)
    rows_per_batch = format_count(round(result.accesses / max(1, result.batches)))
    summary = (
        f"{format_count(result.accesses)} reads in {format_count(result.batches)} batches of {result.epochs_label} "
        f"({rows_per_batch} rows per batch); {format_count(result.touched_rows)} of {format_count(result.num_rows)} "
        "rows were read at least once"
    )
    return [*parts, summary, str(result.locality)]


def _traffic_tables(result: Evaluation, tiers: Mapping[str, LinkTraffic]) -> list[Part]:
    plans = {name: tiers[name].to_json() for name in result.names()}
    links = [link for link in _LINKS if any(plan["links"][link]["bytes_per_epoch"] for plan in plans.values())]
    used = [tier for tier in TIERS if any(plan["tiers"][tier]["rows"] for plan in plans.values())]
    device = plans[ORACLE]["links"]["ssd"]["bytes_read_per_epoch"] is not None
    counted, types = _assumed(result), list(result.types)

    def moved(part: Mapping[str, Any]) -> Iterator[str]:
        for link in (part["links"][name] for name in links):
            amount = link["bytes_per_epoch"]
            text = format_count(round(amount)) if counted else format_bytes(amount)
            yield f"{text}  {100 * link['share']:.1f}{_half(link.get('interval'))} %"
        if device:
            ssd = part["links"]["ssd"]
            yield from (format_bytes(ssd["bytes_read_per_epoch"]), format_count(round(ssd["pages_read_per_epoch"])))

    def rows_in(part: Mapping[str, Any]) -> Iterator[str]:
        return (format_count(part["tiers"][tier]["rows"]) for tier in used)

    def by_type(title: str, columns: Sequence[str], cells: Callable[[Mapping[str, Any]], Iterator[str]]) -> Table:
        rows = [(name if t == types[0] else "", t, *cells(plans[name]["types"][t])) for name in plans for t in types]
        return Table(title, ("score", "type", *columns), rows, left=2)

    columns = [*(_LINKS[link] for link in links), *(("bytes read from SSD", "pages read from SSD") if device else ())]
    title = f"{'Rows' if counted else 'Bytes'} moved per epoch, "
    whole = [(name, *moved(plan)) for name, plan in plans.items()]
    parts: list[Part] = [Table(f"{title}with {_sizes(result.capacities or {})}", ("score", *columns), whole)]
    if len(types) == 1:
        parts.append(Table("Rows in each tier", used, [tuple(rows_in(plans[ORACLE]))], left=0))
    else:
        parts += [by_type(f"{title}by node type", columns, moved), by_type("Rows in each tier", used, rows_in)]
    return [*parts, _read_table(result)]


def _read_table(result: Evaluation) -> Table:
    epochs = len(result.epochs)
    features = {t: (e.accesses / epochs, e.accesses * e.row_bytes / epochs) for t, e in result.types.items()}
    lists = {key: tuple(own.values()) for key, own in result.adjacency["relations"].items()}
    rows = []
    for name, parts, sized in (("features", features, not _assumed(result)), ("adjacency", lists, True)):
        reads, sizes = (sum(column) for column in zip(*parts.values(), strict=True))
        for label, part, read, size in [(name, "", reads, sizes), *(("", t, *own) for t, own in parts.items())]:
            cells = (format_bytes(size), format_bytes(size / max(1 / epochs, read))) if sized else ("-", "-")
            if label or len(parts) > 1:
                rows.append((label, part, format_count(round(read)), *cells))
    columns = ("data", "type or relation", "reads", "bytes", "bytes per read")
    return Table("Reads per epoch, from all tiers together", columns, rows, left=2)


def _rates(rates: Rates, name: str) -> Iterator[str]:
    intervals = rates.intervals.get(name) or [None] * len(rates.hit_rates[name])
    for rate, ends in zip(rates.hit_rates[name], intervals, strict=True):
        yield f"{100 * rate:.1f}{_half(ends)}"


def _half(ends: Sequence[float] | None) -> str:
    if ends is None:
        return ""
    half = 50 * (ends[1] - ends[0])
    return f" ±{half:.1f}" if half >= 0.05 or half == 0 else f" ±{half:.2f}"


def _sizes(sizes: dict[str, Any]) -> str:
    peers = f"{sizes['num_peers']}x{sizes['peer']}" if sizes["peer"] else None
    named = {"gpu": sizes["gpu"], "peer": peers, "cpu": sizes["cpu"], "ssd": "for the rest" if sizes["ssd"] else None}
    return ", ".join(f"{tier} {size}" for tier, size in named.items() if size)


def _assumed(result: Evaluation) -> bool:
    return any(entry.row_bytes_from == ASSUMED for entry in result.types.values())
