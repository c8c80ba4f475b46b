"""Datasets of users, in the formats they come in, described for the graph stage; and some made from a seed."""

from tiering.datasets.detect import detect, open_dataset
from tiering.datasets.generated import generate

__all__ = ["detect", "generate", "open_dataset"]
