"""Training-time side: tiered gather and loader. The only package that imports torch, and only inside functions.

Where to look: `layout` (what ``tiering.open`` returns for a layout), `rows` and `features` (gather), `loader`
(batches), `engines` (how the ssd tier is read), `pipeline` (background stages), `gpu` (the same on a GPU).
"""

from __future__ import annotations

from tiering.loader.batch import Batch, Block
from tiering.loader.counters import Counters, TierCounters
from tiering.loader.features import MemoryFeatures, TieredFeatures
from tiering.loader.gpu.peers import PeerGroup
from tiering.loader.layout import TieredLayout, open_layout
from tiering.loader.loader import Loader

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
    "open_layout",
]
