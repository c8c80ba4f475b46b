"""Compare the files of an artifact with their checksums by tasks, each of a share of all blocks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from tiering.artifacts.checksum import BLOCK_BYTES, num_blocks
from tiering.artifacts.document import open_manifest
from tiering.artifacts.manifest import Manifest
from tiering.errors import FormatError, MissingError, StorageError
from tiering.run.grid import equal_bounds
from tiering.run.job import Carrier
from tiering.run.options import ClusterOptions
from tiering.run.step import Step, TaskContext, plan_digest

Damage = dict[tuple[str, str], list[int]]
"""Damaged blocks by the path of an artifact and the name of a file, of all files that tasks have compared."""


def compare_by_tasks(path: Path, options: ClusterOptions) -> Damage:
    """Compare the files of an artifact and of nested ones which can be read and whose blocks have digests."""
    files: list[Any] = [
        [str(manifest.path), name, num_blocks(verifier.nbytes)]
        for manifest in _manifests(path)
        for name in (*manifest.files, *(name for name, file in manifest.external.items() if file.whole))
        for verifier in [_whole_file(manifest, name)]
        if verifier is not None
    ]
    total = sum(blocks for _, _, blocks in files)
    if not total:
        return {}
    with Carrier(options) as carrier:
        tasks = min(total, carrier.grid.parts(total * BLOCK_BYTES))
        step = Step("check", "tiering.run.checks:compare", tasks, {"files": files, "tasks": tasks})
        job = carrier.job_of(f"check-{plan_digest(step).rpartition(':')[2]}", path)
        job.remove()  # files may have changed since an earlier check was stopped
        try:
            records = job.run(step)
        finally:
            job.remove()
    unread = {number for record in records for number in record["facts"]["unread"]}
    found = {number: list[int]() for number in range(len(files)) if number not in unread}
    for number, block in (place for record in records for place in record["facts"]["damaged"]):
        found.get(number, []).append(block)
    return {(files[number][0], files[number][1]): blocks for number, blocks in found.items()}


def _manifests(path: Path) -> Iterator[Manifest]:
    """Yield the manifests of an artifact and of those inside it, as far as they can be read."""
    with suppress(FormatError, MissingError, StorageError):
        manifest = open_manifest(path.absolute())
        yield manifest
        for name in manifest.parts:
            yield from _manifests(path / name)


def _whole_file(manifest: Manifest, name: str) -> Any:
    """Return the verifier of a file; none where the file is not as long as recorded, or its blocks have no digests."""
    with suppress(FormatError, OSError):
        verifier = manifest.verifier(name)
        if verifier.by_block and Path(verifier.place).stat().st_size == verifier.nbytes:
            return verifier
    return None


def compare(context: TaskContext) -> dict[str, list[Any]]:
    """Return the damaged blocks of a share, numbers of files and of blocks, and the files that cannot be read."""
    files, before, damaged, unread = context.params["files"], 0, list[tuple[int, int]](), list[int]()
    total = sum(blocks for _, _, blocks in files)
    begin, end = equal_bounds(total, context.params["tasks"])[context.index : context.index + 2]
    for number, (artifact, name, blocks) in enumerate(files):
        own = range(max(begin - before, 0), min(end - before, blocks))
        before += blocks
        if own:
            try:
                verifier = context.share(open_manifest, artifact).verifier(name)
                damaged += [(number, block) for block in verifier.damaged(own, context.threads)]
            except (FormatError, StorageError):  # which the driver reports
                unread.append(number)
    return {"damaged": damaged, "unread": unread}
