"""Tensors over several memories: see `tiering.tiered`."""
