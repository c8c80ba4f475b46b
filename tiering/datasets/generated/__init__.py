"""Datasets of any size made from a seed."""

from tiering.datasets.generated.synthetic import generate

__all__ = ["generate"]
