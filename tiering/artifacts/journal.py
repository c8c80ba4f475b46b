"""The journal of a directory being written: JSON lines with checksums, from which a killed run resumes."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import xxhash

from tiering.artifacts.storage import fsync_directory, storage_errors

JOURNAL = "journal.jsonl"
JOURNAL_BEGIN = b'{"identity":'  # first bytes of every journal
OUTSIDE = "outside "  # prefix of keys about directories outside the output (`atomic`)


class Journal:
    """An open journal of the run with an `identity` (JSON types); use `begin` or `reopen`."""

    def __init__(self, path: Path, identity: Mapping[str, Any], facts: dict[str, dict[str, Any]]) -> None:
        self.path, self.identity = path, identity
        self._facts, self._lock = facts, threading.Lock()
        self.unproven = set(facts)  # keys recorded by an earlier run, of bytes not verified since
        self._file = path.open("ab", buffering=0)

    @classmethod
    def begin(cls, folder: Path, identity: Mapping[str, Any]) -> Journal:
        """Begin a journal in an empty directory."""
        journal = cls(folder / JOURNAL, identity, {})
        journal._append({"identity": dict(identity)})
        fsync_directory(folder)
        fsync_directory(folder.parent)
        return journal

    @classmethod
    def reopen(cls, path: Path) -> Journal | None:
        """Open a journal to continue it; ``None`` if there is none that can be read."""
        try:
            data = path.read_bytes()
        except OSError:
            return None
        identity: Any = None
        facts, length = dict[str, dict[str, Any]](), 0
        for line in data.splitlines(keepends=True):  # up to the first torn or damaged one
            document = _record(line)
            if not ({"key", "facts"} if length else {"identity"}) <= set(document):
                break
            if not length:
                identity = document["identity"]
            elif document["facts"] is None:
                facts.pop(document["key"], None)
            else:
                facts[document["key"]] = document["facts"]
            length += len(line)
        if not length:
            return None
        os.truncate(path, length)
        return cls(path, identity, facts)

    @staticmethod
    def read_identity(path: Path) -> dict[str, Any]:
        """Return the identity of the run that began a journal; empty if there is none that can be read."""
        with suppress(OSError), path.open("rb") as file:
            return dict(_record(file.readline()).get("identity") or {})
        return {}

    @classmethod
    def is_own(cls, path: Path) -> bool:
        """Return whether a run wrote the journal: a record has its checksum, or the first, torn, is the only file."""
        try:
            data, alone = path.read_bytes(), [*path.parent.iterdir()] == [path]
        except OSError:
            return False
        torn = data.startswith(JOURNAL_BEGIN) or JOURNAL_BEGIN.startswith(data) or not data.strip(b"\0")
        return any(map(_record, data.splitlines(keepends=True))) or (alone and torn and b"\n" not in data)

    @property
    def done(self) -> int:
        """The number of finished pieces of work, not counting those about directories outside."""
        return sum(not key.startswith(OUTSIDE) for key in self._facts)

    def get(self, key: str) -> dict[str, Any] | None:
        """Return the facts recorded under `key`, or ``None``."""
        return self._facts.get(key)

    def keys(self, prefix: str = "") -> list[str]:
        """Return the recorded keys that begin with `prefix`, in the order they were first recorded."""
        return [key for key in self._facts if key.startswith(prefix)]

    def record(self, key: str, **facts: Any) -> None:
        """Record that `key` is done, durably, once its result is durable."""
        with self._lock:
            self._facts[key] = facts
            self.unproven.discard(key)
            self._append({"key": key, "facts": facts})

    def forget(self, *keys: str) -> None:
        """Remove what is recorded under `keys`; call this before their results are computed again."""
        with self._lock:
            for key in keys:
                if self._facts.pop(key, None) is not None:
                    self._append({"key": key, "facts": None})

    def close(self) -> None:
        """Close the file; nothing can be recorded any more."""
        self._file.close()

    def _append(self, document: dict[str, Any]) -> None:
        text = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
        line = text + b"\t" + xxhash.xxh3_64(text).hexdigest().encode() + b"\n"
        with storage_errors(self.path, len(line)):
            written = self._file.write(line)
            if written != len(line):  # a full disk may take a part
                os.truncate(self.path, self.path.stat().st_size - (written or 0))
                raise OSError(28, "No space left on device")
            os.fdatasync(self._file.fileno())


def _record(line: bytes) -> dict[str, Any]:
    """Return the record in a line of a journal; an empty one if it is torn or damaged, or no run wrote it."""
    text, _, digest = line.partition(b"\t")
    document = json.loads(text) if digest == xxhash.xxh3_64(text).hexdigest().encode() + b"\n" else None
    return document if isinstance(document, dict) else {}
