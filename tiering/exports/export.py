"""Write an export: arrays as ``.npy`` files, ``export.json``, ``metadata.yaml`` for GraphBolt; and embeddings."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from tiering.artifacts.checksum import file_digests
from tiering.artifacts.manifest import FileEntry, relation_key, storage_dtype
from tiering.artifacts.storage import Bytes, require_space, storage_errors
from tiering.errors import InputError
from tiering.exports.arrays import SCRATCH, Entry, ExportPlan, ExportWriter
from tiering.formats.embeddings import ROWS, Embeddings
from tiering.formats.features import FeatureTable
from tiering.formats.graph import Graph
from tiering.formats.layout import Layout
from tiering.formats.order import Order
from tiering.memory import Budget, parse_memory
from tiering.reorder.table_reader import TableReader
from tiering.run.move import Items, move_items
from tiering.run.places import Places
from tiering.text.description import Fields, Part
from tiering.text.progress import progress
from tiering.text.units import format_bytes, parse_threads
from tiering.version import __version__

SETS = {"train": "train_set", "val": "validation_set", "test": "test_set"}  # names of the splits in GraphBolt
FORMATS = ("npy", "parquet")  # of embeddings
ON_DISK, IN_MEMORY = {"in_memory": False}, {"in_memory": True}


@dataclass(frozen=True)
class Export:
    """A written export."""

    path: Path
    document: Entry  # ``export.json``

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file())

    def describe(self) -> list[Part]:
        """Return the fields that the command prints."""
        ids = "ranks" if self.document["order"] == "rank" else "original ids"
        return [Fields({"export": str(self.path), "node ids": ids, "size": format_bytes(self.bytes)})]

    def summary(self) -> Entry:
        """Return the JSON that the command prints."""
        return {"path": str(self.path), "bytes": self.bytes, **self.document}


def write_export(
    artifact: Layout | Graph,
    out: str | os.PathLike[str],
    *,
    original_order: bool = False,
    stored: bool = False,
    threads: int | str | None = None,
    memory: str | int | Budget | None = None,
    force: bool = False,
) -> Export:
    """Write a layout or graph as ``.npy`` files, with ``export.json`` and GraphBolt's ``metadata.yaml``.

    With `original_order` nodes have the ids of the source; by default ids are ranks, if there are any. Rows that a
    codec stored are decoded; with `stored` they stay as they are, and the codec's parameters are exported too. Cost:
    every byte is read once and written once, front to back; with `original_order`, ranks are relabeled as in a reorder.
    """
    budget, workers = parse_memory(memory), parse_threads(threads)
    plan = ExportPlan(artifact, original_order, budget, workers, stored)
    inputs = {artifact.kind: artifact.digest}
    options = {"original_order": original_order, **({"stored": True} if stored else {})}
    provenance = {"package": f"tiering {__version__}", "stage": "export", "options": options, "inputs": inputs}
    identity = {**provenance, "inputs": {**inputs, **plan.states}}
    with ExportWriter(out, force=force, identity=identity, reads=(artifact,)) as writer:
        if not writer.journal.done:
            require_space({writer.path: sum(plan.stage(writer.out).needed().values())})
        with progress(sum(array.bytes for array in plan.arrays), "export", "B", scale=True) as bar:
            for array in plan.arrays:
                if writer.has(path := f"{array.name}.npy"):
                    bar.update(array.bytes)
                    continue
                with writer.file(path, array.stored, array.shape) as file:
                    for nbytes in array.append(file, writer):
                        bar.update(nbytes)
        about = {
            "format": "tiering.export",
            "version": "1.1" if stored else "1.0",
            "to": "graphbolt",
            "order": plan.order,
        }
        document = {**about, "provenance": provenance, **plan.document}
        documents = {"metadata.yaml": graphbolt_metadata(writer.out.name, document), "export.json": document}
        writer.commit({name: (json.dumps(value, indent=1) + "\n").encode() for name, value in documents.items()})
    return Export(writer.out, document)


def graphbolt_metadata(name: str, document: dict[str, Any]) -> dict[str, Any]:
    """Return the description by which `dgl.graphbolt.OnDiskDataset` opens an export, from its ``export.json``.

    Edges are pairs sorted by destination: the CSC that GraphBolt builds keeps their order. It is JSON, so YAML.
    """
    types, nodes, edges, features, attributes = document["node_types"], [], [], [], []
    labeled = any(entry["seed_labels"] for entry in types.values())
    sets: dict[str, list[Entry]] = {}

    def of_type(key: str) -> Entry:
        return {} if document["homogeneous"] else {"type": key}

    def array(file: Entry) -> Entry:
        return {"format": "numpy", "path": file["path"]}

    for key, entry in types.items():
        nodes.append({**of_type(key), "num": entry["num_nodes"]})
        if entry["feat"] is not None:
            features.append({"domain": "node", **of_type(key), "name": "feat", **array(entry["feat"]), **ON_DISK})
        for split in SETS:
            if split in entry["seed_labels" if labeled else "splits"]:
                files = [("seeds", entry["splits"][split])]
                if labeled:
                    files.append(("labels", entry["seed_labels"][split]))
                data = [{"name": what, **array(file), **IN_MEMORY} for what, file in files]
                sets.setdefault(SETS[split], []).append({**of_type(key), "data": data})
    for relation in document["relations"]:
        key = relation_key((relation["src"], relation["name"], relation["dst"]))
        edges.append({**of_type(key), **array(relation["edge_index"])})
        for part, file in relation["data"].items():
            feature = {"domain": "edge", **of_type(key), "name": part, **array(file)}
            features.append({**feature, **ON_DISK})
            # With several relations GraphBolt would not bring attributes into the order of its edges.
            if part == "weight" and document["homogeneous"]:
                attributes.append({**feature, **IN_MEMORY})
    # One task, whose sets consist of the same arrays for all types: of those that have labels, or of all if none has.
    classes = max((entry["num_classes"] or 0 for entry in types.values() if entry["seed_labels"]), default=0)
    task = {"name": "node_classification", **({"num_classes": classes} if labeled else {}), **sets}
    graph = {"nodes": nodes, "edges": edges, **({"feature_data": attributes} if attributes else {})}
    return {"dataset_name": name, "graph": graph, "feature_data": features, "tasks": [task] if sets else []}


def _write_parquet(writer: ExportWriter, name: str, batches: Any) -> None:
    """Write a stream of batches as a parquet file, each as one row group."""
    from pyarrow import parquet

    path, plain = writer.path / name, {"compression": "none", "use_dictionary": False, "write_statistics": ["id"]}
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            with parquet.ParquetWriter(file, batches.schema, **plain) as table, progress(None, name, "row") as bar:
                for batch in batches:
                    table.write_batch(batch, row_group_size=batch.num_rows)
                    bar.update(batch.num_rows)
            os.fsync(file.fileno())
    writer.record(name, FileEntry.of("uint8", (path.stat().st_size,), file_digests(path)))


def _first_bytes(rows: Bytes, count: int) -> Bytes:
    return rows[:, :count]


def export_embeddings(
    embeddings: Embeddings,
    out: str | os.PathLike[str],
    *,
    original_order: bool = False,
    format: str = "npy",  # noqa: A002 - the name the command line has
    threads: int | str | None = None,
    memory: str | int | Budget | None = None,
    force: bool = False,
) -> Export:
    """Write the rows of each type as ``nodes/TYPE/feat.npy``, with `original_order` by the ids of the source.

    Rows of some nodes only lie in the order of their ranks, and ``nodes/TYPE/data/ids.npy`` has the nodes' ids. With
    `format` ``parquet`` ``nodes/TYPE/feat.parquet`` has the columns of `Embeddings.to_arrow` by rank, in row groups of
    32 MiB. Cost: every byte is read once and written once, within the memory as a reorder of rows does it.
    """
    if format not in FORMATS:
        raise InputError(f"format: expected {' or '.join(FORMATS)}, found {format!r}")
    if original_order and format == "parquet":
        raise InputError(
            "original order: parquet always has a column of the source's ids, in the order of ranks; omit it"
        )
    budget, workers = parse_memory(memory), parse_threads(threads)
    options: dict[str, Any] = {"original_order": original_order, **({} if format == "npy" else {"format": format})}
    inputs = {"embeddings": embeddings.digest}
    provenance = {"package": f"tiering {__version__}", "stage": "export", "options": options, "inputs": inputs}
    types: dict[str, Any] = {}
    order, opener = cast("Order", embeddings.part(Order.kind)), partial(embeddings.manifest.place, ROWS)
    with ExportWriter(out, force=force, identity=provenance, reads=(embeddings,)) as writer:
        require_space({writer.path: embeddings.manifest.files[ROWS].bytes})
        for name in embeddings.node_types:
            entry, ids, path = embeddings.entry(name), embeddings.nodes(name), f"nodes/{name}/feat.{format}"
            number, dtype = storage_dtype(entry.stored).itemsize, entry.stored.replace("bfloat16", "int16")
            width, held = entry.dim * number, embeddings.manifest.held
            source = entry.row_bytes // number, entry.stored, entry.offset, "rank", 2, opener, None, held
            maps = (order.old_to_new(name), order.new_to_old(name)) if original_order and ids is None else None
            if format == "parquet" and not writer.has(path):
                _write_parquet(writer, path, embeddings.to_arrow(name))
            elif not writer.has(path):
                table = FeatureTable(embeddings.path / ROWS, entry.rows, *source)
                convert = partial(_first_bytes, count=width)
                reader = TableReader(table, maps, workers, convert=convert, made_bytes=width)
                items = Items(reader, Places.row_by_row(entry.rows, width), workers)
                with writer.file(path, dtype, (entry.rows, entry.dim)) as file:
                    move_items([items], [file], budget, writer.path / SCRATCH, path)
            dtype = dtype if format == "npy" else format
            arrays = {"feat": {"path": path, "dtype": entry.stored, "stored": dtype, "shape": [entry.rows, entry.dim]}}
            if ids is not None:
                path = f"nodes/{name}/data/ids.npy"
                writer.put(path, order.new_to_old(name)[ids].astype(np.int64) if original_order else ids)
                arrays["ids"] = {"path": path, "dtype": "int64", "stored": "int64", "shape": [ids.size]}
            absent = dict.fromkeys(("num_classes", "label", "new_to_old"))
            types[name] = {"num_nodes": entry.rows, **absent, "splits": {}, "seed_labels": {}, "data": arrays}
            types[name]["feat"] = arrays.pop("feat")
        document = {
            "format": "tiering.export", "version": "1.0" if format == "npy" else "1.2", "to": "graphbolt",
            "order": "original" if original_order else "rank", "provenance": provenance,
            "homogeneous": len(types) == 1, "node_types": types, "relations": list[Any](),
        }  # fmt: skip
        writer.commit({"export.json": (json.dumps(document, indent=1) + "\n").encode()})
    return Export(writer.out, document)
