"""Datasets of users, in the formats they come in, described for the graph stage; `generated` makes some from a seed."""

from tiering.datasets.open import detect_format, open_dataset

__all__ = ["detect_format", "open_dataset"]
