"""Decide which ranks lie in which tier, from sizes and scores alone.

Rows of all node types, and of edges, are placed by score per byte, hottest first, pinned ones before all others; ties
by table, then by rank. The gpu tier takes rows as far as its size goes, then peer, then cpu; ssd takes the rest.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tiering.errors import InputError
from tiering.formats.layout import MEMORY_TIERS, TIERS, peer_rows
from tiering.text.units import Size, ask_percent, format_bytes, parse_bytes, parse_size

MIN_PAGE, MAX_PAGE = 512, 64 * 1024 * 1024
MOST_PEERS = 16  # GPUs that share a tier at most, as many as the kernels have addresses for (kMostPeers)
_PEER = re.compile(r"^\s*(\d+)\s*[xX]\s*(.+)$")


@dataclass(frozen=True)
class RankedTable:
    """Rows to place, of one node type or of the edges of one relation (its key, ``src:name:dst``), by rank.

    The `first` rows are pinned: placed before all others.
    """

    node_type: str
    rows: int
    row_bytes: int
    scores: Any  # float64, shape (rows,), by rank or position: not negative, and not increasing from rank `first` on
    first: int = 0

    def key(self, rank: int) -> float:
        """Return the key by which rows are placed, ascending: the score per byte, negated; pinned rows come first."""
        return -math.inf if rank < self.first else -float(self.scores[rank]) / self.row_bytes


@dataclass(frozen=True)
class Capacities:
    """Sizes of the tiers as the user gives them; ``None`` where there is none.

    `gpu` is each GPU's own copy of the hottest rows, `peer` the part of each of the `num_peers` GPUs that share a tier,
    `cpu` host memory; an ssd tier takes the rest of the rows.
    """

    gpu: Size | None = None
    num_peers: int = 0
    peer: Size | None = None
    cpu: Size | None = None
    ssd: bool = False

    def room(self, total: int) -> int:
        """Return the bytes of all tiers but ssd, for `total` bytes of features."""
        sizes = ((self.gpu, 1), (self.peer, self.num_peers), (self.cpu, 1))
        return sum(size.of(total) * parts for size, parts in sizes if size is not None)


def parse_peer(text: str, what: str = "peer") -> tuple[int, Size]:
    """Parse ``4x8GiB``: the number of GPUs, 1 to `MOST_PEERS`, and the size on each."""
    match = _PEER.match(str(text))
    if not match:
        raise InputError(f"{what}: expected PxSIZE such as 4x8GiB (4 GPUs, 8 GiB on each), found {text!r}")
    count = int(match.group(1))
    if not 1 <= count <= MOST_PEERS:
        raise InputError(f"{what}: expected 1 to {MOST_PEERS} GPUs of one machine, found {count}")
    return count, parse_size(match.group(2), what)


def parse_capacities(
    gpu: str | int | None = None, peer: str | None = None, cpu: str | int | None = None, *, ssd: bool = False
) -> Capacities:
    """Parse the sizes of all tiers; a size of 0 is the same as none."""

    def some(size: Size | None) -> Size | None:
        return None if size is None or size.bytes == 0 or size.fraction == 0 else size

    num_peers, shared = (0, None) if peer is None or str(peer).strip() == "0" else parse_peer(peer)
    own = None if gpu is None else parse_size(gpu, "gpu")
    rest = None if ssd else Size("auto")  # without an ssd tier host memory holds the rest
    host = rest if cpu is None else parse_size(cpu, "cpu")
    return Capacities(some(own), num_peers if some(shared) else 0, some(shared), some(host), ssd)


def parse_page(page: str | int) -> int:
    """Parse the page size: a power of two from 512 B to 64 MiB."""
    size = parse_bytes(page, "page")
    if not MIN_PAGE <= size <= MAX_PAGE or size & (size - 1):
        raise InputError(
            f"page: expected a power of two from {MIN_PAGE} B to {format_bytes(MAX_PAGE)}, such as 4KiB, found {page!r}"
        )
    return size


def plan_tiers(
    tables: Sequence[RankedTable], capacities: Capacities, *, strict: bool = True
) -> dict[str, dict[str, tuple[int, int]]]:
    """Return the half-open range of ranks per node type and tier; in the order of `TIERS` they cover all ranks.

    Ties between types are decided by the order of `tables`; shares are of the bytes of all rows. Sizes larger than all
    data and rows that no tier takes are refused; if `strict`, also sizes smaller than a row and tiers that stay empty.
    If not, as for an evaluation, rows that are left because whole rows do not fill the sizes exactly join the cpu tier.
    Cost: O((types x log(rows))²) reads of scores.
    """
    total, everything = sum(table.rows * table.row_bytes for table in tables), [table.rows for table in tables]
    ends = [[0] * len(tables)]
    for tier in MEMORY_TIERS:
        size = getattr(capacities, tier)
        full = size is not None and total
        ends.append(_fill(tables, ends[-1], tier, size, capacities.num_peers, total, strict) if full else ends[-1])
    unplaced = sum((table.rows - end) * table.row_bytes for table, end in zip(tables, ends[-1], strict=True))
    if unplaced and not capacities.ssd:
        if strict or capacities.room(total) < total:
            sizes = (size.text for size in (capacities.gpu, capacities.peer, capacities.cpu) if size is not None)
            raise InputError(
                f"{format_bytes(unplaced)} of {format_bytes(total)} feature data have no tier; give --ssd DIR, or "
                f"--cpu auto to keep these rows in host memory{''.join(map(ask_percent, sizes))}"
            )
        ends[-1] = everything
    if capacities.ssd and total and not unplaced and strict:
        raise InputError(
            "ssd: the other tiers have room for all feature data; omit --ssd, or make the other tiers smaller"
        )
    ends.append(everything)
    return {
        table.node_type: {tier: (ends[k][i], ends[k + 1][i]) for k, tier in enumerate(TIERS)}
        for i, table in enumerate(tables)
    }


def _fill(
    tables: Sequence[RankedTable], begin: list[int], tier: str, size: Size, num_peers: int, total: int, strict: bool
) -> list[int]:
    """Return the ranks at which `tier` ends, from those at which it begins; check its size."""
    parts = num_peers if tier == "peer" else 1
    if size.auto:
        return [table.rows for table in tables]
    limit = size.of(total)
    if size.bytes is not None and limit * parts > total:
        asked, everything = (size.text, "100%") if tier != "peer" else (f"{parts} x {size.text}", f"{parts}xauto")
        raise InputError(
            f"{tier}: {asked} is larger than all feature data ({format_bytes(total)}); use `--{tier} {everything}` "
            "to place everything there"
        )
    if all(table.rows == start for table, start in zip(tables, begin, strict=True)):
        if not strict:
            return begin
        raise InputError(f"{tier}: the tiers before it have room for all rows; omit --{tier}, or make them smaller")

    ends = longest_prefix(tables, limit, begin, parts)
    if ends == begin and strict:
        raise InputError(
            f"{tier}: {size.text} ({format_bytes(limit)}) is less than one row of the next node type "
            f"({format_bytes(min(t.row_bytes for t in tables if t.rows))} and more); give a larger "
            f"size{ask_percent(size.text)} or omit it"
        )
    return ends


def longest_prefix(tables: Sequence[RankedTable], nbytes: int, begin: Sequence[int] = (), parts: int = 1) -> list[int]:
    """Return the ends of the longest run of rows in placement order, from the ranks `begin` or 0 on, that fits.

    Rows are interleaved over `parts`, each of `nbytes` bytes. Cost: as `plan_tiers`.
    """
    begin = begin or [0] * len(tables)

    def too_many(index: int, rank: int) -> bool:
        """Return whether the rows up to one of a table, this one included, do not fit."""
        last, ends = tables[index].key(rank), []
        for other, (table, start) in enumerate(zip(tables, begin, strict=True)):
            if other == index:
                ends.append(rank + 1)
                continue
            bisect = bisect_right if other < index else bisect_left  # ties by table
            ends.append(start + bisect(range(start, table.rows), last, key=table.key))
        # The first part has the most rows of every type: if they fit there, they fit in all.
        runs = zip(tables, begin, ends, strict=True)
        return sum(peer_rows(end - start, 0, parts) * table.row_bytes for table, start, end in runs) > nbytes

    return [
        start + bisect_left(range(start, table.rows), True, key=partial(too_many, index))
        for index, (table, start) in enumerate(zip(tables, begin, strict=True))
    ]
