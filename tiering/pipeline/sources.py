"""Sources of an import: opened, recorded, or sized where a published dataset is not there yet."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from glob import glob
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tiering.artifacts.manifest import Manifest
from tiering.artifacts.remote_path import RemotePath, as_path
from tiering.artifacts.storage import nearest_folder
from tiering.errors import InputError, TieringError
from tiering.formats.shape import GraphShape
from tiering.memory import parse_memory
from tiering.pipeline.stage import Pathlike, StageRun
from tiering.run.plan import StageEstimate, StepEstimate
from tiering.text.arguments import is_url
from tiering.text.progress import note

if TYPE_CHECKING:
    from tiering.datasets.specs import DatasetSpec
    from tiering.formats.dataset import Dataset

CHECKSUM_FEATURES = "checksum_features"  # option of an import that is not the source's
PARSED = ("edgelist", "mtx", "npz", "parquet", "tables", "dgl")
"""Formats that are read as a whole when they are opened, by a dry run into temporary files without names."""


def table_files(options: Mapping[str, Any]) -> list[Any]:
    """Return the files, existing ones of patterns, and streams of tables that options name; edges first."""
    from tiering.datasets.options import ImportOptions

    parsed = ImportOptions.parse({name: options.get(name) for name in ("relation", "relations", "nodes")})
    tables = (*parsed.relation, *parsed.nodes) if parsed.relation else ()
    names: list[Any] = [name for table in tables for name in table.files]
    urls = [isinstance(name, str) and is_url(name) for name in names]
    patterns = [
        name if isinstance(name, str) and not url and not Path(name).exists() else ""
        for name, url in zip(names, urls, strict=True)
    ]
    found = [sorted(chain(*map(glob, pattern.split(",")))) for pattern in patterns]
    named = [name.split(",") if url else [name] for name, url in zip(names, urls, strict=True)]
    return [file for one, files in zip(named, found, strict=True) for file in files or one]


def scratch_of(options: Mapping[str, Any]) -> list[tuple[Path, str]]:
    """Return the directory of an import's temporary files, if one is given."""
    uses = {"work_dir": "holds temporary files of the command", "cache": "holds copies of remote files"}
    return [(Path(options[name]), use) for name, use in uses.items() if options.get(name)]


def open_source(
    run: StageRun,
    source: Pathlike | Any,
    name: str,
    options: Mapping[str, Any],
    *,
    in_place: bool,
    edge_ids: bool | None,
) -> Dataset:
    """Open the dataset of an import; temporary files go to the disk that has room for the graph."""
    from tiering.datasets.open import open_dataset

    given = {"work_dir": nearest_folder(run.path.parent), **options}
    given.pop(CHECKSUM_FEATURES, None)
    return open_dataset(source, format=name, memory=run.memory, in_place=in_place, edge_ids=edge_ids, **given)


def import_options(source: Pathlike | Any, chosen: str, **options: Any) -> dict[str, Any]:
    """Return the recorded options of an import of a `chosen` format, without defaults."""
    from tiering.datasets.open import keeps_edge_ids
    from tiering.datasets.options import given_options

    name, edge_ids = str(options.pop("format", "auto")), keeps_edge_ids(options.pop("edge_ids", None), chosen)
    in_hand = not isinstance(source, (str, os.PathLike))
    path = Path(type(source).__qualname__) if in_hand else as_path(source).absolute()
    of_source = {name: value for name, value in options.items() if name != CHECKSUM_FEATURES}
    return {
        "source": str(path),
        "asked_format": name,
        "edge_ids": edge_ids,
        "given": given_options(of_source),
        **({CHECKSUM_FEATURES: True} if options.get(CHECKSUM_FEATURES) else {}),
    }


def find_new_files(run: StageRun, source: Pathlike, made: Manifest, options: Mapping[str, Any]) -> list[str]:
    """Return the files that an import of `options` reads now, and did not read when it `made` a graph.

    Cost: a listing; where it shows files like those that were read, the dataset is opened.
    """
    read, changes = set(made.provenance["inputs"]), made.changes
    known = read.union(changes.get("ignored_files", ()))
    folders, suffixes = ({getattr(as_path(file), part) for file in read} for part in ("parent", "suffix"))
    cheap = changes["format"] not in (*PARSED, "ogb") or changes["format"] == "parquet"

    def is_candidate(file: Path) -> bool:
        return file.suffix in {".npy", *suffixes} and (cheap or file.parent in folders) and str(file) not in known

    if not any(map(is_candidate, _data_files(as_path(changes["source"])))):
        return []
    given = {name: value for name, value in options.items() if name not in ("format", "edge_ids")}
    try:
        name = str(options.get("format", "auto"))
        with open_source(run, source, name, given, in_place=True, edge_ids=options.get("edge_ids")) as dataset:
            return sorted({str(file) for file in dataset.files} - read)
    except TieringError as error:
        note(f"note: {source}: new files make the dataset unreadable; the imported graph is kept: {error}")
        return []


def _data_files(path: Path) -> Iterator[Path]:
    """Yield the files under a directory, without hidden files and files of artifacts."""
    if isinstance(path, RemotePath):
        yield from filter(RemotePath.is_file, path.rglob("[!.]*"))
    for folder, folders, files in os.walk(path):
        if "manifest.json" in files:
            folders.clear()
            continue
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(folder, name) for name in files if not name.startswith("."))


def plan_source(
    run: StageRun, source: Pathlike, name: str, edge_ids: bool | None, options: Mapping[str, Any]
) -> tuple[StageEstimate, GraphShape]:
    """Plan an import and the sizes of its graph; a published dataset that is missing is sized by its specification."""
    from tiering.datasets.open import keeps_edge_ids
    from tiering.datasets.specs import find_spec, make_sized_dataset

    carrier, known = run.planner, options.get("spec") is None or as_path(source).exists()
    with (
        open_source(run, source, name, options, in_place=carrier is not None, edge_ids=edge_ids)
        if known
        else make_sized_dataset(find_spec(str(options["spec"])), Path(source).absolute(), options)
    ) as dataset:
        if known:
            opening = _opening(dataset)
        else:  # the files of a missing dataset are read once, features apart
            labels = [node.labels for node in dataset.nodes.values() if node.labels is not None]
            arrays = [*labels, *(array for edges in dataset.edges for array in edges.arrays)]
            opening = StepEstimate("files", "read once", disk_read=sum(array.nbytes for array in arrays))
        from tiering.graph.plan import plan_import

        kept = keeps_edge_ids(edge_ids, dataset.notes["format"]) if known else bool(edge_ids)
        plan = plan_import(dataset, parse_memory(run.memory), edge_ids=kept, out=run.path, carrier=carrier)
        stage = plan.stage(run.path)
    return replace(stage, steps=(opening, *stage.steps)), plan.shape


def _opening(dataset: Dataset) -> StepEstimate:
    """Return the step of opening the dataset, which is already done."""
    in_place = any(edges.decode for edges in dataset.edges)
    read = sum(file.bytes for file in dataset.files.values()) if dataset.format in PARSED and not in_place else 0
    arrays = [array for edges in dataset.edges for array in (edges.src, edges.dst, *edges.data.values())]
    nameless = sum(array.nbytes for array in arrays if isinstance(array, np.memmap) and array.filename is None)
    nameless += sum(stream.bytes for stream in dataset.streams)
    return StepEstimate("open", "done now", disk_read=read, disk_scratch=nameless)


def estimate_spec(source: DatasetSpec) -> tuple[GraphShape, int] | None:
    """Return the sizes of a published dataset's graph and the memory its import needs; ``None`` if unpublished."""
    from tiering.datasets.specs import make_sized_dataset

    try:
        with make_sized_dataset(source, Path()) as dataset:
            from tiering.graph.plan import least_memory

            return GraphShape.of_dataset(dataset), least_memory(dataset)
    except InputError:
        return None
