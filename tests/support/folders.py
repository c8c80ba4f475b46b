"""What lies in folders, to be compared."""

from __future__ import annotations

import hashlib
from pathlib import Path


def contents(*folders: Path) -> dict[str, str]:
    """Digests of all files below some folders, by their path."""
    return {
        str(file): hashlib.sha256(file.read_bytes()).hexdigest()
        for folder in folders
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def contents_of(folder: Path) -> dict[str, str]:
    """Digests of the files below a folder, by their path in it."""
    return {str(Path(name).relative_to(folder)): digest for name, digest in contents(folder).items()}
