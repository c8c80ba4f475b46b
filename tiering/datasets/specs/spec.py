"""Specifications of published datasets: TOML files, one for each family.

``data_specs/sources/*.toml`` are those that come with the package; ``--spec`` takes the path of another as well.
"""

from __future__ import annotations

import importlib
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tiering.artifacts.document import schema_problems
from tiering.artifacts.manifest import Relation
from tiering.artifacts.regular import require_file
from tiering.errors import InputError, MissingError

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
    member: bool = False  # whether the entry is an array in an archive
    members: tuple[SpecFile, ...] = ()  # arrays of an archive

    @property
    def packed(self) -> bool:
        """Whether the entry is an array in an archive or packed text, neither of which can be mapped."""
        return self.member or self.path.endswith(".gz")

    @property
    def bytes(self) -> int | None:
        """Bytes of the data, with the first of its dtypes; ``None`` if unknown."""
        if self.members:
            sizes = [member.bytes for member in self.members if member.bytes is not None]
            return sum(sizes) if sizes else None
        if self.shape is None or not self.dtypes:
            return None
        return math.prod(self.shape) * np.dtype(self.dtypes[0]).itemsize


@dataclass(frozen=True)
class Defect:
    """A known defect of a dataset."""

    id: str  # place of the report: a repository and a number, or a program
    text: str
    cure: str
    names: bool = False  # whether files may have changed names


@dataclass(frozen=True)
class DatasetSpec:
    """The specification of one size of a published dataset; fields are those of ``data_specs/sources.md``."""

    name: str
    title: str
    home: str
    licence: str
    citation: str
    format: str
    roots: tuple[str, ...]  # folders, below the path that a user gives, where its files may lie
    files: tuple[SpecFile, ...]
    nodes: Mapping[str, int]  # nodes by type, as published
    edges: Mapping[str, int]  # edges in the files by the folder of their relation, where known exactly
    about: Mapping[str, int]
    """Numbers that are known roughly, or that publications disagree on; and of the content: ``labelled`` nodes, nodes
    in ``train``, ``val``, ``test``, ``self_loops``, and ``both_directions``, 1 if edges within a type come in both."""
    labels: str  # reading of labels, in words
    splits: str  # origin of splits, in words
    classes: Mapping[str, int] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the import that suit it; the user's own come first."""
    defects: tuple[Defect, ...] = ()

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
    """Return the dataset of that name, or of the TOML or JSON file at that path (the first of its variants).

    Raises
    ------
    MissingError, InputError
        If there is none; if the file is no specification.
    """
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
    package = Path(__file__).resolve().parents[2]
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
    document = _parse(path)
    return [_make_spec(document, size, variant) for size, variant in document["variants"].items()]


def _parse(path: Path) -> dict[str, Any]:
    """Return a specification, checked."""
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    parse, language = (json.loads, "JSON") if path.suffix == ".json" else (toml.loads, "TOML")
    try:
        document: dict[str, Any] = parse(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        what = " ".join(str(error).split())[:200]
        raise InputError(f"{path}: expected {language} ({what}); correct the file") from error
    problems = schema_problems(document, "source")
    if problems:
        raise InputError(f"{path}: {problems[0]}; see data_specs/sources.md")
    return document


def _make_spec(document: Mapping[str, Any], size: str, variant: Mapping[str, Any]) -> DatasetSpec:
    about = {key: document[key] for key in ("title", "home", "licence", "citation", "format", "labels", "splits")}
    counts = {key: variant.get(key, {}) for key in ("nodes", "edges", "about")}
    files = [file for entry in document["files"] for file in _files(entry, size, variant, counts)]
    defects = [entry for entry in document.get("defects", []) if size in entry.get("variants", [size])]
    return DatasetSpec(
        name=variant["name"],
        roots=tuple(root.replace("{size}", size) for root in document["roots"]),
        files=tuple(files),
        classes=document.get("classes", {}),
        options=document.get("options", {}),
        defects=tuple(Defect(d["id"], d["text"], d["cure"], d.get("names", False)) for d in defects),
        **about,
        **counts,
    )


def _files(
    entry: Mapping[str, Any], size: str, variant: Mapping[str, Any], counts: Mapping[str, Mapping[str, int]]
) -> Sequence[SpecFile]:
    """Return the files of one entry: one, or one for each of ``types`` or ``relations``."""
    exact = {**counts["nodes"], **counts["edges"]}

    def numbers(shape: Sequence[int | str], name: str | None) -> tuple[int, ...] | None:
        """Return the shape, with counts in the place of names."""
        known = [exact.get(str(name) if n.startswith("{") else n) if isinstance(n, str) else n for n in shape]
        return None if None in known else tuple(n for n in known if n is not None)

    def file(fields: Mapping[str, Any], name: str | None) -> SpecFile:
        paths = [
            fields.get("path", fields.get("name", "")).replace("{type}", str(name)).replace("{relation}", str(name))
        ]
        if "{file}" in paths[0]:
            paths = [paths[0].replace("{file}", one) for one in variant["file"]]
        shape = fields.get("shape")
        dims = [n for n in shape or () if isinstance(n, int)]
        return SpecFile(
            path=paths[0],
            holds=fields["holds"],
            of=name if name is not None else fields.get("of"),
            dtypes=tuple(fields.get("dtype", ())),
            shape=None if shape is None else numbers(shape, name),
            dim=dims[-1] if fields["holds"] == "features" and dims else None,
            headerless=size in fields.get("headerless", ()),
            optional=fields.get("optional", False),
            prefixes=tuple(variant.get("prefixes", {}).get(paths[0], ())),
            alternatives=tuple(paths[1:]),
            member="name" in fields,
            members=tuple(file(member, None) for member in fields.get("members", ())),
        )

    return [file(entry, name) for name in entry.get("types", entry.get("relations", [None]))]
