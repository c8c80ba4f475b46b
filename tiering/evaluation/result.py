"""The result of an evaluation: numbers, their order in tables, their JSON form."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from tiering.description import Described, Line, Part, Plot
from tiering.evaluation.cache_order import FloatArray, IntArray
from tiering.evaluation.counting import ListReads
from tiering.evaluation.link_traffic import LinkTraffic
from tiering.evaluation.ssd_reading import SsdReading

ORACLE = "oracle"
"""Name of the ranking by true counts in every result."""

Ends: TypeAlias = "list[tuple[float, float]] | None"
"""Per capacity the lower and upper end of a 95 % interval; ``None`` where there is none."""


@dataclass(frozen=True)
class Curve:
    """Hit rates of one score over a set of rows (all that compete, or those of one type)."""

    hit_rates: list[float]
    """Per capacity: fraction of the accesses to these rows that is served."""
    intervals: Ends
    """Their 95 % intervals (`tiering.evaluation.bootstrap`); ``None`` for the oracle and with fewer than 2 batches."""
    cached_rows: list[int]
    """Per capacity: rows of this set in the cache."""


@dataclass(frozen=True)
class TypeResult:
    """Accesses to the rows of one node type, and what caches serve of them at the common capacities."""

    rows: int
    row_bytes: int
    """Bytes of one row."""
    row_bytes_from: str
    """``features``: the graph's feature table; ``given``: the caller; ``assumed``: unknown, a row counts as 1 byte."""
    accesses: int
    """Accesses over all epochs."""
    touched: int
    """Rows accessed at least once."""
    scores: dict[str, Curve]
    """Per score, and `ORACLE` last."""


@dataclass(frozen=True)
class Evaluation(Described):
    """Hit rates of each score and of the oracle."""

    shares: list[float]
    """Capacities as fractions of the bytes of all rows that compete."""
    scores: dict[str, Curve]
    """Per score, and `ORACLE` last: all rows together."""
    types: dict[str, TypeResult]
    """Per competing node type."""
    tiers: dict[str, LinkTraffic] | None
    """Per score, and `ORACLE` last: traffic of the tier plan; ``None`` without one."""
    capacities: dict[str, Any] | None
    """``gpu``, ``peer``, ``num_peers``, ``cpu``, ``ssd`` as given; ``page_bytes``, ``block_bytes`` (`SsdUnits`)."""
    curve_bytes: IntArray = field(repr=False)
    """Capacities of the curves in bytes, ascending from 0 to `num_bytes`."""
    curves: dict[str, FloatArray] = field(repr=False)
    """Per score, and `ORACLE`: hit rate at each of `curve_bytes`."""
    curve_rows: dict[str, IntArray] = field(repr=False)
    """Per score, and `ORACLE`: rows that fit into each of `curve_bytes`."""
    bands: dict[str, FloatArray] = field(repr=False)
    """Per score that has intervals: float64, shape (len(curve_bytes), 2)."""
    num_bytes: int
    """Bytes of all rows that compete."""
    adjacency: dict[str, ListReads]
    """Per relation key: lists that sampling read."""
    batches: int
    """Batches sampled, over all epochs."""
    seen: dict[str, range]
    """Per pre-sampled score of the same run (seed): the epochs it has counted."""
    parameters: dict[str, Any]
    """Sampling options, epochs counted, training nodes per type, node types that compete."""
    ssd_reading: SsdReading | None = None
    """Simulated reading from SSD for some sizes of memory; ``None`` without them."""

    @property
    def hit_rates(self) -> dict[str, list[float]]:
        """Per score, and `ORACLE` last: fraction of accesses served at each capacity."""
        return {name: curve.hit_rates for name, curve in self.scores.items()}

    @property
    def num_rows(self) -> int:
        """Rows that compete."""
        return sum(entry.rows for entry in self.types.values())

    @property
    def accesses(self) -> int:
        """Accesses to these rows over all epochs."""
        return sum(entry.accesses for entry in self.types.values())

    @property
    def touched(self) -> int:
        """Rows accessed at least once."""
        return sum(entry.touched for entry in self.types.values())

    @property
    def epochs(self) -> range:
        """Epochs counted."""
        first = int(self.parameters["first_epoch"])
        return range(first, first + int(self.parameters["epochs"]))

    @property
    def overlap(self) -> list[str]:
        """Scores that have counted some of these epochs: their hit rates are no predictions."""
        own = self.epochs
        return [name for name, seen in self.seen.items() if max(seen.start, own.start) < min(seen.stop, own.stop)]

    def names(self) -> list[str]:
        """Return the scores, best first at the middle capacity, the oracle last."""
        middle = len(self.shares) // 2
        names = [name for name in self.scores if name != ORACLE]
        return [*sorted(names, key=lambda name: -self.scores[name].hit_rates[middle]), ORACLE]

    def rows(self) -> list[tuple[str, list[float]]]:
        """Return name and hit rates of each score in the order of `names`."""
        return [(name, self.scores[name].hit_rates) for name in self.names()]

    def table(self) -> str:
        """Return the hit rates as text, one line per score."""
        width = max(len("bytes cached"), *(len(name) for name in self.scores))
        head = f"{'bytes cached':<{width}}" + "".join(f"{100 * share:>8.4g}%" for share in self.shares)
        lines = [f"{name:<{width}}" + "".join(f"{rate:>9.3f}" for rate in rates) for name, rates in self.rows()]
        return "\n".join([head, *lines])

    def describe(self) -> list[Part]:
        """Return the tables, notes on them, and the curves."""
        from tiering.evaluation.figures import draw_evaluation
        from tiering.evaluation.tables import evaluation_tables, notes_on

        notes = [Line(f"note: {text}") for text in notes_on([self])]
        plot = Plot("What each score would have served", partial(draw_evaluation, result=self))
        return [*evaluation_tables(self), *notes, plot]

    def to_json(self, *, curves: bool = False) -> dict[str, Any]:
        """Return the JSON form; with `curves` also the points that `tiering.evaluation.figures` draws.

        Returns
        -------
        dict
            ``shares``: capacities as fractions of ``num_bytes``. ``hit_rates``, ``intervals``, ``cached_rows``: by
            score, one entry per capacity; an interval is ``[low, high]`` or ``null``, and there are none for
            ``oracle``. ``num_rows``, ``num_bytes``, ``touched_rows``, ``accesses``, ``batches``, ``rows_per_batch``.
            ``types``: by node type ``rows``, ``row_bytes``, ``row_bytes_from``, ``accesses``, ``access_share``,
            ``touched_rows``, and ``hit_rates``, ``intervals``, ``cached_rows`` of its own rows.
            ``tiers``: ``null``, or ``capacities`` and by score ``links`` (``gpu_memory``, ``peer_link``,
            ``host_link``, ``ssd``: ``bytes_per_epoch``, ``share`` of all bytes, ``interval`` of the share; ``ssd`` also
            ``bytes_read_per_epoch`` and ``pages_read_per_epoch`` of the drives, or ``null``), ``tiers`` (``gpu``,
            ``peer``, ``cpu``, ``ssd``: ``rows``, ``bytes``, ``reads_per_epoch``) and ``types``, the same by node type
            without intervals.
            ``ssd_reading``: ``null``, or ``ssd_model`` (``reads_per_second``, ``bytes_per_second``, as a file for
            ``--ssd-model`` has them), ``batches``, ``counted_batches``, and in ``scores`` by score one entry per size
            of memory: ``memory`` as given, ``bytes``, ``rows``, and by name in ``policies`` (`ssd_reading.POLICIES`)
            ``seconds_per_batch``, ``requests_per_batch``, ``bytes_per_batch``; ``look-ahead`` also has ``window``,
            ``horizon`` and ``gap_bytes``.
            ``adjacency``: ``reads_per_epoch`` and ``bytes_per_epoch`` of the lists that sampling reads, and the same
            by relation in ``relations``. ``epochs``: ``first``, ``count``, ``seen`` (by score ``[first, end)``),
            ``overlap`` (names of scores). ``parameters``: `Evaluation.parameters`. ``curves``, on request: ``bytes``,
            and ``rows``, ``hit_rates`` and ``intervals`` by score, one entry per point.
        """
        document: dict[str, Any] = {
            "shares": self.shares,
            **_curves_json(self.scores),
            "num_rows": self.num_rows,
            "num_bytes": self.num_bytes,
            "touched_rows": self.touched,
            "accesses": self.accesses,
            "batches": self.batches,
            "rows_per_batch": self.accesses / max(1, self.batches),
            "types": {name: self._type_json(entry) for name, entry in self.types.items()},
            "tiers": self._tiers_json(),
            "ssd_reading": None if self.ssd_reading is None else self.ssd_reading.to_json(),
            "adjacency": self._adjacency_json(),
            "epochs": {
                "first": self.epochs.start,
                "count": len(self.epochs),
                "seen": {name: [seen.start, seen.stop] for name, seen in self.seen.items()},
                "overlap": self.overlap,
            },
            "parameters": self.parameters,
        }
        if curves:
            document["curves"] = {
                "bytes": self.curve_bytes.tolist(),
                "rows": {name: rows.tolist() for name, rows in self.curve_rows.items()},
                "hit_rates": {name: curve.tolist() for name, curve in self.curves.items()},
                "intervals": {name: band.tolist() for name, band in self.bands.items()},
            }
        return document

    def _type_json(self, entry: TypeResult) -> dict[str, Any]:
        return {
            "rows": entry.rows,
            "row_bytes": entry.row_bytes,
            "row_bytes_from": entry.row_bytes_from,
            "accesses": entry.accesses,
            "access_share": entry.accesses / max(1, self.accesses),
            "touched_rows": entry.touched,
            **_curves_json(entry.scores),
        }

    def _adjacency_json(self) -> dict[str, Any]:
        epochs, lists = len(self.epochs), self.adjacency.values()
        everything = ListReads(sum(reads.reads for reads in lists), sum(reads.bytes for reads in lists))
        return {
            **everything.per_epoch(epochs),
            "relations": {relation: reads.per_epoch(epochs) for relation, reads in self.adjacency.items()},
        }

    def _tiers_json(self) -> dict[str, Any] | None:
        if self.tiers is None:
            return None
        return {
            "capacities": self.capacities,
            "scores": {name: traffic.to_json() for name, traffic in self.tiers.items()},
        }


def _curves_json(scores: dict[str, Curve]) -> dict[str, Any]:
    ends = {name: curve.intervals for name, curve in scores.items() if name != ORACLE}
    return {
        "hit_rates": {name: curve.hit_rates for name, curve in scores.items()},
        "intervals": {
            name: [None] * len(scores[name].hit_rates) if pairs is None else [list(pair) for pair in pairs]
            for name, pairs in ends.items()
        },
        "cached_rows": {name: curve.cached_rows for name, curve in scores.items()},
    }
