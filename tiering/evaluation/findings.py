"""From counts to results: what each score's line serves at each place that was asked about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tiering.errors import InputError
from tiering.evaluation.bootstrap import Bootstrap
from tiering.evaluation.line import ASSUMED, FloatArray, IntArray, Ranking, Rows, check_tiers, rank_rows
from tiering.evaluation.result import Curve, Evaluation, TypeResult
from tiering.evaluation.traffic import SsdReads, SsdUnits, Traffic, link_intervals
from tiering.formats.layout import TIERS
from tiering.layout.tiers import Capacities

SHARES = (0.01, 0.02, 0.05, 0.10, 0.20, 0.40)
"""Capacities reported by default, as shares of the bytes of all feature rows."""
MAX_SHARES = 50
CURVE_POINTS = (110, 90)
"""Points of a curve: as many evenly spaced on a logarithmic scale of capacity, and on a linear one."""


@dataclass(frozen=True)
class Questions:
    """What is asked of every score: hit rates at some shares of all bytes and along a curve, traffic of a tier plan."""

    rows: Rows
    shares: tuple[float, ...]
    tiers: Capacities | None
    units: SsdUnits

    def __post_init__(self) -> None:
        if not 1 <= len(self.shares) <= MAX_SHARES:
            raise InputError(f"shares: expected 1 to {MAX_SHARES} capacities, found {len(self.shares)}")
        if bad := [share for share in self.shares if not 0 <= share <= 1]:
            raise InputError(f"shares: expected values between 0 and 1, found {bad[0]}")
        if self.tiers is not None:
            check_tiers(self.rows, self.tiers)

    @cached_property
    def curve_bytes(self) -> IntArray:
        """Capacities of the curves in bytes: int64, ascending, from 0 to all."""
        least = min(self.rows.row_bytes)
        most = max(self.rows.bytes // least, 1)
        points = np.concatenate([np.geomspace(1, most, CURVE_POINTS[0]), np.linspace(0, most, CURVE_POINTS[1])])
        capacities = np.minimum(points.round().astype(np.int64) * least, self.rows.bytes)
        return np.unique(np.concatenate([[0], capacities, [self.rows.bytes]]))

    def rank(self, values: FloatArray | IntArray, threads: int) -> Ranking:
        """Line of a score, cut at the shares first, then along the curve, then at the tiers."""
        asked = [int(share * self.rows.bytes) for share in self.shares]
        capacities = np.concatenate([asked, self.curve_bytes]).astype(np.int64)
        return rank_rows(self.rows, values, capacities, self.tiers, threads)

    @property
    def has_ssd(self) -> bool:
        """Whether there is an ssd tier."""
        return self.tiers is not None and self.tiers.ssd

    @property
    def reads_ssd(self) -> bool:
        """Whether there is one and rows have known sizes, so that what drives deliver can be said."""
        return self.has_ssd and ASSUMED not in self.rows.origins


class Line:
    """One score's line, and what was counted along it: of one type, or of all without an index.

    `truth` has the accesses per row over all epochs; `hits`, int64 of shape (types, groups of batches, buckets), rows
    read, for the error bars, if there are any.
    """

    def __init__(
        self, questions: Questions, ranking: Ranking, truth: IntArray, hits: IntArray | None, bootstrap: Bootstrap
    ) -> None:
        self._shares, self._rows = len(questions.shares), questions.rows
        self._ranking, self._hits, self._bootstrap = ranking, hits, bootstrap
        self.served = ranking.count(self._rows, truth)
        """Accesses to the rows up to each edge: int64, shape (types, edges)."""
        self.cached = ranking.count(self._rows)
        """Rows up to each edge."""

    def at_shares(self, index: int | None = None) -> Curve:
        """Hit rates at the shares asked for."""
        cuts = self._ranking.cuts[: self._shares]
        ends = self.intervals(cuts, index)
        return Curve(
            self.hit_rates(cuts, index).tolist(),
            None if ends is None else [(float(low), float(high)) for low, high in ends],
            _of_type(self.cached, index)[cuts].tolist(),
        )

    def along_curve(self) -> tuple[FloatArray, IntArray, FloatArray | None]:
        """Hit rates, rows and intervals at the capacities of the curve."""
        cuts = self._ranking.cuts[self._shares :]
        return self.hit_rates(cuts), _of_type(self.cached, None)[cuts], self.intervals(cuts)

    def hit_rates(self, cuts: IntArray, index: int | None = None) -> FloatArray:
        """Share of the accesses that go to the rows in front of each cut."""
        served = _of_type(self.served, index)
        rates: FloatArray = served[cuts] / max(int(served[-1]), 1)
        return rates

    def intervals(self, cuts: IntArray, index: int | None = None) -> FloatArray | None:
        """Intervals of these shares: float64, shape (cuts, 2); the oracle has none."""
        if self._hits is None:
            return None
        hits = _of_type(self._hits, index)
        return self._bootstrap.interval(_up_to(hits, cuts), hits.sum(axis=1))

    def traffic(self, tiers: Capacities, epochs: int, ssd_reads: dict[str, SsdReads] | None) -> Traffic:
        """What the tiers of the line would have moved."""
        rows, cuts, intervals = self._rows, self._ranking.tier_cuts, None
        reads = np.diff(self.served[:, cuts], axis=1).tolist()
        if self._hits is not None:
            hits = [_up_to(of_type, cuts) for of_type in self._hits]
            intervals = link_intervals(rows, hits, self._bootstrap, tiers.num_peers)
        return Traffic(
            row_bytes=dict(zip(rows.types, rows.row_bytes, strict=True)),
            ranges=self._ranking.ranges or {},
            reads={t: dict(zip(TIERS, of_type, strict=True)) for t, of_type in zip(rows.types, reads, strict=True)},
            num_peers=tiers.num_peers,
            epochs=epochs,
            intervals=intervals,
            ssd_reads=ssd_reads,
        )


def answer(
    questions: Questions,
    lines: Mapping[str, Line],
    truth: IntArray,
    ssd: Mapping[str, dict[str, SsdReads]],
    **about: Any,
) -> Evaluation:
    """Answer all questions from the lines of the scores, `ORACLE` last; `about` says how it was counted.

    `ssd`: by score and node type, what the SSDs delivered over all epochs; empty where that is not asked or not known.
    """
    rows, tiers = questions.rows, questions.tiers
    types = {}
    for index, node_type in enumerate(rows.types):
        own = truth[rows.part(index)]
        types[node_type] = TypeResult(
            rows=rows.counts[index],
            row_bytes=rows.row_bytes[index],
            row_bytes_from=rows.origins[index],
            accesses=int(own.sum()),
            touched=int(np.count_nonzero(own)),
            scores={name: line.at_shares(index) for name, line in lines.items()},
        )
    epochs = int(about["parameters"]["epochs"])
    moved = None
    if tiers is not None:
        moved = {name: line.traffic(tiers, epochs, ssd.get(name)) for name, line in lines.items()}
    curves = {name: line.along_curve() for name, line in lines.items()}
    return Evaluation(
        shares=list(questions.shares),
        scores={name: line.at_shares() for name, line in lines.items()},
        types=types,
        tiers=moved,
        capacities=None if tiers is None else _capacities_json(tiers, questions.units),
        curve_bytes=questions.curve_bytes,
        curves={name: rates for name, (rates, _, _) in curves.items()},
        curve_rows={name: cached for name, (_, cached, _) in curves.items()},
        bands={name: band for name, (_, _, band) in curves.items() if band is not None},
        num_bytes=rows.bytes,
        **about,
    )


def _of_type(sums: IntArray, index: int | None) -> IntArray:
    """Sums of one type or of all, from an array whose first axis is types."""
    return np.asarray(sums.sum(axis=0) if index is None else sums[index], dtype=np.int64)


def _up_to(hits: IntArray, cuts: IntArray) -> IntArray:
    """Rows in the buckets in front of each cut, from shape (groups, buckets) to (groups, cuts)."""
    return np.where(cuts > 0, np.cumsum(hits, axis=1)[:, cuts - 1], 0)


def _capacities_json(tiers: Capacities, units: SsdUnits) -> dict[str, Any]:
    sizes = {name: getattr(tiers, name) for name in ("gpu", "peer", "cpu")}
    texts = {name: None if size is None else size.text for name, size in sizes.items()}
    return {**texts, "num_peers": tiers.num_peers, "ssd": tiers.ssd, **vars(units)}
