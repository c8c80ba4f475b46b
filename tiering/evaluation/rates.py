"""The counts of an evaluation: hit rates of each score and of the oracle."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tiering.evaluation.cache_order import FloatArray, IntArray, LinkTraffic
from tiering.evaluation.ssd_reading import SsdReading

ORACLE = "oracle"  # name of the ranking by true counts in every result
_LABEL = 28  # characters


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
class CountedRates(Rates):
    """Hit rates of each score and of the oracle, over all rows that compete, and what else was counted.

    `shares` are capacities as fractions of `num_bytes`; `types` the competing node types. `tiers` and `ssd_reading` are
    there where they were asked for. `parameters`: sampling options, epochs counted, training nodes per type. At each of
    `curve_bytes`, capacities that ascend from 0 to `num_bytes`: by score hit rate, rows that fit, and for `bands` of
    scores that have intervals these, shape (capacities, 2).
    """

    shares: list[float]
    types: dict[str, TypeResult]
    num_rows: int
    num_bytes: int
    touched_rows: int  # rows accessed at least once
    accesses: int  # accesses over all epochs
    batches: int
    tiers: dict[str, LinkTraffic] | None  # per score, and `ORACLE` last: traffic of the tier plan
    capacities: dict[str, Any] | None
    """``gpu``, ``peer``, ``num_peers``, ``cpu``, ``ssd`` as given; ``page_bytes``, ``block_bytes`` (`SsdUnits`)."""
    curve_bytes: IntArray = field(repr=False)
    curves: dict[str, FloatArray] = field(repr=False)
    curve_rows: dict[str, IntArray] = field(repr=False)
    bands: dict[str, FloatArray] = field(repr=False)
    adjacency: dict[str, Any]  # lists that sampling read: `tiering.evaluation.counting.count_list_reads`
    seen: dict[str, range]  # per pre-sampled score of the same run (seed): the epochs it has counted
    parameters: dict[str, Any]
    ssd_reading: SsdReading | None = None

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
        names, middle = [name for name in self.hit_rates if name != ORACLE], len(self.shares) // 2
        return [*sorted(names, key=lambda name: -self.hit_rates[name][middle]), ORACLE]


def fanouts_label(result: CountedRates) -> str:
    """Return the fanouts of an evaluation in a few characters: ``10,10``; those per relation are cut short."""
    parts = []
    for hop in result.parameters["fanouts"]:
        parts.append(",".join(f"{r}={n}" for r, n in hop.items()) if isinstance(hop, dict) else str(hop))
    text = (";" if any("=" in part for part in parts) else ",").join(parts)
    return text if len(text) <= _LABEL else text[: _LABEL - 1] + "…"


def epochs_label(epochs: range) -> str:
    """Return the epochs counted in words."""
    return f"epoch {epochs.start}" if len(epochs) == 1 else f"epochs {epochs.start} to {epochs.stop - 1}"
