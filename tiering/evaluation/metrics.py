"""Metrics of scores: what each score's cache order serves at the capacities and tiers that were asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tiering.errors import InputError
from tiering.evaluation.bootstrap import Bootstrap
from tiering.evaluation.cache_order import ASSUMED, CacheOrder, FloatArray, IntArray, Rows, cut_order
from tiering.evaluation.counting import BUCKETS, AccessTally, BucketMap
from tiering.evaluation.link_traffic import LinkTraffic, SsdReads, SsdUnits, bound_fractions
from tiering.evaluation.result import Curve, Evaluation, TypeResult
from tiering.formats.layout import TIERS
from tiering.layout.tiers import Capacities

MAX_SHARES = 50
CURVE_POINTS = (110, 90)
"""Points of a curve: evenly spaced on a logarithmic scale of capacity, and on a linear one."""


@dataclass(frozen=True)
class MetricSpec:
    """Metrics to compute of every score: hit rates at some capacities and along a curve, traffic of a tier plan."""

    rows: Rows
    shares: tuple[float, ...]
    """Capacities as fractions of the bytes of all rows."""
    tiers: Capacities | None
    units: SsdUnits

    def __post_init__(self) -> None:
        if not 1 <= len(self.shares) <= MAX_SHARES:
            raise InputError(f"shares: expected 1 to {MAX_SHARES} capacities, found {len(self.shares)}")
        if bad := [share for share in self.shares if not 0 <= share <= 1]:
            raise InputError(f"shares: expected values between 0 and 1, found {bad[0]}")
        if self.tiers is not None:  # refuse sizes that no score fits, before anything is counted
            self.rows.plan_tiers([np.broadcast_to(np.float64(0), count) for count in self.rows.counts], self.tiers)

    @cached_property
    def curve_bytes(self) -> IntArray:
        """Capacities of the curves in bytes: int64, ascending, from 0 to all."""
        least = min(self.rows.row_bytes)
        most = max(self.rows.bytes // least, 1)
        points = np.concatenate([np.geomspace(1, most, CURVE_POINTS[0]), np.linspace(0, most, CURVE_POINTS[1])])
        capacities = np.minimum(points.round().astype(np.int64) * least, self.rows.bytes)
        return np.unique(np.concatenate([[0], capacities, [self.rows.bytes]]))

    def cut(self, values: FloatArray | IntArray, threads: int) -> CacheOrder:
        """Return the cache order of a score, cut at the shares first, then along the curve, then at the tiers."""
        capacities = [int(share * self.rows.bytes) for share in self.shares]
        return cut_order(self.rows, values, np.concatenate([capacities, self.curve_bytes]), self.tiers, threads)

    def bucket_maps(self, orders: Iterable[CacheOrder]) -> list[BucketMap]:
        """Return the buckets of each type in each order."""
        return [(t, o.buckets[self.rows.slice_type(i)]) for o in orders for i, t in enumerate(self.rows.types)]

    @property
    def has_ssd(self) -> bool:
        """Whether there is an ssd tier."""
        return self.tiers is not None and self.tiers.ssd

    @property
    def counts_ssd_reads(self) -> bool:
        """Whether there is an ssd tier of rows with known sizes, so that reads of the drives can be counted."""
        return self.has_ssd and ASSUMED not in self.rows.origins


class OrderCounts:
    """Counts along one cache order.

    `truth` holds the accesses per row over all epochs; `hits`, int64 of shape (types, groups of batches, buckets), the
    rows read, for the intervals, if there are any.
    """

    def __init__(
        self, spec: MetricSpec, order: CacheOrder, truth: IntArray, hits: IntArray | None, bootstrap: Bootstrap
    ) -> None:
        self._spec, self._order, self._hits, self._bootstrap = spec, order, hits, bootstrap
        self._served = order.count(spec.rows, truth)
        self._cached = order.count(spec.rows)

    def measure(self, cuts: IntArray, index: int | None = None) -> tuple[FloatArray, IntArray, FloatArray | None]:
        """Return hit rates, rows and intervals at some cuts, of one type or of all."""
        served, cached = _of_type(self._served, index), _of_type(self._cached, index)
        intervals = None
        if self._hits is not None:
            hits = _of_type(self._hits, index)
            intervals = self._bootstrap.interval(_up_to(hits, cuts), hits.sum(axis=1))
        return served[cuts] / max(int(served[-1]), 1), cached[cuts], intervals

    def at_shares(self, index: int | None = None) -> Curve:
        """Return the hit rates at the capacities asked for."""
        rates, cached, ends = self.measure(self._order.cuts[: len(self._spec.shares)], index)
        intervals = None if ends is None else [(float(low), float(high)) for low, high in ends]
        return Curve(rates.tolist(), intervals, cached.tolist())

    def along_curve(self) -> tuple[FloatArray, IntArray, FloatArray | None]:
        """Return hit rates, rows and intervals at the capacities of the curve."""
        return self.measure(self._order.cuts[len(self._spec.shares) :])

    def traffic(self, tiers: Capacities, epochs: int, ssd_reads: dict[str, SsdReads] | None) -> LinkTraffic:
        """Return what the tiers of this order would have moved."""
        rows, cuts, intervals = self._spec.rows, self._order.tier_cuts, None
        reads = np.diff(self._served[:, cuts], axis=1).tolist()
        if self._hits is not None:
            hits = [np.diff(_up_to(of_type, cuts), axis=1) for of_type in self._hits]
            intervals = bound_fractions(rows, hits, self._bootstrap, tiers.num_peers)
        return LinkTraffic(
            row_bytes=dict(zip(rows.types, rows.row_bytes, strict=True)),
            ranges=self._order.ranges or {},
            reads={t: dict(zip(TIERS, of_type, strict=True)) for t, of_type in zip(rows.types, reads, strict=True)},
            num_peers=tiers.num_peers,
            epochs=epochs,
            intervals=intervals,
            ssd_reads=ssd_reads,
        )


def compute(
    spec: MetricSpec,
    orders: Mapping[str, CacheOrder],
    tally: AccessTally,
    bootstrap: Bootstrap,
    ssd_reads: Mapping[str, dict[str, SsdReads]],
    **about: Any,
) -> Evaluation:
    """Compute all metrics of the scores, `ORACLE` last, which has no intervals.

    `tally` has counted the `MetricSpec.bucket_maps` of the scores, or none. `ssd_reads` are by score and node type over
    all epochs; empty where they are not counted. `about` holds the fields of `Evaluation` that are known.
    """
    rows, tiers = spec.rows, spec.tiers
    truth = rows.join(tally.accesses.features)
    hits = dict(zip(orders, tally.hits.reshape(-1, len(rows.types), tally.groups, BUCKETS), strict=False))
    counts = {name: OrderCounts(spec, order, truth, hits.get(name), bootstrap) for name, order in orders.items()}
    types = {}
    for index, node_type in enumerate(rows.types):
        accesses = truth[rows.slice_type(index)]
        types[node_type] = TypeResult(
            rows=rows.counts[index],
            row_bytes=rows.row_bytes[index],
            row_bytes_from=rows.origins[index],
            accesses=int(accesses.sum()),
            touched=int(np.count_nonzero(accesses)),
            scores={name: own.at_shares(index) for name, own in counts.items()},
        )
    traffic = capacities = None
    if tiers is not None:
        epochs = int(about["parameters"]["epochs"])
        traffic = {name: own.traffic(tiers, epochs, ssd_reads.get(name)) for name, own in counts.items()}
        sizes = {name: getattr(tiers, name) for name in ("gpu", "peer", "cpu")}
        texts = {name: None if size is None else size.text for name, size in sizes.items()}
        capacities = {**texts, "num_peers": tiers.num_peers, "ssd": tiers.ssd, **vars(spec.units)}
    curves = {name: own.along_curve() for name, own in counts.items()}
    return Evaluation(
        shares=list(spec.shares),
        scores={name: own.at_shares() for name, own in counts.items()},
        types=types,
        tiers=traffic,
        capacities=capacities,
        curve_bytes=spec.curve_bytes,
        curves={name: rates for name, (rates, _, _) in curves.items()},
        curve_rows={name: cached for name, (_, cached, _) in curves.items()},
        bands={name: band for name, (_, _, band) in curves.items() if band is not None},
        num_bytes=rows.bytes,
        **about,
    )


def _of_type(sums: IntArray, index: int | None) -> IntArray:
    """Return the sums of one type or of all, from an array whose first axis is types."""
    return np.asarray(sums.sum(axis=0) if index is None else sums[index], dtype=np.int64)


def _up_to(hits: IntArray, cuts: IntArray) -> IntArray:
    """Return the rows in the buckets in front of each cut, from shape (groups, buckets) to (groups, cuts)."""
    return np.where(cuts > 0, np.cumsum(hits, axis=1)[:, cuts - 1], 0)
