"""PyG: batches as its loaders make them, and its stores and sampler over a layout."""
