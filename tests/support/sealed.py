"""Change artifacts and seal them again: what only an attacker or a bug in a writer could make."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tiering.artifacts.checksum import combine_digests, digest_bytes, file_digests
from tiering.artifacts.document import MANIFEST, write_document
from tiering.artifacts.manifest import CHECKSUMS


def edit_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a manifest, seal it, and record its digest in the artifact around it."""
    document = json.loads((folder / MANIFEST).read_text())
    change(document)
    (folder / MANIFEST).write_bytes(write_document(document))
    outer = folder.parent / MANIFEST
    if outer.is_file():
        digest = digest_bytes((folder / MANIFEST).read_bytes())
        edit_manifest(folder.parent, lambda document: document["parts"].update({folder.name: digest}))


def rewrite(folder: Path, name: str, change: Callable[[np.ndarray[Any, Any]], object]) -> None:
    """Change the values of a raw file, and all checksums with it."""
    document = json.loads((folder / MANIFEST).read_text())
    values = np.fromfile(folder / name, document["files"][name]["dtype"])
    change(values)
    values.tofile(folder / name)
    reseal(folder)


def reseal(folder: Path) -> None:
    """Record the checksums that the files of an artifact have now."""
    document = json.loads((folder / MANIFEST).read_text())
    names = [name for name in sorted(document["files"]) if name != CHECKSUMS]
    digests = {name: file_digests(folder / name) for name in names}
    external = {
        name: file_digests(folder / entry["path"])
        for name, entry in sorted(document["external"].items())
        if entry["digest"].startswith("xxh3-64-b64m:")
    }
    data = b"".join([*digests.values(), *external.values()])
    (folder / CHECKSUMS).write_bytes(data)
    digests[CHECKSUMS] = file_digests(folder / CHECKSUMS)

    def record(document: dict[str, Any]) -> None:
        for name, blocks in digests.items():
            document["files"][name]["checksum"] = combine_digests(blocks)
        for name, blocks in external.items():
            document["external"][name]["digest"] = combine_digests(blocks)

    edit_manifest(folder, record)
