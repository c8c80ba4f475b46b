"""What decides the memory of a conversion from an edge list to CSC."""

from __future__ import annotations

from dataclasses import dataclass

from tiering import native
from tiering.artifacts.checksum import BLOCK_BYTES
from tiering.artifacts.manifest import id_bytes
from tiering.formats.shape import EdgeShape, GraphShape

CHUNK_BYTES_PER_EDGE = 56
"""Of an edge of a chunk while it is placed: its record, its value and, where they are made, its id (24 bytes); and of
two chunks of sources and destinations, one being placed, one being read (32)."""
LARGEST_CHUNK, SMALLEST_CHUNK = 1 << 23, 1 << 18
"""Edges of a chunk."""


@dataclass(frozen=True)
class CscSizes:
    """What decides the memory of a conversion."""

    num_edges: int
    num_src: int
    num_dst: int
    item_bytes: tuple[int, ...] = ()
    """Bytes of a value of each array that runs along the edges, edge ids included."""

    @classmethod
    def of(cls, shape: GraphShape, edges: EdgeShape) -> CscSizes:
        """Those of a relation."""
        source, _, destination = edges.relation
        return cls(edges.num_edges, shape.num_nodes(source), shape.num_nodes(destination), tuple(edges.values.values()))

    @property
    def id_bytes(self) -> int:
        """Bytes of an id in ``indices``: 4, or 8 where the source type has 2^31 nodes or more."""
        return id_bytes(self.num_src)

    @property
    def record_bytes(self) -> int:
        """Bytes of a scattered edge."""
        return native.scattered_bytes(self.num_src)

    def in_memory(self) -> int:
        """Peak of the conversion in memory: the kernel's records and result, or the result and one sorted array.

        8 bytes per node; per edge 8 (16 with 64-bit ids or edge data, 24 with both) and the id, with edge data 8 more;
        or the id, 8 and the largest value.
        """
        record = 8 * (1 + (self.id_bytes == 8) + bool(self.item_bytes))
        positions = 8 if self.item_bytes else 0
        kernel = record + self.id_bytes + positions
        sorting = self.id_bytes + positions + max(self.item_bytes, default=0)
        return 8 * (self.num_dst + 1) + self.num_edges * max(kernel, sorting)

    def by_windows(self) -> int:
        """Least memory of the conversion by windows: 8 bytes per node, two blocks and the smallest chunk."""
        return 8 * (self.num_dst + 1) + 2 * BLOCK_BYTES + SMALLEST_CHUNK * CHUNK_BYTES_PER_EDGE
