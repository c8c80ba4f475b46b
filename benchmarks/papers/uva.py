"""Aligned zero-copy access (Min et al., VLDB'21), as the survey shows it: requests of a row with and without the shift.

Counted by the arithmetic of ``ext/include/tiering/device/row_copy.hpp``; no GPU reads anything here.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.papers.figures import PAPER, Figure, FigureMaker, Line, Panel, percent
from benchmarks.papers.inputs import Inputs

LINE, SECTOR, WARP, HEADER = 128, 32, 32, 16
"""Bytes of a cache line and of its sectors, lanes of a warp, bytes of a packet's header at most (12 to 16)."""
ROW_BYTES = tuple(range(1024, 1048, 4))
EXAMPLE = (480, 8, 5)
"""Bytes of a row whose second stands off the lines: requests without and with the shift (figure 6)."""
EFFICIENCY = {"aligned": (0.951, 0.951), "naive": (0.78, 0.82), "shifted": (0.88, 0.93)}
"""Fraction of a copy's 25.8 GB/s, from and to over rows of 1028 to 1044 B; aligned rows of 1024 B (section V.E)."""
GPU_SMS, GPU_THREADS, MOST_REQUESTS = 82, 1536, 768
"""An RTX 3090's multiprocessors, threads of each, and read requests that PCIe 4.0 keeps in flight (table I)."""
COPY_BYTES, ROUND_TRIP = 25.8 * 2**30, 1.5e-6
"""Bytes per second of a copy (25.8 GB/s; the paper's 324.6 requests come of GiB), and seconds of a request."""
SMS_SHARE = (0.082, 0.195)
"""Fraction of the GPU for requests of 128 B, and for as many requests as there may be."""
_ROWS = 32
"""Rows after which every alignment has come: a row's length is a multiple of 4 B."""


def steps(address: int, row_bytes: int, shifted: bool) -> Iterator[range]:
    """Yield the word addresses that a warp reads together, step by step; words are of 4 B.

    Without the shift step k reads words 32 k to 32 k + 31 of the row. With it every step stands at the begin of a line,
    and the words before the first line are read last, `RowCopy::word` of the core with words of 4 B.
    """
    words = row_bytes // 4
    shift = (-address % LINE) // 4 if shifted and words > WARP else 0
    for begin in range(0, words, WARP):
        places = [
            at + shift if at < words - shift else at - (words - shift) for at in range(begin, min(begin + WARP, words))
        ]
        for first, last in _runs(places):
            yield range(address + 4 * first, address + 4 * last + 4, 4)


def _runs(places: list[int]) -> Iterator[tuple[int, int]]:
    """Yield first and last of the runs of consecutive numbers."""
    first = 0
    for at in range(1, len(places) + 1):
        if at == len(places) or places[at] != places[at - 1] + 1:
            yield places[first], places[at - 1]
            first = at


def requests(address: int, row_bytes: int, shifted: bool) -> tuple[int, int]:
    """Return the requests of a row, each within one line, and the bytes they move, whole sectors."""
    count = moved = 0
    for run in steps(address, row_bytes, shifted):
        lines: dict[int, set[int]] = {}
        for word in run:
            lines.setdefault(word // LINE, set()).add(word // SECTOR)
        count += len(lines)
        moved += SECTOR * sum(map(len, lines.values()))
    return count, moved


def mean_requests(row_bytes: int, shifted: bool) -> tuple[float, float]:
    """Return requests per row, and useful bytes over bytes on the link, of rows that lie one after the other."""
    found = np.array([requests(row * row_bytes, row_bytes, shifted) for row in range(_ROWS)], np.float64)
    count, moved = found.mean(axis=0)
    return float(count), float(row_bytes / (moved + HEADER * count))


def figure_8(_: Inputs) -> Figure:
    """Return requests and efficiency by the bytes of a row, and the paper's efficiency over that of aligned rows."""
    found = {name: [mean_requests(size, name == "shifted") for size in ROW_BYTES] for name in ("naive", "shifted")}
    lines = [Line(name, ROW_BYTES, [count for count, _ in values]) for name, values in found.items()]
    relative = {name: [share / values[0][1] for _, share in values] for name, values in found.items()}
    efficiency = [Line(name, ROW_BYTES, [100 * share for share in shares]) for name, shares in relative.items()]
    for name in found:
        low, high = (100 * end / EFFICIENCY["aligned"][0] for end in EFFICIENCY[name])
        efficiency.append(Line(name, [1036.0, 1036.0], [low, high], PAPER))
    panels = [
        Panel("requests of 128 B at most", "row size, bytes", "requests per row", lines),
        Panel("useful bytes on the link", "row size, bytes", "% of rows of 1024 B", efficiency),
    ]
    claims = [
        (f"requests of the second row of {EXAMPLE[0]} B, without and with the shift", f"{EXAMPLE[1]} and {EXAMPLE[2]}",
         " and ".join(str(requests(EXAMPLE[0], EXAMPLE[0], shifted)[0]) for shifted in (False, True)))
    ]  # fmt: skip
    for name in found:
        low, high = (end / EFFICIENCY["aligned"][0] for end in EFFICIENCY[name])
        ours = f"{min(relative[name][1:]):.2f} to {max(relative[name][1:]):.2f}"
        claims.append((f"efficiency / efficiency of aligned rows, {name}", f"{low:.2f} to {high:.2f}", ours))
    setting = (
        f"Calculated for {_ROWS} rows one after the other: requests within lines of {LINE} B, sectors of {SECTOR} B, "
        f"headers of {HEADER} B. This figure uses no graph."
    )
    return Figure("Aligned reads of host memory (figures 6 and 8)", setting, panels, claims)


def multiprocessors(bytes_per_request: float) -> float:
    """Return the multiprocessors whose warps, a request each, keep the link busy: by Little's law, up to its limit."""
    wanted = COPY_BYTES * ROUND_TRIP / bytes_per_request
    return min(wanted, MOST_REQUESTS) / (GPU_THREADS // WARP)


def figure_sms(_: Inputs) -> Figure:
    """Return the multiprocessors that saturate the link by the bytes of a row, without and with the shift."""
    sizes = tuple(range(1024, 2052, 28))
    lines = []
    for name in ("naive", "shifted"):
        per_request = [size / mean_requests(size, name == "shifted")[0] for size in sizes]
        lines.append(Line(name, sizes, [multiprocessors(nbytes) for nbytes in per_request]))
    tenth = GPU_SMS // 10
    lines.append(Line('max_sms="auto"', [sizes[0], sizes[-1]], [tenth, tenth]))
    bounds = [sms / GPU_SMS for sms in (multiprocessors(LINE), MOST_REQUESTS / (GPU_THREADS // WARP))]
    claims = [
        ("requests of 128 B in flight for 25.8 GB/s", "324.6", f"{COPY_BYTES * ROUND_TRIP / LINE:.1f}"),
        ("fraction of the multiprocessors for requests of 128 B, and for all requests of the link",
         *(" and ".join(percent(share, 1) for share in shares) for shares in (SMS_SHARE, bounds))),
        ("multiprocessors for rows of 1 to 2 KiB, at most: naive and shifted", "-",
         " and ".join(f"{max(line.y):.1f}" for line in lines[:2])),
        ('multiprocessors by `max_sms="auto"`', "-", f"{tenth} ({percent(tenth / GPU_SMS, 1)})"),
    ]  # fmt: skip
    setting = (
        f"Calculated for an RTX 3090: {GPU_SMS} multiprocessors of {GPU_THREADS // WARP} warps, each with one request; "
        f"round trip 1.5 µs, at most {MOST_REQUESTS} requests. This figure uses no graph."
    )
    panel = Panel("multiprocessors that saturate the link", "row size, bytes", "multiprocessors", lines)
    return Figure("Multiprocessors for reading (section III.C)", setting, [panel], claims)


FIGURES: dict[str, FigureMaker] = {"uva-8": figure_8, "uva-sms": figure_sms}
