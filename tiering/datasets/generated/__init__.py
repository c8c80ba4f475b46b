"""Datasets made from a seed: of any size, and small ones like published ones."""

from tiering.datasets.generated.replica import replicate
from tiering.datasets.generated.synthetic import generate

__all__ = ["generate", "replicate"]
