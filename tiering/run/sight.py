"""Whether a worker's machine sees the inputs and the output directories that the driver of a job sees."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import xxhash

from tiering.artifacts.document import MANIFEST
from tiering.run.pieces import canonical
from tiering.run.step import ATTEMPTS

_MARK = "a marker of this run"
_PATH = re.compile(rb'(?:"(folder)":)?("/(?:[^"\\]|\\.)*")')


def mark_and_look(params: Mapping[str, Any], mark: str) -> dict[str, str]:
    """Return a text on each path of a step's parameters; an output directory, a ``folder``, gets a file `mark`."""
    seen = {}
    for key, text in _PATH.findall(canonical(params)):
        path = Path(json.loads(text))
        if key:
            path = path / ATTEMPTS / mark
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        seen[str(path)] = _MARK if key else _look(path)
    return {path: found for path, found in seen.items() if found != "nothing"}  # texts that only begin like a path


def difference(seen: Mapping[str, str]) -> str | None:
    """Return how this machine's view differs from what the driver has seen; ``None`` if it does not."""
    for path, expected in seen.items():
        if expected == _MARK and not Path(path).exists():
            return f"expected the output directory {Path(path).parent.parent} of this run, found none or another run's"
        if expected != _MARK and (found := _look(Path(path))) != expected:
            return f"{path}: expected {expected}, as the driver sees it, found {found}"
    return None


def _look(path: Path) -> str:
    with suppress(OSError):
        return f"an artifact with manifest {xxhash.xxh3_64_hexdigest((path / MANIFEST).read_bytes())}"
    with suppress(OSError):
        return "a directory" if path.is_dir() else f"a file of {path.stat().st_size} bytes"
    return "nothing"
