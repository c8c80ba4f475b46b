"""What a tier plan would move: bytes per epoch over each link, if a score had filled tiers of given sizes.

Rows of the gpu tier come from the GPU's own memory. Row r of the peer tier lies on GPU r mod P, and batches are spread
evenly over the P GPUs, so one read in P of that tier is local too and the others cross the peer link. Rows of the cpu
tier cross the host link. Rows of the ssd tier are read from the SSDs (and cross the host link as well where the GPU
does not read the SSDs itself). Bytes over links are those of the rows; what the SSDs deliver for them is `SsdReads`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tiering.evaluation.bootstrap import Bootstrap, middle
from tiering.evaluation.hits import HitMaps
from tiering.evaluation.ranking import Ranking
from tiering.evaluation.rows import FloatArray, IntArray, Rows
from tiering.evaluation.ssd import SsdReads
from tiering.formats.layout import TIERS
from tiering.layout.capacities import Capacities

LINKS = ("gpu_memory", "peer_link", "host_link", "ssd")
"""Names of the links, fastest first."""


@dataclass(frozen=True)
class Traffic:
    """One score's plan, and what training would read through it."""

    ranges: dict[str, dict[str, tuple[int, int]]]
    """Node type and tier -> half-open range of ranks."""
    reads: dict[str, dict[str, int]]
    """Node type and tier -> rows read, over all epochs."""
    row_bytes: dict[str, int]
    """Bytes of a row per node type."""
    num_peers: int
    """GPUs that share the peer tier."""
    epochs: int
    """Epochs counted."""
    intervals: dict[str, tuple[float, float]] | None
    """Per link: 95 % interval of its share of all bytes; ``None`` where there is none."""
    ssd_reads: dict[str, SsdReads] | None
    """Per node type: what the SSDs delivered, over all epochs; ``None`` without ssd tier or known row sizes."""

    def moved(self, node_type: str | None = None) -> dict[str, float]:
        """Bytes per epoch over each link, of one type or all."""
        types = [node_type] if node_type is not None else list(self.reads)
        tiers = [sum(self.reads[t][tier] * self.row_bytes[t] for t in types) / self.epochs for tier in TIERS]
        return dict(zip(LINKS, (link_weights(self.num_peers) @ np.array(tiers)).tolist(), strict=True))

    def shares(self, node_type: str | None = None) -> dict[str, float]:
        """Share of all bytes moved (of the type) over each link; 0 where nothing was read."""
        moved = self.moved(node_type)
        total = sum(moved.values()) or 1.0
        return {link: nbytes / total for link, nbytes in moved.items()}

    def device(self, node_type: str | None = None) -> dict[str, float] | None:
        """Per epoch ``bytes`` and ``pages`` read from the SSDs for the rows of one type or all."""
        if self.ssd_reads is None:
            return None
        reads = list(self.ssd_reads.values()) if node_type is None else [self.ssd_reads[node_type]]
        moved, pages = sum(each.bytes for each in reads), sum(each.pages for each in reads)
        return {"bytes": moved / self.epochs, "pages": pages / self.epochs}

    def rows(self, tier: str, node_type: str | None = None) -> int:
        """Rows in a tier, of one type or all."""
        types = [node_type] if node_type is not None else list(self.ranges)
        return sum(self.ranges[t][tier][1] - self.ranges[t][tier][0] for t in types)

    def to_json(self) -> dict[str, Any]:
        """JSON form; see `tiering.evaluation.result.Evaluation.to_json`."""
        return {
            "links": self._links(None),
            "tiers": self._tiers(None),
            "types": {t: {"links": self._links(t), "tiers": self._tiers(t)} for t in self.ranges},
        }

    def _links(self, node_type: str | None) -> dict[str, Any]:
        moved, shares = self.moved(node_type), self.shares(node_type)
        found: dict[str, Any] = {link: {"bytes_per_epoch": moved[link], "share": shares[link]} for link in LINKS}
        device = self.device(node_type) or {}
        found["ssd"] |= {f"{unit}_read_per_epoch": device.get(unit) for unit in ("bytes", "pages")}
        if node_type is None:
            for link in LINKS:
                found[link]["interval"] = None if self.intervals is None else list(self.intervals[link])
        return found

    def _tiers(self, node_type: str | None) -> dict[str, Any]:
        types = [node_type] if node_type is not None else list(self.ranges)
        return {
            tier: {
                "rows": self.rows(tier, node_type),
                "bytes": sum(self.rows(tier, t) * self.row_bytes[t] for t in types),
                "reads_per_epoch": sum(self.reads[t][tier] for t in types) / self.epochs,
            }
            for tier in TIERS
        }


def link_weights(num_peers: int) -> FloatArray:
    """Share of each tier's reads that goes over each link: float64, shape (links, tiers), columns sum to 1."""
    local = 1 / num_peers if num_peers else 0.0
    return np.array([[1, local, 0, 0], [0, 1 - local, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], np.float64)


def plan_traffic(rows: Rows, ranking: Ranking, served: IntArray, tiers: Capacities, epochs: int) -> Traffic:
    """What the tiers of a ranking would have served.

    Parameters
    ----------
    ranking
        Made with `tiers`.
    served
        int64, shape (types, edges): accesses to the rows up to each edge of the ranking, over all epochs.
    """
    reads = {}
    for node_type, of_type in zip(rows.types, served, strict=True):
        reads[node_type] = dict(zip(TIERS, np.diff(of_type[ranking.tier_cuts]).tolist(), strict=True))
    row_bytes = dict(zip(rows.types, rows.row_bytes, strict=True))
    return Traffic(ranking.ranges or {}, reads, row_bytes, tiers.num_peers, epochs, None, None)


def link_intervals(
    rows: Rows, ranking: Ranking, maps: HitMaps, score: int, bootstrap: Bootstrap, num_peers: int
) -> dict[str, tuple[float, float]] | None:
    """Error bars of each link's share of all bytes, from what each group of batches read of each tier."""
    read = [np.diff(maps.up_to(score, ranking.tier_cuts, index), axis=1) for index in range(len(rows.types))]
    per_tier = sum(size * tiers for size, tiers in zip(rows.row_bytes, read, strict=True))
    shares = bootstrap.ratios(np.asarray(per_tier), np.asarray(per_tier).sum(axis=1))
    if shares is None:
        return None
    ends = middle(shares @ link_weights(num_peers).T)
    return {link: (low, high) for link, (low, high) in zip(LINKS, ends.tolist(), strict=True)}
