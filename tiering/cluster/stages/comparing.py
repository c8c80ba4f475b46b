"""Files of an artifact compared with their checksums, in tasks.

``compare``  blocks of 64 MiB of some files: the numbers of those that are not what was written.

Memory: two blocks.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise

from tiering.artifacts.artifact import Artifact, Damage
from tiering.artifacts.checksum import BLOCK_BYTES, num_blocks
from tiering.cluster.grid import even_bounds
from tiering.cluster.session import Cluster
from tiering.cluster.tasks import Stage, TaskContext, Traffic
from tiering.errors import FormatError, StorageError
from tiering.formats.registry import open_artifact

_HERE = "tiering.cluster.stages.comparing"


def find_damage(cluster: Cluster, artifact: Artifact) -> Damage:
    """Have all files of an artifact and of those inside it compared: what is wrong with those that are not sound."""
    files = list(_files(artifact))
    pieces = [(number, begin, end) for number, (*_, size) in enumerate(files) for begin, end in _cut(cluster, size)]
    if not pieces:
        return {}
    named = [[path, name] for path, name, _ in files]
    params = {"files": named, "pieces": [list(piece) for piece in pieces]}
    traffic = Traffic(read=sum(size for *_, size in files))
    stage = Stage("compare", f"{_HERE}:compare", len(pieces), params, memory=2 * BLOCK_BYTES, traffic=traffic)
    # Never that of an earlier run: what was sound then may be damaged now.
    job = cluster.question(artifact.path, f"check-{uuid.uuid4().hex}")
    found: dict[tuple[str, str], list[int] | str] = {}
    for (number, _, _), manifest in zip(pieces, job.run(stage), strict=True):
        key, facts = files[number][:2], manifest["facts"]
        known = found.setdefault(key, [])
        if facts["error"]:
            found[key] = facts["error"]
        elif isinstance(known, list):
            known += facts["damaged"]
    return found


def _files(artifact: Artifact) -> Iterator[tuple[str, str, int]]:
    """Directory, name and bytes of each file that is known by blocks."""
    manifest = artifact.manifest
    for name in (*manifest.files, *(n for n, external in manifest.external.items() if external.whole)):
        with suppress(FormatError):  # of the checksums themselves, which who leads reports
            verifier = manifest.verifier(name)
            if verifier.by_blocks:
                yield str(artifact.path.absolute()), name, verifier.nbytes
    for part in artifact.parts().values():
        yield from _files(part)


def _cut(cluster: Cluster, nbytes: int) -> Iterator[tuple[int, int]]:
    """Runs of blocks that tasks compare: some GiB each, or so many as there are shards."""
    if blocks := num_blocks(nbytes):
        yield from pairwise(even_bounds(blocks, min(blocks, cluster.grid.parts(nbytes))))


def compare(context: TaskContext) -> dict[str, object]:
    """Numbers of the blocks of a run that are not what was written, or why they cannot be read, as facts."""
    number, begin, end = context.params["pieces"][context.index]
    path, name = context.params["files"][number]
    artifact = open_artifact(path)  # holds its directory while files of it are read
    try:
        damaged = artifact.manifest.verifier(name).damaged(range(begin, end), context.threads)
    except StorageError as error:
        return {"damaged": [], "error": str(error)}
    return {"damaged": damaged, "error": ""}
