"""Datasets of users, in the formats they come in, described for the graph stage; and one made from nothing."""

from tiering.datasets.detect import detect, open_dataset
from tiering.datasets.synthetic import generate

__all__ = ["detect", "generate", "open_dataset"]
