"""Datasets of users, in the formats they come in, described for the graph stage; and some made from a seed."""

from tiering.datasets.generated import generate
from tiering.datasets.open import detect_format, open_dataset

__all__ = ["detect_format", "generate", "open_dataset"]
