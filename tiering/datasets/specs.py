"""Published datasets: specifications (``data_specs/sources/*.toml``), to check files and to plan with."""

from __future__ import annotations

import importlib
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from tiering.artifacts.manifest import Relation
from tiering.artifacts.schema_check import schema_problems
from tiering.artifacts.storage import entries, file_exists, is_folder, require_file
from tiering.datasets.options import SPLIT_RULES, ImportOptions
from tiering.errors import InputError, MissingError
from tiering.formats.dataset import Dataset, EdgeData, FeatureStream, NodeData
from tiering.formats.features import FeatureTable
from tiering.formats.npy_file import is_npy, open_npy
from tiering.text.options import accept_spelling
from tiering.text.units import format_bytes

FLAGS = ("both_directions",)  # names in DatasetSpec.about whose values are 1 or 0


@dataclass(frozen=True)
class SpecFile:
    """A file of a dataset, or an array in an archive."""

    path: str  # path below the dataset's root; of an array in an archive, its name
    holds: str  # features, labels, edges, splits, archive, pickle (a Python object) or other
    of: str | None = None  # the node type, or the folder of the relation
    dtypes: tuple[str, ...] = ()  # possible dtypes; empty if unknown
    shape: tuple[int, ...] | None = None  # None if some of its sizes are unknown
    dim: int | None = None  # values per row of features
    headerless: bool = False
    optional: bool = False
    prefixes: tuple[int, ...] = ()  # numbers of rows that a shorter file may have
    alternatives: tuple[str, ...] = ()  # other names that it may have
    members: tuple[SpecFile, ...] = ()  # arrays of an archive

    @property
    def bytes(self) -> int | None:
        """Bytes of the data, with the first of its dtypes; ``None`` if unknown."""
        if self.members:
            return sum(member.bytes or 0 for member in self.members) or None
        return math.prod(self.shape) * np.dtype(self.dtypes[0]).itemsize if self.shape and self.dtypes else None


@dataclass(frozen=True)
class DatasetSpec:
    """The specification of one size of a published dataset; ``data_specs/sources.md`` describes the fields."""

    name: str
    title: str
    home: str
    license: str
    citation: str
    format: str
    roots: tuple[str, ...]  # folders, below the path that a user gives, where its files may lie
    files: tuple[SpecFile, ...]
    nodes: Mapping[str, int]  # nodes by type, as published
    edges: Mapping[str, int]  # edges in the files by the folder of their relation, where known exactly
    about: Mapping[str, int]  # numbers known roughly; and of the content: labeled, self_loops, both_directions..
    labels: str  # reading of labels, in words
    splits: str  # origin of splits, in words
    classes: Mapping[str, int] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)  # of the import; the user's own come first
    defects: tuple[Mapping[str, Any], ...] = ()  # id, text, cure; names: whether files may have changed names

    def count(self, name: str) -> int | None:
        """Return the number of nodes of a type, or of edges of a relation's folder, at least roughly."""
        return next((counts[name] for counts in (self.nodes, self.edges, self.about) if name in counts), None)

    @property
    def bytes(self) -> int:
        """Bytes of all files whose sizes are known; those in archives as they are when unpacked."""
        return sum(file.bytes or 0 for file in self.files)


def relation_of(folder: str) -> Relation:
    """Return the relation that a folder is named after."""
    source, name, target = folder.replace("___", "__").split("__")
    return source, name, target


def find_spec(name: str) -> DatasetSpec:
    """Return the dataset of that name, or of the TOML or JSON file at that path (the first of its variants)."""
    if name.endswith((".toml", ".json")):
        path = Path(name)
        require_file(path, "the specification of a dataset")
        return _read(path)[0]
    known = known_specs()
    if name not in known:
        near = get_close_matches(name, known, 3)
        hint = f"did you mean {' or '.join(near)}" if near else f"there are: {', '.join(known)}"
        raise MissingError(f"--spec {name}: no such dataset; {hint}; `tiering datasets` lists them")
    return known[name]


@cache
def families() -> dict[str, list[DatasetSpec]]:
    """Return the datasets that the package knows, by family: the sizes of one."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "sources", package.parent / "data_specs" / "sources"):
        if folder.is_dir():
            return {path.stem: _read(path) for path in sorted(folder.glob("*.toml"))}
    raise MissingError("data_specs/sources: not found in the package's directory; reinstall tiering")


@cache
def known_specs() -> dict[str, DatasetSpec]:
    """Return the datasets that the package knows, by name."""
    specs = [spec for family in families().values() for spec in family]
    return {spec.name: spec for spec in sorted(specs, key=lambda spec: spec.name)}


def _read(path: Path) -> list[DatasetSpec]:
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    parse, language = (json.loads, "JSON") if path.suffix == ".json" else (toml.loads, "TOML")
    try:
        document = parse(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        what = " ".join(str(error).split())[:200]
        raise InputError(f"{path}: expected {language} ({what}); correct the file") from error
    accept_spelling(document, "licence", "license")
    for place, text in schema_problems(document, "source"):
        raise InputError(f"{path}: {place}: {text}; see data_specs/sources.md")
    return [_make_spec(document, size, variant) for size, variant in document["variants"].items()]


def _make_spec(document: Mapping[str, Any], size: str, variant: Mapping[str, Any]) -> DatasetSpec:
    about = ("title", "home", "license", "citation", "format", "labels", "splits", "classes", "options")
    return DatasetSpec(
        name=variant["name"],
        roots=tuple(root.replace("{size}", size) for root in document["roots"]),
        files=tuple(file for entry in document["files"] for file in _files(entry, size, variant)),
        defects=tuple(defect for defect in document.get("defects", []) if size in defect.get("variants", [size])),
        **{key: document[key] for key in about if key in document},
        **{key: variant.get(key, {}) for key in ("nodes", "edges", "about")},
    )


def _files(entry: Mapping[str, Any], size: str, variant: Mapping[str, Any]) -> Sequence[SpecFile]:
    """Return the files of one entry: one, or one for each of ``types`` or ``relations``."""
    exact = {**variant.get("nodes", {}), **variant.get("edges", {})}

    def file(fields: Mapping[str, Any], name: str | None) -> SpecFile:
        path = fields.get("path", fields.get("name", "")).replace("{type}", str(name)).replace("{relation}", str(name))
        paths = [path.replace("{file}", one) for one in variant["file"]] if "{file}" in path else [path]
        shape = fields.get("shape", ())
        sizes = (n if isinstance(n, int) else exact.get(str(name) if n.startswith("{") else n) for n in shape)
        known = tuple(n for n in sizes if n is not None)
        dims = [n for n in shape if isinstance(n, int)]
        return SpecFile(
            path=paths[0],
            holds=fields["holds"],
            of=name if name is not None else fields.get("of"),
            dtypes=tuple(fields.get("dtype", ())),
            shape=known if shape and len(known) == len(shape) else None,
            dim=dims[-1] if fields["holds"] == "features" and dims else None,
            headerless=size in fields.get("headerless", ()),
            optional=fields.get("optional", False),
            prefixes=tuple(variant.get("prefixes", {}).get(paths[0], ())),
            alternatives=tuple(paths[1:]),
            members=tuple(file(member, None) for member in fields.get("members", ())),
        )

    return [file(entry, name) for name in entry.get("types", entry.get("relations", [None]))]


_LONGEST_HEADER = 4096


def locate_files(spec: DatasetSpec, path: Path) -> Path:
    """Return where the files of a dataset lie, at or below `path`, for its reader, each as specified.

    `MissingError` names a required file that is missing, `InputError` a file that does not match.
    """
    required = [file for file in spec.files if not file.optional and not file.path.startswith("..")]
    if is_folder(path):
        folders = [folder for root in spec.roots if is_folder(folder := path / root if root else path)]
    else:
        folders = [path.parent] if any(path.name in (file.path, *file.alternatives) for file in spec.files) else []
    counts = {folder: sum(_find_file(folder, file) is not None for file in required) for folder in folders}
    root = max(folders, key=counts.__getitem__, default=None)
    if root is None or not (counts[root] or path.is_file()):
        expected = ", ".join(file.path for file in spec.files if not file.optional)
        raise MissingError(
            f"{path}: no files of {spec.name} found; looked in {', '.join(repr(r) for r in spec.roots)} for "
            f"{expected[:200]}; give the downloaded directory, or another --spec"
        )
    for file in spec.files:
        place = _find_file(root, file)
        if place is not None and (problem := _find_mismatch(file, place)):
            advice = _advise_renaming(spec, file, root) or "get the file again, or give another --spec"
            raise InputError(f"{place}: {problem}; {advice}")
        if place is None and not file.optional:
            raise MissingError(
                f"{root / file.path}: expected {describe_file(file)} of {spec.name}, found nothing; "
                f"{_advise_renaming(spec, file, root) or 'get the file'}, or see `tiering datasets {spec.name}` for all"
            )
    if len(spec.files) == 1:
        return _find_file(root, spec.files[0]) or root
    return path if path.is_file() else root


def _find_file(root: Path, file: SpecFile) -> Path | None:
    paths = (root / name for name in (file.path, *file.alternatives))
    return next((path for path in paths if file_exists(path, file.holds)), None)


def _find_mismatch(file: SpecFile, path: Path) -> str | None:
    """Return how the numpy file at `path` differs from what is specified; ``None`` if it may be that."""
    if file.shape is None or path.suffix != ".npy":
        return None
    size, shapes = path.stat().st_size, [file.shape, *((rows, *file.shape[1:]) for rows in file.prefixes)]
    if is_npy(path):
        header = open_npy(path, describe_file(file))
        rows = header.shape[:1] if math.prod(header.shape[1:]) == 1 and len(file.shape) == 1 else header.shape
        fits = rows in shapes and header.dtype in [np.dtype(name) for name in file.dtypes]
        return None if fits else f"expected {describe_file(file)}, found {header.described}, {size} bytes"
    if not file.headerless:
        return f"expected {describe_file(file)} with a numpy header, found {size} bytes without one"
    sizes = [math.prod(shape) * np.dtype(name).itemsize for shape in shapes for name in file.dtypes]
    return None if size in sizes else f"expected {describe_file(file)}, found {size} bytes"


def describe_file(file: SpecFile) -> str:
    """Return ``features, float32 (100000, 1024), 409600000 bytes``, for messages."""
    known = file.shape is not None and file.dtypes
    parts = (
        file.holds,
        known and f"{' or '.join(file.dtypes)} {file.shape}",
        file.headerless and "no header",
        file.bytes is not None and f"{file.bytes} bytes",
    )
    return ", ".join(part for part in parts if part)


def _advise_renaming(spec: DatasetSpec, file: SpecFile, root: Path) -> str | None:
    """Return advice where names are mixed up: the file lies there under another name, or another one under its name."""
    reported = next((f" ({d['id']}: {d['text']})" for d in spec.defects if d.get("names")), "")
    for other in spec.files:
        if other is not file and _has_size(root / file.path, other):
            return f"it has the size of {other.path}: give the files their names back{reported}"
    folders = {(root / other.path).parent for other in spec.files if not other.path.startswith("..")} | {root}
    for folder in sorted(folder for folder in folders if is_folder(folder)):
        for candidate in entries(folder):
            named = next((other for other in spec.files if _find_file(root, other) == candidate), None)
            if _has_size(candidate, file) and (named is None or not _has_size(candidate, named)):
                return f"{candidate} has its size: give the files their names back{reported}"
    return None


def _has_size(path: Path, file: SpecFile) -> bool:
    return file.bytes is not None and path.is_file() and 0 <= path.stat().st_size - file.bytes <= _LONGEST_HEADER


def list_files(spec: DatasetSpec) -> list[tuple[str, str, str]]:
    """Return path, content and size of each file, for tables."""
    rows = []
    for file in spec.files:
        size = "" if file.bytes is None else format_bytes(file.bytes)
        rows.append((file.path, describe_file(file) + (" (may be missing)" if file.optional else ""), size))
        rows += [(f"  {member.path}", describe_file(member), "") for member in file.members]
    return rows


def make_sized_dataset(source: DatasetSpec, path: Path = Path(), options: Mapping[str, Any] | None = None) -> Dataset:
    """Return a dataset of the numbers published, all entries 0, to plan with before a download.

    Of the `options` of the import those that add relations, features or splits count.
    """
    given = {name: (options or {}).get(name) for name in ("split", "reverse_edges", "mean_features")}
    given["split"] = given["split"] or source.options.get("split")
    asked = ImportOptions.parse({name: value for name, value in given.items() if value is not None})
    zeros = partial(np.broadcast_to, np.int64(0))
    parts = [part for file in source.files for part in (file.members or (file,)) if part.of and not part.optional]
    relations = {part.of: relation_of(part.of) for part in parts if part.holds == "edges" and part.of}
    types = {part.of for part in parts if part.holds in ("features", "labels") and part.of}
    types |= {end for relation in relations.values() for end in relation[::2]}
    nodes = {name: NodeData(_require_count(source, name)) for name in sorted(types)}
    labeled = {name: node.num_nodes for name, node in nodes.items() if len(nodes) == 1}
    for part in parts:
        node = nodes.get(part.of or "")
        if node is not None and part.holds == "features" and part.dim and part.dtypes:
            shape = node.num_nodes, part.dim, part.dtypes[0]
            packed = part not in source.files or part.path.endswith(".gz")
            stream = FeatureStream(*shape, lambda start, graph: iter(()), "unpacked", read=part.bytes or 0)
            node.features = stream if packed else FeatureTable(path / part.path, *shape)
        elif node is not None and part.holds == "labels":
            node.labels, node.num_classes = zeros(node.num_nodes), source.classes.get(str(part.of), 1)
            labeled[str(part.of)] = min((*part.prefixes[:1], node.num_nodes))
    fractions = SPLIT_RULES[asked.split] if isinstance(asked.split, str) else asked.split
    for name, count in labeled.items():
        if fractions:
            names = zip(("train", "val", "test"), fractions, strict=False)
            nodes[name].splits = {split: zeros(round(fraction * count)) for split, fraction in names}
        elif nodes[name].labels is not None:
            nodes[name].splits = {"train": zeros(max(1, count // 100))}
    edges = []
    for folder, relation in sorted(relations.items()):
        src, dst = (zeros(_require_count(source, folder)) for _ in range(2))
        edges.append(EdgeData(relation, src, dst, f"{source.name}: {folder}"))
    for node_type, name in asked.mean_features.by_type.items():
        ends = {end for relation in relations.values() if relation[1] == name for end in relation[::2]} - {node_type}
        for table in [nodes[other].features for other in ends if nodes[node_type].features is None]:
            if table is not None:
                shape = nodes[node_type].num_nodes, table.dim, table.dtype
                nodes[node_type].features = FeatureStream(*shape, lambda start, graph: iter(()), "means")
    for edge in list(edges) if asked.reverse_edges else ():
        start, name, end = edge.relation
        if start == end:
            edge.src = edge.dst = zeros(2 * edge.num_edges)
        else:
            edges.append(EdgeData((end, f"rev_{name}", start), edge.dst, edge.src, edge.where))
    return Dataset(source.name, source.format, nodes, edges, {"spec": source.name, "node_types": sorted(nodes)})


def _require_count(source: DatasetSpec, name: str) -> int:
    count = source.count(name)
    if count is None:
        raise InputError(
            f"--spec {source.name}: the number of {name} is not published, so nothing can be estimated without "
            "the files; give the path of the dataset"
        )
    return count
