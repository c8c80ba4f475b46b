"""``fused_csc_sampling_graph.pt``: the adjacency that GraphBolt makes of all relations together, read without DGL.

Types are numbered, the nodes of each follow those of the one before; ``type_per_edge`` says the relation of an entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tiering.artifacts.manifest import Relation
from tiering.datasets.import_context import RELATION, ImportContext
from tiering.datasets.readers.npy import list_ends
from tiering.datasets.scratch import chunks
from tiering.errors import InputError, MissingError
from tiering.formats.dataset import ColumnIds, EdgeData
from tiering.formats.torch_file import StoredObject, read_torch, to_array

Array = npt.NDArray[Any]
WHAT = "a FusedCSCSamplingGraph of GraphBolt"
EDGE_IDS = "_ORIGINAL_EDGE_ID"


def read_topology(path: Path, context: ImportContext) -> tuple[dict[str, int], list[EdgeData]]:
    """Return nodes by type, and the edges of all relations, split in one pass into temporary files."""
    state = _state(read_torch(path, WHAT), path)
    context.record_file(path)
    tensors = state["independent_tensors"]
    indices = _tensor(tensors, "indices", path)
    _, columns = list_ends(_tensor(tensors, "indptr", path), indices, path, context)
    attributes = state.get("edge_attributes") or {}
    ids = _tensor(attributes, EDGE_IDS, path) if EDGE_IDS in attributes else None
    if ids is not None and ids.shape != indices.shape:
        raise _wrong(path, f"{EDGE_IDS} of shape {ids.shape} for {indices.shape[0]} edges")
    if "type_per_edge" not in tensors:
        edges = EdgeData(RELATION, indices, columns, f"{path}: indices")
        edges.edge_ids = None if ids is None else ids.astype(np.int64, copy=False)
        return {}, [edges]
    return _separate(state, indices, cast("ColumnIds", columns), ids, path, context)


def _separate(
    state: Mapping[str, Any], indices: Array, columns: ColumnIds, ids: Array | None, path: Path, context: ImportContext
) -> tuple[dict[str, int], list[EdgeData]]:
    """Split the relations of a heterogeneous graph, ids counted from 0 in each type."""
    tensors = state["independent_tensors"]
    kinds = _tensor(tensors, "type_per_edge", path)
    begins = _tensor(tensors, "node_type_offset", path).astype(np.int64)
    types = _numbered(state, "node_type_to_id", path)
    relations = [_relation(text, path) for text in _numbered(state, "edge_type_to_id", path)]
    if kinds.shape != indices.shape or begins.shape[0] != len(types) + 1 or begins[-1] != columns.num_columns:
        raise _wrong(path, "types that do not belong to its nodes and edges")
    if (np.diff(begins) < 0).any() or begins[0] != 0:
        raise _wrong(path, "types of fewer than 0 nodes")
    place = {name: (int(begins[k]), int(begins[k + 1])) for k, name in enumerate(types)}
    for source, _, destination in relations:
        if source not in place or destination not in place:
            raise _wrong(path, f"a relation between {source} and {destination}, which are no types of it")
    files = [{name: context.scratch.growing_file(np.int64) for name in ("src", "dst", "id")} for _ in relations]
    for part in chunks(indices.shape[0]):
        ends, kind = {"src": indices[part], "dst": columns[part]}, kinds[part]
        if ids is not None:
            ends["id"] = ids[part]
        if kind.size and int(kind.max()) >= len(relations):
            raise _wrong(path, f"relation {int(kind.max())} of {len(relations)}")
        for number in np.unique(kind).tolist():
            for name, values in ends.items():
                chosen = values[kind == number].astype(np.int64)
                if name != "id":
                    relation = relations[number]
                    first, last = place[relation[0] if name == "src" else relation[2]]
                    if chosen.size and not (first <= int(chosen.min()) and int(chosen.max()) < last):
                        raise _wrong(path, f"an edge of {':'.join(relation)} to nodes of another type")
                    chosen -= first
                files[number][name].append(chosen)
    edges = []
    for relation, made in zip(relations, files, strict=True):
        arrays = {name: file.finish() for name, file in made.items()}
        edge = EdgeData(relation, arrays["src"], arrays["dst"], f"{path}: {':'.join(relation)}")
        edge.edge_ids = None if ids is None else arrays["id"]
        edges.append(edge)
    return {name: end - begin for name, (begin, end) in place.items()}, edges


def _state(value: Any, path: Path) -> Mapping[str, Any]:
    """Return the dictionaries that the object keeps, through those that wrap it."""
    for _ in range(4):
        if isinstance(value, dict) and isinstance(value.get("independent_tensors"), dict):
            return value
        if isinstance(value, StoredObject):
            value = value.state.get("_c_csc_graph", value.state.get("", value.state))
        elif isinstance(value, tuple) and value:
            value = value[0]
    raise MissingError(f"{path}: expected {WHAT}, found none; preprocess the dataset again, or import its own edges")


def _tensor(tensors: Mapping[str, Any], name: str, path: Path) -> Array:
    array = to_array(tensors.get(name), path, f"{path}: {name}")
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise _wrong(path, f"no {name}")
    return array


def _numbered(state: Mapping[str, Any], name: str, path: Path) -> list[str]:
    """Return the names by their numbers, 0, 1, 2..."""
    numbers = state.get(name)
    numbers = numbers.get(name, numbers) if isinstance(numbers, dict) else numbers
    values = {}
    for text, number in (numbers if isinstance(numbers, dict) else {}).items():
        value = to_array(number, path, f"{path}: {name}")
        if value.size == 1 and value.dtype.kind in "iu":
            values[int(value.item())] = str(text)
    if sorted(values) != list(range(len(values))) or not values:
        raise _wrong(path, f"no {name}")
    return [values[number] for number in range(len(values))]


def _relation(text: str, path: Path) -> Relation:
    parts = text.split(":")
    if len(parts) != 3:
        raise _wrong(path, f"an edge type {text[:80]}")
    return (parts[0], parts[1], parts[2])


def _wrong(path: Path, what: str) -> InputError:
    return InputError(f"{path}: expected {WHAT}, found {what}; preprocess the dataset again")
