"""Manifests: what a task has left and where, committed once; and the error that tells that it is not there any more."""

from __future__ import annotations

import json
from typing import Any

import xxhash

from tiering.cluster.store import Store
from tiering.errors import MissingError, TieringError

Manifest = dict[str, Any]


def plan_key(job: str, stage: str) -> str:
    return f"{job}/plans/{stage}.json"


def manifest_key(job: str, stage: str, index: int) -> str:
    return f"{job}/{stage}/{index:06}.json"


def dropped_key(job: str, stage: str) -> str:
    """Of a mark that nobody needs any more what tasks of a stage have left."""
    return f"{job}/{stage}/dropped"


def segments_folder(job: str, stage: str) -> str:
    return f"{job}/{stage}/segments"


def canonical(document: Any) -> bytes:
    """JSON that is the same bytes for the same values."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def read_manifest(store: Store, job: str, stage: str, index: int) -> Manifest | None:
    """The manifest of a task, if it is there and whole."""
    key = manifest_key(job, stage, index)
    try:
        document = json.loads(store.read(key).tobytes())
        digest = document.pop("digest")
    except (MissingError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return {**document, "digest": digest} if digest == digest_of(document) else None


def digest_of(document: Any) -> str:
    return "xxh3-64:" + xxhash.xxh3_64_hexdigest(canonical(document))


class LostError(TieringError):
    """What an earlier task has left is gone or damaged: that task is to be run again."""

    def __init__(self, stage: str, index: int, why: str, key: str = "") -> None:
        super().__init__(stage, index, why, key)
        self.stage, self.index, self.why = stage, index, why
        self.key = key
        """Of the segment that cannot be used, if it is one."""

    def __str__(self) -> str:
        return f"task {self.index} of {self.stage} has to be run again: {self.why}"
