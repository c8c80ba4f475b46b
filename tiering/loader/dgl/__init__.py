"""Batches as DGL's loaders make them."""
