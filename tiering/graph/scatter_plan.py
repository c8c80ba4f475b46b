"""How much of a conversion by scattering is done at a time, by the memory there is."""

from __future__ import annotations

from dataclasses import dataclass

from tiering.artifacts.appending import BUFFERS
from tiering.artifacts.checksum import BLOCK_BYTES
from tiering.graph.sizes import LARGEST_CHUNK, SMALLEST_CHUNK, CscSizes

MOST_BUCKETS = 4096
"""Buckets whose lines still fit a core's private cache."""
BUCKET_EDGES, RUN_RECORDS = 1 << 15, 1 << 9
"""Least edges of a bucket, and of a bucket and chunk, on average."""
RUN_PADDING = 12288
"""Bytes that the part of a chunk takes in a unit's buffer beyond its records: direct reads begin and end at pages."""
MARGIN = 32 << 20
"""Bytes for everything that is small."""


@dataclass(frozen=True)
class ScatterPlan:
    """How much is done at a time. None of it changes the result."""

    chunk: int
    """Edges scattered together; also the most that are sorted together."""
    shift: int
    """Columns of a bucket: 2 to this power."""
    columns: int
    """Columns sorted together, at the most."""
    held: int
    """Bytes of records kept in memory."""
    memory: int
    """Bytes held at the peak."""
    bytes_scratch: int
    """Bytes of records that go to disk and back at the least; all of them where memory is slow to touch."""


def plan_scatter(sizes: CscSizes, room: int) -> ScatterPlan | None:
    """Choose the sizes for `room` bytes of memory; ``None`` if that is too little.

    Notes
    -----
    Memory, with 8 bytes per record (16 with 64-bit ids). While scattering: two chunks of edges (32 bytes each) and of
    records. While sorting: as many records and ids twice, offsets of the columns twice, 12 KiB per chunk twice, and
    four blocks. Throughout: 8 bytes per chunk and bucket, and the records held.
    """
    record, chunk = sizes.record_bytes, _between(SMALLEST_CHUNK, room // 256, LARGEST_CHUNK)
    chunks = -(-sizes.num_edges // chunk)
    wanted = _between(1, min(sizes.num_edges // BUCKET_EDGES, chunk // RUN_RECORDS), MOST_BUCKETS)
    shift = max(0, (-(-sizes.num_dst // wanted) - 1).bit_length())
    columns = max(chunk, 1 << shift)
    counts = 2 * 8 * chunks * (-(-sizes.num_dst >> shift) + 2)
    scattering = chunk * (32 + 2 * record)
    sorting = (
        chunk * 2 * (record + sizes.id_bytes) + columns * 16 + 2 * chunks * RUN_PADDING + 2 * BUFFERS * BLOCK_BYTES
    )
    fixed = counts + max(scattering, sorting) + MARGIN
    if fixed > room or shift > 30:
        return None
    held = min(room - fixed, sizes.num_edges * record)
    return ScatterPlan(chunk, shift, columns, held, fixed + held, sizes.num_edges * record - held)


def _between(least: int, value: int, most: int) -> int:
    return max(least, min(value, most))
