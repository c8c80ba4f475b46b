"""Datasets of users, in the formats they come in, described for the graph stage; and one made from nothing."""

from tiering.sources.detect import detect, open_dataset
from tiering.sources.synthetic import generate

__all__ = ["detect", "generate", "open_dataset"]
