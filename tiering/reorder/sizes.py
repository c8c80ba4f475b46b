"""How much a reorder reads, holds and writes at a time: one value, handed down; tests make it small."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tiering.artifacts.checksum import BLOCK_BYTES
from tiering.artifacts.manifest import id_bytes
from tiering.formats.feature_rows import CHUNK_BYTES, RowStream
from tiering.formats.features import FeatureTable
from tiering.memory import available_memory

Rows: TypeAlias = FeatureTable | RowStream  # rows in a file, or such as can be read front to back only


@dataclass(frozen=True)
class Sizes:
    """Sizes of pieces."""

    block: int = BLOCK_BYTES
    """Bytes of a block of a file: windows are whole blocks, and of nothing a smaller part is held."""
    entries: int = 16 << 20  # bytes of a piece in which entries and edge data pass a window
    nodes: int = 1 << 19  # nodes of a piece in which arrays along them pass a window
    node_bytes: int = 64  # bytes that a node of such a piece takes: what is read, twice, and what is made of it
    scores: int = 1 << 18  # scores of a piece where they are ranked a range at a time
    score_bins: int = 1 << 12  # parts a range of scores is counted in
    min_ranked: int = 1 << 16  # least number of nodes that are ranked together
    chunk: int = CHUNK_BYTES  # bytes of a chunk of rows: large sequential reads and writes, bounded memory
    free: int | None = None  # bytes that are free for the page cache; ``None``: as the system says

    @property
    def node_piece(self) -> int:
        """Bytes of the pieces of arrays along nodes, without a window."""
        return self.nodes * self.node_bytes

    @property
    def score_piece(self) -> int:
        """Bytes of a piece of scores: two being read, and keys, bins and masks of one."""
        return self.scores * 80

    def rows(self, row_bytes: int, multiple: int = 1) -> int:
        """Return the rows of a chunk, rounded down to a multiple of `multiple`, at least one multiple."""
        return max(1, self.chunk // row_bytes // multiple) * multiple

    def piece_rows(self, table: Rows) -> int:
        """Return the rows that pass a window at a time, with a rank each."""
        return self.rows(table.row_bytes + id_bytes(table.rows))

    def cached(self, table: Rows) -> bool:
        """Return whether the page cache has room for a table, which lies in one file."""
        free = available_memory() if self.free is None else self.free
        return isinstance(table, FeatureTable) and table.bytes < free // 2


SIZES = Sizes()  # sizes of every run but those of tests
