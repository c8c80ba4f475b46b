"""tiering: hotness scores, reordering and tiered layouts for GNN training on graphs larger than memory."""

__version__ = "0.1.0"
