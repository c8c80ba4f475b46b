"""``manifest.json`` as a JSON document: read within bounds, sealed with its own checksum, checked by its schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from tiering.artifacts.checksum import digest_bytes
from tiering.artifacts.manifest import MOVED, External, FileEntry, Manifest, Problem, body_problem, raise_problems
from tiering.artifacts.schema_check import schema_problems, shorten
from tiering.artifacts.storage import OpenDirectory, storage_errors
from tiering.errors import FormatError, MissingError
from tiering.text.arguments import nameable

MANIFEST = "manifest.json"
MAJOR = 1
# minor versions that this package writes; each is the first whose manifests are sealed
MINORS = {"graph": 1, "features": 1, "scores": 2, "order": 1, "names": 0, "layout": 2, "embeddings": 1}
KINDS = tuple(MINORS)
# Names allowed in ``requires``; any other is refused.
SUPPORTED_FEATURES = frozenset({"first", "edge_tables", "table_order", "units", "codec", "time"})
MAX_MANIFEST_BYTES = 4 * 1024 * 1024


def write_document(document: Mapping[str, Any]) -> bytes:
    """Return the bytes of a document, sealed: sorted keys, one space of indent, ``checksum`` among them."""
    unsealed = _dump({key: value for key, value in document.items() if key != "checksum"})
    return _dump({**document, "checksum": digest_bytes(unsealed)})


def _dump(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, sort_keys=True, indent=1, allow_nan=False) + "\n").encode()


def open_manifest(path: str | Path, kind: str | None = None) -> Manifest:
    """Open the manifest of the artifact at `path`; its files are opened when they are read."""
    return read_manifest(OpenDirectory(Path(path)), kind)


def read_manifest(directory: OpenDirectory, kind: str | None = None) -> Manifest:
    """Return the manifest of an artifact of a `kind`; `MissingError`: there is none, `FormatError`: it is damaged."""
    file = directory.path / MANIFEST
    with storage_errors(file):
        size = directory.open(MANIFEST)
        data = b"" if size is None or size > MAX_MANIFEST_BYTES else directory.read(MANIFEST)
    if size is None:
        raise MissingError(
            f"{directory.path}: expected an artifact directory with a {MANIFEST}, found none; "
            "only finished artifacts can be opened: run the command that writes it"
        )
    if size > MAX_MANIFEST_BYTES:
        raise FormatError(f"{file}: expected at most {MAX_MANIFEST_BYTES} bytes, found {size}; make the artifact again")
    try:
        document = json.loads(data.decode(), object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{file}: not valid JSON ({shorten(str(error))}); make the artifact again") from error
    raise_problems(directory.path, document_problems(document, kind, data))
    major, minor = map(int, document["version"].split("."))
    files = {n: FileEntry(e["dtype"], tuple(e["shape"]), e["checksum"]) for n, e in document["files"].items()}
    outside, moved = document["external"], _read_moved(directory, document["external"])
    external = {
        name: External(directory.path / moved.get(name, entry["path"]), entry["bytes"], entry["digest"])
        for name, entry in outside.items()
    }
    return Manifest(
        directory.path, document["format"].removeprefix("tiering."), (major, minor), files, dict(document["parts"]),
        external, document["provenance"], document["body"], digest_bytes(data), directory, tuple(document["requires"]),
    )  # fmt: skip


def _read_moved(directory: OpenDirectory, external: Mapping[str, Any]) -> dict[str, str]:
    """Return the paths of external files, by name, that the artifact was told of after it was made."""
    if not directory.open(MOVED):
        return {}
    with suppress(ValueError):
        moved = json.loads(directory.read(MOVED))
        unsafe = not isinstance(moved, dict) or any(map(_unsafe_external, moved.values()))
        if not unsafe and moved.keys() <= external.keys():
            return cast("dict[str, str]", moved)
    advice = "remove it, or write it with `tiering copy --relink`"
    raise FormatError(f"{directory.path / MOVED}: expected the paths of external files by name; {advice}")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            raise ValueError(f"key {key!r} occurs twice in an object")
        members[key] = value
    return members


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def document_problems(document: Any, kind: str | None = None, data: bytes | None = None) -> list[Problem]:
    """Return the problems of a parsed manifest that show without its files; `data`: the bytes that were sealed."""
    if not isinstance(document, dict) or not isinstance(document.get("format"), str):
        return [Problem(MANIFEST, "expected a JSON object with a string `format`", "schema")]
    actual = document["format"].removeprefix("tiering.")
    if not document["format"].startswith("tiering.") or actual not in KINDS:
        known = ", ".join(f"tiering.{known}" for known in KINDS)
        what = shorten(repr(document["format"]))
        return [Problem(MANIFEST, f"expected one of the formats {known}, found {what}", "version")]
    if problem := _version_problem(document, actual, data):
        return [problem]
    if kind is not None and actual != kind:
        verb = {"graph": "import", "order": "reorder"}.get(kind, kind).removesuffix("s")
        text = f"expected a {kind} artifact, found a {actual} artifact; give the output of `tiering {verb}`"
        return [Problem(MANIFEST, text, "kind")]
    problems = [body_problem(place, text, "schema") for place, text in schema_problems(document, actual)]
    return problems or list(_entry_problems(document))


def _version_problem(document: dict[str, Any], kind: str, data: bytes | None) -> Problem | None:
    version = document.get("version")
    match = re.fullmatch(r"(0|[1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3})", version if isinstance(version, str) else "")
    if not match:
        return Problem(MANIFEST, f"expected a version such as {MAJOR}.0, found {shorten(repr(version))}", "version")
    if int(match.group(1)) != MAJOR:
        message = f"format version {match.group(0)} cannot be read: this package reads {MAJOR}.x"
        return Problem(MANIFEST, message, "version")
    if problem := _seal_problem(document, int(match.group(2)) >= MINORS[kind], data):
        return problem
    requires = document.get("requires")
    texts = requires if isinstance(requires, list) and all(isinstance(name, str) for name in requires) else []
    if unknown := ", ".join(sorted(set(texts) - SUPPORTED_FEATURES)):
        return Problem(MANIFEST, f"requires features that this version does not know: {shorten(unknown)}", "version")
    return None


def _seal_problem(document: dict[str, Any], sealed: bool, data: bytes | None) -> Problem | None:
    """Return the problem if the bytes are not those that were written; versions before the seal have none."""
    seal = document.get("checksum")
    if seal is None and not sealed:
        return None
    if not isinstance(seal, str):
        return Problem(MANIFEST, "expected a `checksum` of the manifest, found none", "checksum")
    if data is None:
        return None
    line = f'\n "checksum": {json.dumps(seal)},'.encode()
    digest = digest_bytes(data.replace(line, b"", 1))
    if data.count(line) != 1 or digest != seal:
        message = f"changed after it was written: expected {shorten(seal)}, found {digest}"
        return Problem(MANIFEST, message, "checksum")
    return None


def _entry_problems(document: dict[str, Any]) -> Iterator[Problem]:
    for section in ("files", "parts"):
        for name in filter(_unsafe_path, document[section]):
            yield body_problem(f"{section}.{name}", "the path leaves the artifact's directory")
    for name, entry in document["files"].items():
        expected = FileEntry(entry["dtype"], tuple(entry["shape"]), entry["checksum"]).bytes
        if expected != entry["bytes"]:
            message = f"shape x dtype is {expected} bytes, but `bytes` is {entry['bytes']}"
            yield body_problem(f"files.{name}", message, "size")
    for name, entry in document["external"].items():
        if _unsafe_external(entry["path"]):
            yield body_problem(f"external.{name}", "a relative path may not leave the artifact's directory")


def _unsafe_external(path: Any) -> bool:
    return not isinstance(path, str) or not nameable(path) or (not Path(path).is_absolute() and _unsafe_path(path))


def _unsafe_path(name: str) -> bool:
    parts = Path(name).parts
    return not parts or Path(name).is_absolute() or ".." in parts or not nameable(name)
