"""Training on a GPU: tiers in its memory, rows, lists and batches that arrive there; kernels: ``ext/cuda``."""
