"""The header every artifact shares: ``manifest.json``. See ``data_specs/README.md``.

The JSON schemas in ``data_specs/schemas`` say what each kind's manifest looks like; `document_problems` applies them.
What a schema cannot say (sizes that must agree, files that must exist) is in each kind's own module.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tiering.errors import FormatError, MissingError
from tiering.formats.problems import Problem
from tiering.io.checksum import checksum_file, digest_bytes, sampled_digest
from tiering.io.storage import open_raw, storage_errors

MANIFEST = "manifest.json"
KINDS = ("graph", "features", "scores", "order", "layout")
MAJOR = 1
MINORS = {"scores": 1}
"""Minor version of the kinds that have gained something since 1.0."""
MINOR_FIELDS = {"layout": {"split": 1}}
"""Optional fields of a body, and the minor version that they came with: a manifest without them has the one before."""
SUPPORTED_FEATURES: frozenset[str] = frozenset()
"""Names allowed in a manifest's ``requires``; any other is refused."""
MAX_MANIFEST_BYTES = 16 * 1024 * 1024
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_+.-]{0,99}$")

Relation = tuple[str, str, str]
"""(source type, name, destination type)."""


def written_version(kind: str, body: Mapping[str, Any]) -> tuple[int, int]:
    """Format version, (major, minor), that this package writes for a body."""
    fields = MINOR_FIELDS.get(kind, {})
    return MAJOR, max([MINORS.get(kind, 0), *(minor for name, minor in fields.items() if name in body)])


def valid_name(name: str) -> bool:
    """Whether `name` may be a node type or relation name: 1 to 100 of letters, digits, ``_+.-``, no ``__``."""
    return bool(_NAME.match(name)) and "__" not in name


def relation_key(relation: Relation) -> str:
    """``("paper", "cites", "paper")`` as ``"paper:cites:paper"``."""
    return ":".join(relation)


def storage_dtype(dtype: str) -> np.dtype[Any]:
    """NumPy dtype whose bytes hold `dtype`; ``bfloat16`` is kept as ``uint16``. Little-endian always."""
    stored: np.dtype[Any] = np.dtype("uint16" if dtype == "bfloat16" else dtype).newbyteorder("<")
    return stored


@dataclass(frozen=True)
class FileEntry:
    """A raw file inside the artifact: little-endian, C order, no header."""

    dtype: str
    """NumPy name of one element, or ``bfloat16``."""
    shape: tuple[int, ...]
    """Elements per axis."""
    checksum: str
    """`tiering.io.checksum` of the file."""

    @property
    def bytes(self) -> int:
        """Size of the file."""
        size = storage_dtype(self.dtype).itemsize
        for extent in self.shape:
            size *= extent
        return size

    def to_json(self) -> dict[str, Any]:
        """Form in the manifest."""
        return {
            "dtype": self.dtype,
            "shape": list(self.shape),
            "bytes": self.bytes,
            "checksum": self.checksum,
        }


@dataclass(frozen=True)
class External:
    """A file outside the artifact that it refers to (a feature table that is not copied, an SSD image)."""

    path: Path
    """Absolute path; in the manifest it may be relative, if the file lies inside the artifact's directory."""
    bytes: int
    """Expected size."""
    digest: str
    """Sampled digest or full checksum; the prefix says which."""

    def to_json(self) -> dict[str, Any]:
        """Form in the manifest."""
        return {"path": str(self.path), "bytes": self.bytes, "digest": self.digest}

    def problems(self, name: str, *, full: bool) -> list[Problem]:
        """Compare the file with what was recorded: existence and size always, content if `full`."""
        where = f"external {name}: {self.path}"
        if not self.path.is_file():
            return [Problem(where, "the file does not exist (moved? then make the artifact again)", "external")]
        size = self.path.stat().st_size
        if size != self.bytes:
            return [Problem(where, f"expected {self.bytes} bytes, found {size}", "external")]
        if not full:
            return []
        sampled = self.digest.startswith("xxh3-64-sampled:")
        found = sampled_digest(self.path) if sampled else checksum_file(self.path)
        if found != self.digest:
            return [Problem(where, f"content changed: expected {self.digest}, found {found}", "checksum")]
        return []


@dataclass
class Manifest:
    """Parsed ``manifest.json`` of an artifact that passed its schema."""

    path: Path
    """Directory of the artifact."""
    kind: str
    """One of `KINDS`."""
    version: tuple[int, int]
    """Format version, (major, minor)."""
    files: dict[str, FileEntry]
    """Files inside the artifact by relative path."""
    parts: dict[str, str]
    """Nested artifacts: name (also the directory) to digest of their manifest."""
    external: dict[str, External]
    """Files outside the artifact by name."""
    provenance: dict[str, Any]
    """Stage, options, seed, package version, digests of the inputs."""
    body: dict[str, Any]
    """What is particular to the kind."""
    digest: str = ""
    """Digest of the manifest's bytes: identifies the artifact's content."""
    arrays: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict, repr=False)

    def array(self, name: str) -> np.ndarray[Any, Any]:
        """Map the file `name` read-only; repeated calls return the same mapping."""
        if name not in self.arrays:
            entry = self.files[name]
            self.arrays[name] = open_raw(self.path / name, storage_dtype(entry.dtype), entry.shape)
        return self.arrays[name]

    def to_json(self) -> dict[str, Any]:
        """The JSON document."""
        return {
            "format": f"tiering.{self.kind}",
            "version": f"{self.version[0]}.{self.version[1]}",
            "requires": [],
            "provenance": self.provenance,
            "files": {name: entry.to_json() for name, entry in sorted(self.files.items())},
            "parts": dict(sorted(self.parts.items())),
            "external": {name: entry.to_json() for name, entry in sorted(self.external.items())},
            "body": self.body,
        }

    def to_bytes(self) -> bytes:
        """Deterministic bytes of the document: sorted keys, one space of indent."""
        return (json.dumps(self.to_json(), sort_keys=True, indent=1, allow_nan=False) + "\n").encode()


@lru_cache
def schema(kind: str) -> dict[str, Any]:
    """JSON schema of a kind's manifest, from the package or, in a source tree, from ``data_specs``."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "schemas", package.parent / "data_specs" / "schemas"):
        path = folder / f"{kind}.schema.json"
        if path.is_file():
            document: dict[str, Any] = json.loads(path.read_text())
            return document
    raise MissingError(f"{kind}.schema.json: not found beside the package; reinstall tiering")


@lru_cache
def _validator(kind: str) -> Any:
    from jsonschema import Draft202012Validator
    from referencing import Registry, Resource

    common = Resource.from_contents(schema("common"))
    registry: Any = Registry().with_resource("common.schema.json", common)
    return Draft202012Validator(schema(kind), registry=registry)


def document_problems(document: Any, kind: str | None = None) -> list[Problem]:
    """All problems of a parsed manifest that can be seen without its files.

    Parameters
    ----------
    document
        Parsed JSON.
    kind
        Expected kind, or ``None`` for whatever the document says it is.
    """
    if not isinstance(document, dict) or not isinstance(document.get("format"), str):
        return [Problem(MANIFEST, "expected a JSON object with a text `format`", "schema")]
    found = document["format"].removeprefix("tiering.")
    if not document["format"].startswith("tiering.") or found not in KINDS:
        known = ", ".join(f"tiering.{known}" for known in KINDS)
        return [Problem(MANIFEST, f"expected a format out of {known}; found {document['format']!r}", "version")]
    if kind is not None and found != kind:
        return [Problem(MANIFEST, f"expected a {kind} artifact, found a {found} artifact", "version")]
    if problem := _version_problem(document):
        return [problem]
    problems = [
        Problem(
            f"{MANIFEST}: {'.'.join(str(part) for part in error.absolute_path) or 'document'}",
            error.message,
            "schema",
        )
        for error in _validator(found).iter_errors(document)
    ]
    return problems or _entry_problems(document)


def _version_problem(document: dict[str, Any]) -> Problem | None:
    match = re.fullmatch(r"(\d+)\.(\d+)", str(document.get("version")))
    if not match:
        return Problem(MANIFEST, f"expected a version such as {MAJOR}.0, found {document.get('version')!r}", "version")
    if int(match.group(1)) != MAJOR:
        return Problem(
            MANIFEST,
            f"format version {match.group(0)} cannot be read: this package reads {MAJOR}.x",
            "version",
        )
    unknown = sorted(set(document.get("requires") or []) - SUPPORTED_FEATURES)
    if unknown:
        return Problem(MANIFEST, f"requires features this package does not know: {', '.join(unknown)}", "version")
    return None


def _entry_problems(document: dict[str, Any]) -> list[Problem]:
    problems = []
    for name, entry in document["files"].items():
        where = f"{MANIFEST}: files.{name}"
        if unsafe_path(name):
            problems.append(Problem(where, "the path leaves the artifact's directory", "value"))
        expected = FileEntry(entry["dtype"], tuple(entry["shape"]), entry["checksum"]).bytes
        if expected != entry["bytes"]:
            message = f"shape x dtype is {expected} bytes, `bytes` says {entry['bytes']}"
            problems.append(Problem(where, message, "size"))
    for name, entry in document["external"].items():
        if not Path(entry["path"]).is_absolute() and unsafe_path(entry["path"]):
            where = f"{MANIFEST}: external.{name}"
            problems.append(Problem(where, "a relative path may not leave the artifact's directory", "value"))
    for name in document["parts"]:
        if unsafe_path(name):
            problems.append(Problem(f"{MANIFEST}: parts.{name}", "the path leaves the artifact's directory", "value"))
    return problems


def unsafe_path(name: str) -> bool:
    """Whether a relative path could point outside its directory."""
    parts = Path(name).parts
    return not parts or Path(name).is_absolute() or ".." in parts or "\x00" in name


def read_document(path: Path) -> tuple[Any, bytes]:
    """Read and parse an artifact's ``manifest.json``.

    Raises
    ------
    MissingError
        If there is no such directory or it holds no manifest.
    FormatError
        If the manifest is too large or not JSON.
    """
    file = path / MANIFEST
    if not path.exists():
        raise MissingError(f"{path}: no such file or directory")
    if not file.is_file():
        raise MissingError(
            f"{path}: expected an artifact directory with a {MANIFEST}, found none; "
            "an unfinished or foreign directory cannot be opened: run the stage that makes it"
        )
    with storage_errors(file):
        size = file.stat().st_size
        if size > MAX_MANIFEST_BYTES:
            raise FormatError(f"{file}: expected at most {MAX_MANIFEST_BYTES} bytes, found {size}")
        data = file.read_bytes()
    try:
        return json.loads(data), data
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{file}: not valid JSON ({error}); make the artifact again") from error


def parse_document(path: Path, document: dict[str, Any], data: bytes) -> Manifest:
    """Build the `Manifest` of a document without problems."""
    major, minor = document["version"].split(".")
    return Manifest(
        path=path,
        kind=document["format"].removeprefix("tiering."),
        version=(int(major), int(minor)),
        files={
            name: FileEntry(entry["dtype"], tuple(entry["shape"]), entry["checksum"])
            for name, entry in document["files"].items()
        },
        parts=dict(document["parts"]),
        external={
            name: External(path / entry["path"], entry["bytes"], entry["digest"])
            for name, entry in document["external"].items()
        },
        provenance=document["provenance"],
        body=document["body"],
        digest=digest_bytes(data),
    )
