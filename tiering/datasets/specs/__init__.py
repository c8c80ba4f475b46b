"""What is known of published datasets: their files, sizes and defects, from ``data_specs/sources``."""

from tiering.datasets.specs.sizes import make_sized_dataset
from tiering.datasets.specs.spec import (
    DatasetSpec,
    Defect,
    SpecFile,
    families,
    find_spec,
    known_specs,
)
from tiering.datasets.specs.tree import check_tree, locate, place

__all__ = [
    "DatasetSpec",
    "Defect",
    "SpecFile",
    "check_tree",
    "families",
    "find_spec",
    "known_specs",
    "locate",
    "make_sized_dataset",
    "place",
]
