"""Export embeddings: the rows of each node type as a ``.npy`` file, by rank or by the ids of the source."""

from __future__ import annotations

import json
import os
from typing import Any, cast

import numpy as np

from tiering.artifacts.manifest import storage_dtype
from tiering.artifacts.storage import require_space
from tiering.exports.arrays import SCRATCH, ExportWriter
from tiering.exports.export import Export
from tiering.formats.embeddings import ROWS, Embeddings
from tiering.formats.features import FeatureTable
from tiering.formats.order import Order
from tiering.memory import Budget, parse_memory
from tiering.reorder.rows import PermutedRows
from tiering.text.units import parse_threads
from tiering.version import __version__


def export_embeddings(
    embeddings: Embeddings,
    out: str | os.PathLike[str],
    *,
    original_order: bool = False,
    threads: int | str | None = None,
    memory: str | int | Budget | None = None,
    force: bool = False,
) -> Export:
    """Write the rows of each type as ``nodes/TYPE/feat.npy``, with `original_order` by the ids of the source.

    Rows of some nodes only lie in the order of their ranks, and ``nodes/TYPE/data/ids.npy`` says whose they are. Cost:
    every byte is read once and written once, within the memory as a reorder of rows does it.
    """
    budget, workers = parse_memory(memory), parse_threads(threads)
    options, inputs = {"original_order": original_order}, {"embeddings": embeddings.digest}
    provenance = {"package": f"tiering {__version__}", "stage": "export", "options": options, "inputs": inputs}
    types: dict[str, Any] = {}
    order, place = cast("Order", embeddings.part(Order.kind)), embeddings.manifest.place(ROWS)
    with ExportWriter(out, force=force, identity=provenance, reads=(embeddings,)) as writer:
        require_space({writer.path: embeddings.manifest.files[ROWS].bytes})
        for name in embeddings.node_types:
            entry, ids, path = embeddings.entry(name), embeddings.nodes(name), f"nodes/{name}/feat.npy"
            number, dtype = storage_dtype(entry.stored).itemsize, entry.stored.replace("bfloat16", "int16")
            width, held = entry.dim * number, embeddings.manifest.held
            source = entry.row_bytes // number, entry.stored, entry.offset, "rank", 2, place, None, held
            maps = (order.old_to_new(name), order.new_to_old(name)) if original_order and ids is None else (None, None)
            if not writer.has(path):
                with (
                    writer.file(path, dtype, (entry.rows, entry.dim)) as file,
                    PermutedRows(
                        FeatureTable(embeddings.path / ROWS, entry.rows, *source), *maps,
                        budget=budget, scratch=writer.path / SCRATCH, threads=workers,
                    ) as rows,
                ):  # fmt: skip
                    for first, part in rows.chunks(file.done // width, entry.rows):
                        file.append(np.ascontiguousarray(part[:, :width]), first * width)
            arrays = {"feat": {"path": path, "dtype": entry.stored, "stored": dtype, "shape": [entry.rows, entry.dim]}}
            if ids is not None:
                path = f"nodes/{name}/data/ids.npy"
                writer.put(path, order.new_to_old(name)[ids].astype(np.int64) if original_order else ids)
                arrays["ids"] = {"path": path, "dtype": "int64", "stored": "int64", "shape": [ids.size]}
            absent = dict.fromkeys(("num_classes", "label", "new_to_old"))
            types[name] = {"num_nodes": entry.rows, **absent, "splits": {}, "seed_labels": {}, "data": arrays}
            types[name]["feat"] = arrays.pop("feat")
        document = {
            "format": "tiering.export", "version": "1.0", "to": "graphbolt",
            "order": "original" if original_order else "rank", "provenance": provenance,
            "homogeneous": len(types) == 1, "node_types": types, "relations": list[Any](),
        }  # fmt: skip
        writer.commit({"export.json": (json.dumps(document, indent=1) + "\n").encode()})
    return Export(writer.out, document)
