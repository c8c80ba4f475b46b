"""Layer-wise inference of all nodes, out of core: `tiering.loader.TieredLayout.inference`."""

from tiering.loader.inference.blocks import InferenceBlock
from tiering.loader.inference.layers import Layer

__all__ = ["InferenceBlock", "Layer"]
