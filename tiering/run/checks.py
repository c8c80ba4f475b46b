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
from tiering.run.step import Step, TaskContext

Damage = dict[tuple[str, str], list[int]]
"""Damaged blocks by the path of an artifact and the name of a file, of all files that tasks have compared."""


def compare_by_tasks(path: Path, options: ClusterOptions) -> Damage:
    """Compare the files of an artifact, and of those inside it, that are there and have checksums of their blocks."""
    files: list[Any] = [
        [str(manifest.path), name, num_blocks(verifier.nbytes)]
        for manifest in _manifests(path)
        for name in (*manifest.files, *(name for name, file in manifest.external.items() if file.whole))
        for verifier in [_whole_file(manifest, name)]
        if verifier is not None
    ]
    total = sum(blocks for _, _, blocks in files)
    found: Damage = {(artifact, name): [] for artifact, name, _ in files}
    with Carrier(options) as carrier:
        job = carrier.job_of(f"check-{open_manifest(path).digest.rpartition(':')[2]}", path)
        job.remove()  # files may have changed since an earlier check was stopped
        tasks = min(max(1, total), carrier.grid.parts(total * BLOCK_BYTES))
        step = Step("check", "tiering.run.checks:compare", tasks, {"files": files, "tasks": tasks})
        for record in job.run(step):
            for number, block in record["facts"]["damaged"]:
                found[files[number][0], files[number][1]].append(block)
        job.remove()
    return found


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


def compare(context: TaskContext) -> dict[str, list[tuple[int, int]]]:
    """Return the damaged blocks of a share: numbers of files and of blocks."""
    files, before, damaged = context.params["files"], 0, list[tuple[int, int]]()
    total = sum(blocks for _, _, blocks in files)
    begin, end = equal_bounds(total, context.params["tasks"])[context.index : context.index + 2]
    for number, (artifact, name, blocks) in enumerate(files):
        own = range(max(begin - before, 0), min(end - before, blocks))
        before += blocks
        if own:
            verifier = context.share(open_manifest, artifact).verifier(name)
            damaged += [(number, block) for block in verifier.damaged(own, context.threads)]
    return {"damaged": damaged}
