"""What is known of published datasets: their files, sizes and defects, from ``data_specs/sources``."""

from tiering.datasets.sources.sizes import dataset_of_sizes
from tiering.datasets.sources.source import (
    Defect,
    Source,
    SourceFile,
    families,
    find_source,
    sources,
)
from tiering.datasets.sources.tree import check_tree, locate, place

__all__ = [
    "Defect",
    "Source",
    "SourceFile",
    "check_tree",
    "dataset_of_sizes",
    "families",
    "find_source",
    "locate",
    "place",
    "sources",
]
