"""How many reads must be submitted together for SSDs to be busy: the model of GIDS's storage access accumulator."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tiering.errors import InputError


@dataclass(frozen=True)
class SubmissionModel:
    """SSDs that are given reads together, wait for none at first, then work at their peak, then wait for the end.

    Equations 2 and 3 of GIDS (Park et al., VLDB'24, section 3.2), where `T_i` is `startup` and `latency`, and `T_t`
    `termination`::

        N_access = IOP_achieved * (T_i + T_s + T_t) * N_ssd
        T_s      = N_access / (IOP_peak * N_ssd)

    Equation 3 is printed without `N_ssd`, for one SSD; with it, as reads of several go side by side, the number of
    reads wanted grows in proportion to the SSDs, as the text next to it says. Solved for the share
    ``p = IOP_achieved / IOP_peak`` that is reached, and for the reads that reach it::

        p        = N_access / (N_access + IOP_peak * N_ssd * (T_i + T_t))
        N_access = p / (1 - p) * IOP_peak * N_ssd * (T_i + T_t)

    The paper's figures for one Optane SSD (1.5 M reads/s; 25 us of start-up, 5 us of termination; a share of 0.95) give
    855 reads, and 1169 where the SSD's own 11 us count as part of `T_i`; the paper says 812.
    """

    reads_per_second: float
    """Random reads of one SSD at its peak (`IOP_peak`)."""
    latency: float
    """Seconds until an SSD that is idle has answered a read; part of `T_i`."""
    startup: float = 0.0
    """Seconds before the first read reaches an SSD, such as those of a kernel's launch; the rest of `T_i`."""
    termination: float = 0.0
    """Seconds between the last answer and the end of the submission (`T_t`)."""
    ssds: int = 1
    """How many SSDs share the reads evenly (`N_ssd`)."""

    def __post_init__(self) -> None:
        _require("reads_per_second", self.reads_per_second, self.reads_per_second > 0, "more than 0")
        _require("latency", self.latency, self.latency > 0, "more than 0 seconds")
        _require("startup", self.startup, self.startup >= 0, "at least 0 seconds")
        _require("termination", self.termination, self.termination >= 0, "at least 0 seconds")
        if isinstance(self.ssds, bool) or self.ssds < 1 or self.ssds != int(self.ssds):
            raise InputError(f"ssds: expected a whole number of at least 1, found {self.ssds!r}")

    @property
    def idle(self) -> float:
        """Reads that all SSDs could answer while they wait for a submission to begin and to end."""
        return self.reads_per_second * self.ssds * (self.latency + self.startup + self.termination)

    def share(self, reads: float) -> float:
        """Return share of the SSDs' peak that a submission of so many reads reaches; 0 for none, always less than 1."""
        _require("reads", reads, reads >= 0, "at least 0")
        return reads / (reads + self.idle)

    def reads(self, share: float) -> int:
        """Return the fewest reads of one submission that reach a share of the SSDs' peak, 0 < `share` < 1."""
        _require("share", share, 0 < share < 1, "more than 0 and less than 1")
        wanted = math.ceil(share / (1 - share) * self.idle)
        # Rounding may have led past the next whole number, or not quite there.
        if self.share(wanted) < share:
            return wanted + 1
        return wanted - 1 if wanted > 1 and self.share(wanted - 1) >= share else wanted


def merged_batches(ssd_rows: Iterable[int], reads: int) -> list[int]:
    """Return batches to submit together, one after the other, so that each submission has enough reads from SSD.

    What the memory of the GPU or of the host serves is no read: the more of a batch they serve, the more batches are
    merged. This is what GIDS's accumulator adjusts its threshold for.

    Parameters
    ----------
    ssd_rows
        Of each batch, in the order of training, the reads of SSDs that it needs.
    reads
        Reads that a submission must have, as `SubmissionModel.reads` says.

    Returns
    -------
    list[int]
        How many batches each submission has. They follow each other; none could end a batch earlier. The last may have
        too few reads: no batch follows.
    """
    _require("reads", reads, reads >= 1, "at least 1")
    merged, batches, found = [], 0, 0
    for place, rows in enumerate(ssd_rows):
        _require(f"ssd_rows[{place}]", rows, rows >= 0, "at least 0")
        batches, found = batches + 1, found + int(rows)
        if found >= reads:
            merged.append(batches)
            batches = found = 0
    return [*merged, batches] if batches else merged


def _require(name: str, value: float, holds: bool, expected: str) -> None:
    if not (holds and math.isfinite(value)):
        raise InputError(f"{name}: expected {expected}, found {value!r}")
