"""From counts to results: what each score's line serves at each place that was asked about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from tiering.errors import InputError
from tiering.evaluation.adjacency import ListReads
from tiering.evaluation.bootstrap import Bootstrap
from tiering.evaluation.hits import HitMaps
from tiering.evaluation.ranking import Ranking, check_tiers, rank_rows
from tiering.evaluation.result import ORACLE, Curve, Evaluation, TypeResult, interval_list
from tiering.evaluation.rows import ASSUMED, FloatArray, IntArray, Rows
from tiering.evaluation.ssd import SsdReads, SsdUnits
from tiering.evaluation.traffic import Traffic, link_intervals, plan_traffic
from tiering.layout.capacities import Capacities

SHARES = (0.01, 0.02, 0.05, 0.10, 0.20, 0.40)
"""Capacities reported by default, as shares of the bytes of all feature rows."""
MAX_SHARES = 50
CURVE_POINTS = (110, 90)
"""Points of a curve: as many evenly spaced on a logarithmic scale of capacity, and on a linear one."""


@dataclass(frozen=True)
class Questions:
    """What is asked of every score: hit rates at some shares and along a curve, traffic of a tier plan."""

    rows: Rows
    """Rows that compete."""
    shares: tuple[float, ...]
    """Capacities as shares of all bytes."""
    tiers: Capacities | None
    """Sizes of tiers."""
    units: SsdUnits
    """Sizes in which the ssd tier is read."""

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
        found = np.minimum(points.round().astype(np.int64) * least, self.rows.bytes)
        return np.unique(np.concatenate([[0], found, [self.rows.bytes]]))

    def rank(self, values: FloatArray | IntArray, threads: int) -> Ranking:
        """Line of a score, cut at the shares first, then along the curve, then at the tiers."""
        asked = [int(share * self.rows.bytes) for share in self.shares]
        capacities = np.concatenate([asked, self.curve_bytes]).astype(np.int64)
        return rank_rows(self.rows, values, capacities, self.tiers, threads)

    @property
    def reads_ssd(self) -> bool:
        """Whether there is an ssd tier and rows have known sizes, so that what drives deliver can be said."""
        return self.tiers is not None and self.tiers.ssd and ASSUMED not in self.rows.origins

    def share_cuts(self, ranking: Ranking) -> IntArray:
        """Numbers of the edges at `shares`."""
        return ranking.cuts[: len(self.shares)]

    def curve_cuts(self, ranking: Ranking) -> IntArray:
        """Numbers of the edges at `curve_bytes`."""
        return ranking.cuts[len(self.shares) :]


def hit_maps(questions: Questions, rankings: Mapping[str, Ranking]) -> HitMaps:
    """Marks for the counts behind the error bars; by type at the shares and tiers only."""
    coarse = [np.union1d(questions.share_cuts(ranking), ranking.tier_cuts) for ranking in rankings.values()]
    return HitMaps(questions.rows, list(rankings.values()), coarse)


@dataclass(frozen=True)
class Findings:
    """Everything counted, ready to be asked."""

    questions: Questions
    rankings: Mapping[str, Ranking]
    """By score, `ORACLE` last."""
    truth: IntArray
    """int64, accesses per row over all epochs."""
    maps: HitMaps | None
    """Counts by batch of the scores in the order of `rankings`, without the oracle; ``None`` for no error bars."""
    bootstrap: Bootstrap
    lists: dict[str, ListReads]
    """By relation: adjacency read over all epochs."""
    ssd: dict[str, dict[str, SsdReads]]
    """By score and node type: what the SSDs delivered over all epochs; empty where that is not asked or not known."""

    def evaluation(self, batches: int, seen: dict[str, range], parameters: dict[str, Any]) -> Evaluation:
        """Answer all questions."""
        rows, tiers = self.questions.rows, self.questions.tiers
        curves = {name: self._curve(name) for name in self.rankings}
        curve_rows = {name: self._cached(name, None)[self._curve_cuts(name)] for name in self.rankings}
        return Evaluation(
            shares=list(self.questions.shares),
            scores={name: self._shares(name, None) for name in self.rankings},
            types={node_type: self._type(index) for index, node_type in enumerate(rows.types)},
            tiers=None if tiers is None else {name: self._traffic(name, tiers, parameters) for name in self.rankings},
            capacities=None if tiers is None else _capacities_json(tiers, self.questions.units),
            curve_bytes=self.questions.curve_bytes,
            curves=curves,
            curve_rows=curve_rows,
            bands={name: band for name in self.rankings if (band := self._band(name)) is not None},
            num_bytes=rows.bytes,
            adjacency=self.lists,
            batches=batches,
            seen=seen,
            parameters=parameters,
        )

    @cached_property
    def _served_by_type(self) -> dict[str, IntArray]:
        """Per score, accesses to the rows up to each edge of its line: int64, shape (types, edges)."""
        return {name: ranking.count(self.questions.rows, self.truth) for name, ranking in self.rankings.items()}

    @cached_property
    def _rows_by_type(self) -> dict[str, IntArray]:
        return {name: ranking.count(self.questions.rows) for name, ranking in self.rankings.items()}

    def _served(self, name: str, index: int | None) -> IntArray:
        """Accesses to the rows up to each edge of a line: of one type or of all."""
        found = self._served_by_type[name]
        return np.asarray(found.sum(axis=0) if index is None else found[index], dtype=np.int64)

    def _cached(self, name: str, index: int | None) -> IntArray:
        """Rows up to each edge of a line."""
        found = self._rows_by_type[name]
        return np.asarray(found.sum(axis=0) if index is None else found[index], dtype=np.int64)

    def _shares(self, name: str, index: int | None) -> Curve:
        cuts = self.questions.share_cuts(self.rankings[name])
        served, cached = self._served(name, index), self._cached(name, index)
        rates = served[cuts] / max(int(served[-1]), 1)
        return Curve(rates.tolist(), interval_list(self._ends(name, cuts, index)), cached[cuts].tolist())

    def _ends(self, name: str, cuts: IntArray, index: int | None) -> FloatArray | None:
        """Intervals of the hit rates at `cuts`."""
        if self.maps is None or name == ORACLE:
            return None
        score, last = list(self.rankings).index(name), np.array([self.rankings[name].edges.size - 1])
        wholes = self.maps.up_to(score, last, index)[:, 0]
        return self.bootstrap.interval(self.maps.up_to(score, cuts, index), wholes)

    def _curve(self, name: str) -> FloatArray:
        served = self._served(name, None)
        rates: FloatArray = served[self._curve_cuts(name)] / max(int(served[-1]), 1)
        return rates

    def _band(self, name: str) -> FloatArray | None:
        return self._ends(name, self._curve_cuts(name), None)

    def _curve_cuts(self, name: str) -> IntArray:
        return self.questions.curve_cuts(self.rankings[name])

    def _type(self, index: int) -> TypeResult:
        rows = self.questions.rows
        truth = self.truth[rows.part(index)]
        return TypeResult(
            rows=rows.counts[index],
            row_bytes=rows.row_bytes[index],
            row_bytes_from=rows.origins[index],
            accesses=int(truth.sum()),
            touched=int(np.count_nonzero(truth)),
            scores={name: self._shares(name, index) for name in self.rankings},
        )

    def _traffic(self, name: str, tiers: Capacities, parameters: Mapping[str, Any]) -> Traffic:
        rows, ranking = self.questions.rows, self.rankings[name]
        found = plan_traffic(rows, ranking, self._served_by_type[name], tiers, int(parameters["epochs"]))
        found = replace(found, ssd_reads=self.ssd.get(name))
        if self.maps is None or name == ORACLE:
            return found
        score = list(self.rankings).index(name)
        ends = link_intervals(rows, ranking, self.maps, score, self.bootstrap, tiers.num_peers)
        return replace(found, intervals=ends)


def _capacities_json(tiers: Capacities, units: SsdUnits) -> dict[str, Any]:
    sizes = {name: None if size is None else size.text for name, size in vars(tiers).items() if name in _SIZES}
    return {**sizes, "num_peers": tiers.num_peers, "ssd": tiers.ssd, **vars(units)}


_SIZES = ("gpu", "peer", "cpu")
