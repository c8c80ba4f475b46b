"""Datasets of users, in the formats they come in, described for the graph stage; `generated` makes some from a seed."""

from typing import TYPE_CHECKING

from tiering.arguments import lazy_names

__all__ = ["detect_format", "open_dataset"]

if TYPE_CHECKING:
    from tiering.datasets.open import detect_format, open_dataset
else:
    __getattr__ = lazy_names(__name__, "open")
