"""Specifications of published datasets, from ``data_specs/sources``: their files, sizes and defects."""

from tiering.datasets.specs.sizes import make_sized_dataset
from tiering.datasets.specs.spec import DatasetSpec, Defect, SpecFile, families, find_spec, known_specs
from tiering.datasets.specs.tree import check_tree, find_file, find_root, list_files

__all__ = [
    "DatasetSpec", "Defect", "SpecFile", "check_tree", "families", "find_file", "find_root", "find_spec",
    "known_specs", "list_files", "make_sized_dataset",
]  # fmt: skip
