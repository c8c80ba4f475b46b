"""Training-time side: tiered gather and loader. The only package that imports torch, and only inside functions.

Where to look, from below: `ssd` (how the ssd tier is read), `resident` (tiers in memory), `gather` (rows by rank),
`batches` (what a loader makes, and who), `background` (stages ahead of training), `loader`; `layout` on top is what
``tiering.open`` returns for a layout; `tiered_tensor`: tiers of a tensor, without files; `gpu`: the same on a
GPU; `processes`: several processes that train together.
"""

from __future__ import annotations

from tiering.loader.batches.batch import Batch, Block
from tiering.loader.layout import TieredLayout, open_layout
from tiering.loader.loader import Loader
from tiering.loader.processes.peers import PeerGroup
from tiering.loader.tables.counters import Counters, TierCounters
from tiering.loader.tables.gather import MemoryFeatures, TieredFeatures
from tiering.loader.tiered_tensor.tensor import TieredTensor

__all__ = [
    "Batch",
    "Block",
    "Counters",
    "Loader",
    "MemoryFeatures",
    "PeerGroup",
    "TierCounters",
    "TieredFeatures",
    "TieredLayout",
    "TieredTensor",
    "open_layout",
]
