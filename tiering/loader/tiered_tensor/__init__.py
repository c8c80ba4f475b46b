"""The combined tensor of a tensor in hand: see `tiering.tiered`."""
