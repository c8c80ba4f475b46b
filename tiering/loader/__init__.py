"""Training-time side: tiered gather and loader. The only package that imports torch, and only inside functions.

From below: `tables` (rows by rank), `gpu`, `processes`, `batches` (what a loader makes ahead of training),
`open_tables` (what the loaders of a layout share), `loader`; then `pyg`, `dgl`, `inference`; at the top `layout`
(what ``tiering.open`` returns for a layout). `tiered_tensor` needs no files.
"""

from typing import TYPE_CHECKING

from tiering.text.arguments import lazy_names

__all__ = [
    "Batch", "Block", "Counters", "Loader", "PeerGroup", "TierCounters", "TieredEmbeddings", "TieredFeatures",
    "TieredLayout", "TieredTensor", "open_layout",
]  # fmt: skip

if TYPE_CHECKING:
    from tiering.loader.batches.batch import Batch, Block
    from tiering.loader.inference.embeddings import TieredEmbeddings
    from tiering.loader.layout import TieredLayout, open_layout
    from tiering.loader.loader import Loader
    from tiering.loader.processes.peers import PeerGroup
    from tiering.loader.stats import Counters, TierCounters
    from tiering.loader.tables.gather import TieredFeatures
    from tiering.loader.tiered_tensor.tensor import TieredTensor
else:
    __getattr__ = lazy_names(
        __name__, "batches.batch", "inference.embeddings", "layout", "loader", "processes.peers", "stats",
        "tables.gather", "tiered_tensor.tensor",
    )  # fmt: skip
