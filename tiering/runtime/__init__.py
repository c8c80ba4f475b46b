"""Training-time side: tiered gather and loader. The only package that imports torch, and only inside functions.

Where to look: `layout` (what ``tiering.open`` returns for a layout), `rows` and `features` (gather), `loader`
(batches), `engines` (how the ssd tier is read), `pipeline` (background stages), `gpu` (the same on a GPU).
"""

from __future__ import annotations

from tiering.runtime.batch import Batch, Block
from tiering.runtime.counters import Counters, TierCounters
from tiering.runtime.features import MemoryFeatures, TieredFeatures
from tiering.runtime.gpu.peers import PeerGroup
from tiering.runtime.layout import TieredLayout, open_layout
from tiering.runtime.loader import Loader

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
