"""How much a reorder reads, holds and writes at a time: one value, handed down; tests make it small."""

from __future__ import annotations

from dataclasses import dataclass

from tiering.artifacts.checksum import BLOCK_BYTES
from tiering.reorder.rows import RowSizes


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
    rows: RowSizes | None = None  # sizes for feature tables; ``None``: those of `tiering.reorder.rows`

    @property
    def node_piece(self) -> int:
        """Bytes of the pieces of arrays along nodes, without a window."""
        return self.nodes * self.node_bytes

    @property
    def score_piece(self) -> int:
        """Bytes of a piece of scores: two being read, and keys, bins and masks of one."""
        return self.scores * 80


SIZES = Sizes()  # sizes of every run but those of tests
