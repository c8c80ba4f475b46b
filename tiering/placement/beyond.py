"""What serves feature rows that a GPU does not hold itself: the tiers behind the gpu tier, as sizes in bytes."""

from __future__ import annotations

from dataclasses import dataclass

from tiering.formats.layout import ssd_stride
from tiering.placement.access_times import SSD_READ_BYTES, AccessTimes
from tiering.placement.tiers import Capacities


@dataclass(frozen=True)
class Beyond:
    """Tiers of fixed size that move along the line of rows with the end of the gpu tier.

    A row that adjacency lists push out of the gpu tier pushes another out of the cpu tier.
    """

    peer_bytes: int = 0
    """The peer tier, of all peers together."""
    cpu_bytes: int | None = None
    """Host memory; ``None``: all that is left, and no ssd tier."""
    images: int = 0
    """SSDs that read side by side; 0 without an ssd tier."""

    @classmethod
    def of(cls, capacities: Capacities, total: int, images: int) -> Beyond:
        """Of a layout with `total` bytes of features."""
        peer, cpu = capacities.peer, capacities.cpu
        peers = 0 if peer is None else min(total, peer.of(total) * capacities.num_peers)
        if not images or (cpu is not None and cpu.auto):
            return cls(peers)
        return cls(peers, 0 if cpu is None else cpu.of(total), images)

    @property
    def ends(self) -> tuple[int, int, int]:
        """Bytes from the end of the gpu tier to that of the gpu, peer and cpu tier."""
        return 0, self.peer_bytes, self.peer_bytes + (self.cpu_bytes or 0)

    def ssd_seconds(self, row_bytes: int, times: AccessTimes) -> float:
        """Seconds that an access to a row costs more if it lies on SSD than in host memory; 0 without an ssd tier."""
        if self.cpu_bytes is None:
            return 0.0
        return -(-ssd_stride(row_bytes) // SSD_READ_BYTES) * times.ssd_seconds / self.images
