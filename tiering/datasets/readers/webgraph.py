"""Format ``webgraph``: BVGraph, in which the WebGraph framework stores graphs and LAW publishes web crawls.

``BASE.graph`` (successor lists as a stream of bits), ``BASE.properties`` (how it is coded) and, if there is one,
``BASE.offsets`` (where lists begin; else one pass over the stream finds out). A directory may also hold the nodes'
files of format `npy` (``node_feat.npy``, ``node_label.npy``, ``train_idx.npy``...). Cost: temporary disk of 4 bytes per
edge (8 from 2^31 nodes on) and 16 per node; lists are decoded in parallel.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.manifest import id_bytes
from tiering.artifacts.regular import entries, is_folder, is_there, require_file
from tiering.datasets.edges import require_room
from tiering.datasets.nodes import NodeFiles, read_nodes
from tiering.datasets.options import RAW_OPTIONS, node_count, option_name
from tiering.datasets.reader import NODE, RELATION, Reader, Reading, Sign
from tiering.errors import InputError, MissingError, RefusedError, shown
from tiering.formats.column_ids import ColumnIds
from tiering.formats.npy_file import read_start
from tiering.formats.protocols import Dataset, EdgeData, NodeData
from tiering.progress import progress
from tiering.units import parse_threads

NODES_AT_ONCE = 1 << 20
_PROPERTIES_BYTES = 1 << 20
_CODES = {
    "OUTDEGREES": "gamma",
    "REFERENCES": "unary",
    "BLOCK_COUNT": "gamma",
    "BLOCKS": "gamma",
    "INTERVALS": "gamma",
    "RESIDUALS": "zeta",
    "OFFSETS": "gamma",
}
"""What is coded, in the order that the decoder takes it -> the code where compressionflags say nothing."""
_KNOWN_CODES = ("unary", "gamma", "delta", "zeta", "nibble")


@dataclass(frozen=True)
class Properties:
    """What ``BASE.properties`` says."""

    num_nodes: int
    num_arcs: int
    window: int
    min_interval: int
    zeta_k: int
    codes: dict[str, str]

    @classmethod
    def read(cls, path: Path) -> Properties:
        """Raises `InputError` for what is missing, wrong or of another kind of graph."""
        require_file(path, "the properties of a BVGraph")
        said = _pairs(path)
        kind = said.get("graphclass", "nothing").removeprefix("class ").rpartition(".")[2]
        if kind != "BVGraph":
            below = said.get("underlyinggraph")
            hint = f"; import its underlying graph, {below}" if below else "; store it as a BVGraph first"
            raise InputError(f"{path}: expected graphclass BVGraph, found {shown(kind)}{hint}")
        if said.get("endianness", "big") not in ("big", "BE"):
            raise InputError(
                f"{path}: expected endianness big, found {shown(said['endianness'])}; store the graph big-endian first"
            )

        def number(key: str, default: int | None = None, most: int = 2**31 - 1) -> int:
            text = said.get(key, "" if default is None else str(default))
            if not re.fullmatch("[0-9]{1,18}", text) or int(text) > most:
                raise InputError(f"{path}: {key}: expected a whole number of 0 to {most}, found {shown(text)}")
            return int(text)

        codes, zeta_k = _codes(said, number("zetak", 3, 31), path)
        nodes = node_count(number("nodes", most=2**59), f"{path}: nodes")
        window, shortest = number("windowsize", 7), number("minintervallength", 4)
        return cls(nodes, number("arcs", most=2**59), window, shortest, max(zeta_k, 1), codes)


def _pairs(path: Path) -> dict[str, str]:
    """Keys and values of a file as Java writes properties."""
    pairs = {}
    for line in read_start(path, _PROPERTIES_BYTES).decode("latin-1").splitlines():
        if line.strip() and line.lstrip()[0] not in "#!":
            key, _, value = line.partition("=" if "=" in line else ":")
            pairs[key.strip()] = value.strip()
    return pairs


def _codes(said: dict[str, str], zeta_k: int, path: Path) -> tuple[dict[str, str], int]:
    """Codes by what they code, and the parameter of zeta codes."""
    codes, given = dict(_CODES), said.get("compressionflags", "")
    for flag in filter(None, map(str.strip, given.split("|"))):
        coded, _, text = flag.upper().rpartition("_")
        name = re.sub("(?<=ZETA)[1-7]$", "", text).lower()
        if coded not in codes or name not in _KNOWN_CODES:
            raise InputError(
                f"{path}: compressionflags: expected WHAT_CODE with one of {', '.join(codes)} and one of "
                f"{', '.join(_KNOWN_CODES).upper()}, found {shown(flag)}; store the graph with other codes"
            )
        if name == "zeta" and text != "ZETA":
            zeta_k = int(text[-1])
        codes[coded] = name
        if coded == "BLOCKS" and "endianness" in said:  # webgraph-rs says both in one; Java does not write this key
            codes["BLOCK_COUNT"] = name
    return codes, zeta_k


def _bases(folder: Path) -> list[Path]:
    """``BASE`` of every ``BASE.graph`` with ``BASE.properties`` in a folder."""
    here = {entry.name for entry in entries(folder)}
    return sorted(folder / name[:-6] for name in here if name.endswith(".graph") and f"{name[:-6]}.properties" in here)


def _base(path: Path) -> Path:
    if not is_folder(path):
        if path.suffix not in (".graph", ".properties", ".offsets"):
            raise InputError(f"{path}: expected BASE.graph or BASE.properties; give one of the two")
        return path.with_suffix("")
    bases = _bases(path)
    if not bases:
        raise MissingError(f"{path}: expected BASE.graph and BASE.properties, found neither; check the path")
    if len(bases) > 1:
        names = ", ".join(f"{base.name}.graph" for base in bases[:8])
        raise InputError(f"{path}: expected one graph, found {len(bases)}; give one of {names}")
    return bases[0]


def _open_webgraph(path: Path, reading: Reading) -> Dataset:
    base = _base(path)
    reading.notes["node_types"] = [NODE]
    properties_path = base.with_name(base.name + ".properties")
    properties = Properties.read(properties_path)
    reading.used(properties_path)
    edges = _read_lists(base, properties, reading)
    stated = (str(properties_path), properties.num_nodes)
    if is_folder(path):
        label_names = ("node_label.npy", "node_labels.npy")
        nodes = read_nodes(NodeFiles(path, NODE, label_names, stated_count=stated), [edges], reading)
        reading.ignored(entry for entry in entries(path) if not entry.name.startswith("."))
    else:
        for name in sorted(RAW_OPTIONS & set(reading.notes["options"])):  # it would be ignored
            raise InputError(f"{option_name(name)}: has no meaning for one file; give the directory with the features")
        asked = reading.options.num_nodes.get(NODE)
        if asked is not None and asked != properties.num_nodes:
            raise InputError(f"--num-nodes: expected {stated[1]} as in {stated[0]}, found {asked}; leave it out")
        require_room(NODE, stated[1], f"{stated[0]}: says that there are {stated[1]} nodes", [edges], reading)
        nodes = NodeData(properties.num_nodes)
    return reading.dataset(base.name, {NODE: nodes}, [edges])


def _read_lists(base: Path, properties: Properties, reading: Reading) -> EdgeData:
    """All edges by source: the lists decoded to their places in temporary files."""
    path, nodes = base.with_name(base.name + ".graph"), properties.num_nodes
    offsets_path = base.with_name(base.name + ".offsets")
    stored = is_there(offsets_path, "offsets of lists")
    bits = _bits(path, "a stream of lists", reading)
    said = f"{base.name}.properties says {nodes} nodes and {properties.num_arcs} arcs"
    if nodes > 8 * bits.shape[0]:  # an outdegree takes a bit
        raise InputError(
            f"{path}: expected a bit or more for each list, found {bits.shape[0]} bytes, but {said}; was a download "
            "interrupted?"
        )
    if properties.num_arcs == 0:
        raise InputError(f"{path}: expected edges, found none: {said}")
    codes = dict(properties.codes)
    offsets_code = codes.pop("OFFSETS")
    reading.notes["webgraph"] = {
        "window": properties.window,
        "min_interval": properties.min_interval,
        "zeta_k": properties.zeta_k,
        "codes": properties.codes,
        "offsets": "read" if stored else "rebuilt",
    }
    sizes = (nodes, properties.num_arcs, properties.window, properties.min_interval, properties.zeta_k)
    graph, threads = native.BvGraph(bits, *sizes, list(codes.values())), parse_threads(None)
    offsets, indptr = (reading.scratch.array(nodes + 1, np.int64) for _ in range(2))
    offsets[0] = indptr[0] = 0
    remedy = "get both files again, or take .offsets away: it can do without" if stored else "get the file again"
    with _damage(path, remedy):
        if stored:
            with _damage(offsets_path, "get the file again, or take it away: it can do without"):
                _read_offsets(_bits(offsets_path, "offsets of lists", reading), offsets_code, bits.shape[0], offsets)
            _by_nodes(
                nodes, "read degrees", lambda first, end: graph.read_degrees(first, end, offsets, indptr, threads)
            )
        else:
            _by_nodes(nodes, "find lists", lambda first, end: graph.find_lists(first, end, offsets, indptr))
        if int(indptr[-1]) != properties.num_arcs:
            raise InputError(
                f"{path}: expected {properties.num_arcs} arcs, found {indptr[-1]}, but {said}; the files do not belong "
                f"together, or are damaged: {remedy}"
            )
        indices = reading.scratch.array(properties.num_arcs, f"int{8 * id_bytes(nodes)}")
        _by_nodes(nodes, "decode lists", lambda first, end: graph.decode(first, end, offsets, indptr, indices, threads))
    listed = cast("npt.NDArray[Any]", ColumnIds(indptr, indices.dtype.itemsize, f"{base.name}.properties"))
    return EdgeData(RELATION, listed, indices, where=str(path))


def _read_offsets(bits: npt.NDArray[np.uint8], code: str, graph_bytes: int, offsets: npt.NDArray[np.int64]) -> None:
    """The first offset and the distances to the next: where the last list ends comes last."""
    position = 0

    def read(first: int, end: int) -> None:
        nonlocal position
        position = native.read_bv_offsets(bits, code, position, first, end, 8 * graph_bytes, offsets)

    _by_nodes(offsets.shape[0], "read offsets", read)


def _by_nodes(nodes: int, what: str, step: Callable[[int, int], None]) -> None:
    with progress(nodes, what, "node", scale=True) as bar:
        for first in range(0, nodes, NODES_AT_ONCE):
            end = min(nodes, first + NODES_AT_ONCE)
            step(first, end)
            bar.update(end - first)


def _bits(path: Path, what: str, reading: Reading) -> npt.NDArray[np.uint8]:
    """A file as it is, mapped."""
    require_file(path, what)
    reading.used(path)
    return np.memmap(path, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8)


@contextmanager
def _damage(path: Path, remedy: str) -> Iterator[None]:
    """Say which file holds what the decoder refuses."""
    try:
        yield
    except RefusedError as error:
        raise InputError(f"{path}: {error}; the file is damaged, or not what .properties says: {remedy}") from error


def _is_webgraph(path: Path) -> bool:
    base = path.with_suffix("")
    return path.suffix in (".graph", ".properties") and all(
        base.with_name(base.name + suffix).is_file() for suffix in (".graph", ".properties")
    )


READER = Reader(
    _open_webgraph,
    takes=RAW_OPTIONS,
    directory=Sign("BASE.graph with BASE.properties (webgraph)", lambda path: bool(_bases(path))),
    file=Sign("BASE.graph with BASE.properties beside it (webgraph)", _is_webgraph),
)
