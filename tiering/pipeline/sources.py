"""Sources of an import: opened, recorded, or sized where a published dataset is not there yet."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from glob import glob
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tiering.artifacts.checksum import digest_bytes
from tiering.artifacts.storage import nearest_folder
from tiering.errors import InputError
from tiering.formats.dataset import Dataset
from tiering.formats.shape import GraphShape
from tiering.memory import parse_memory
from tiering.pipeline.stage import Pathlike, StageRun
from tiering.run.plan import StageEstimate, StepEstimate

if TYPE_CHECKING:
    from tiering.datasets.specs import DatasetSpec

CHECKSUM_FEATURES = "checksum_features"  # option of an import that is not the source's
PARSED = ("edgelist", "mtx", "npz", "parquet", "tables", "dgl")
"""Formats that are read as a whole when they are opened, by a dry run into temporary files without names."""


def table_files(options: Mapping[str, Any]) -> list[str]:
    """Return the files of the tables that options name, those of edges first; of patterns those that there are."""
    from tiering.datasets.options import ImportOptions

    parsed = ImportOptions.parse({name: options.get(name) for name in ("relation", "relations", "nodes")})
    names = [name for table in (*parsed.relation, *parsed.nodes) for name in table.files] if parsed.relation else []
    found = ([] if Path(name).exists() else sorted(chain(*map(glob, name.split(",")))) for name in names)
    return [file for name, files in zip(names, found, strict=True) for file in files or [name]]


def scratch_of(options: Mapping[str, Any]) -> list[tuple[Path, str]]:
    """Return the directory of an import's temporary files, if one is given."""
    return [(Path(options["work_dir"]), "holds temporary files of the command")] if options.get("work_dir") else []


def open_source(
    run: StageRun, source: Pathlike | Any, name: str, options: Mapping[str, Any], *, in_place: bool, edge_ids: bool
) -> Dataset:
    """Open the dataset of an import; temporary files go to the disk that has room for the graph."""
    from tiering.datasets.open import open_dataset

    given = {"work_dir": nearest_folder(run.path.parent), **options}
    given.pop(CHECKSUM_FEATURES, None)
    return open_dataset(source, format=name, memory=run.memory, in_place=in_place, edge_ids=edge_ids, **given)


def import_options(source: Pathlike | Any, **options: Any) -> dict[str, Any]:
    """Return the recorded options of an import: without defaults, with the file names read."""
    from tiering.datasets.options import given_options

    name, edge_ids = str(options.pop("format", "auto")), bool(options.pop("edge_ids", False))
    in_hand = not isinstance(source, (str, os.PathLike))
    path = Path(type(source).__qualname__) if in_hand else Path(source).absolute()
    of_source = {name: value for name, value in options.items() if name != CHECKSUM_FEATURES}
    return {
        "source": str(path),
        "source_files": "" if in_hand else _listing(path),
        "asked_format": name,
        "edge_ids": edge_ids,
        "given": given_options(of_source),
        **({CHECKSUM_FEATURES: True} if options.get(CHECKSUM_FEATURES) else {}),
    }


def _listing(path: Path) -> str:
    """Return a digest of the names of the data files under `path`, artifacts left out, to notice changes."""
    names = []
    for folder, folders, files in os.walk(path):
        if "manifest.json" in files:
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        own = [name for name in files if Path(name).suffix not in ("", ".toml", ".json", ".png", ".md")]
        names += [os.path.relpath(Path(folder) / name, path) for name in sorted(own) if not name.startswith(".")]
    return digest_bytes(os.fsencode("\n".join(names)))


def plan_source(
    run: StageRun, source: Pathlike, name: str, edge_ids: bool, options: Mapping[str, Any]
) -> tuple[StageEstimate, GraphShape]:
    """Plan an import and the sizes of its graph; a published dataset that is missing is sized by its specification."""
    from tiering.datasets.specs import find_spec, make_sized_dataset

    carrier, known = run.planner, options.get("spec") is None or Path(source).exists()
    with (
        open_source(run, source, name, options, in_place=carrier is not None, edge_ids=edge_ids)
        if known
        else make_sized_dataset(find_spec(str(options["spec"])), Path(source).absolute(), options.get("split"))
    ) as dataset:
        if known:
            opening = _opening(dataset)
        else:  # the files of a missing dataset are read once, features apart
            labels = [node.labels for node in dataset.nodes.values() if node.labels is not None]
            arrays = [*labels, *(array for edges in dataset.edges for array in edges.arrays)]
            opening = StepEstimate("files", "read once", 0, sum(array.nbytes for array in arrays))
        from tiering.graph.plan import plan_import

        plan = plan_import(dataset, parse_memory(run.memory), edge_ids=edge_ids, out=run.path, carrier=carrier)
        stage = plan.stage(run.path)
    return replace(stage, steps=(opening, *stage.steps)), plan.shape


def _opening(dataset: Dataset) -> StepEstimate:
    """Return the step of opening the dataset, which is already done."""
    in_place = any(edges.decode for edges in dataset.edges)
    read = sum(file.bytes for file in dataset.files.values()) if dataset.format in PARSED and not in_place else 0
    arrays = [array for edges in dataset.edges for array in (edges.src, edges.dst, *edges.data.values())]
    nameless = [array for array in arrays if isinstance(array, np.memmap) and array.filename is None]
    return StepEstimate("open", "done now", 0, read, 0, sum(array.nbytes for array in nameless))


def estimate_spec(source: DatasetSpec) -> tuple[GraphShape, int] | None:
    """Return the sizes of a published dataset's graph and the memory its import needs; ``None`` if unpublished."""
    from tiering.datasets.specs import make_sized_dataset

    try:
        with make_sized_dataset(source, Path()) as dataset:
            from tiering.graph.plan import least_memory

            return GraphShape.of_dataset(dataset), least_memory(dataset)
    except InputError:
        return None
