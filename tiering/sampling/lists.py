"""Neighbour lists that exceed memory: windows of batches read them from their files, or maps of them are advised."""

from __future__ import annotations

import mmap
from pathlib import Path

from tiering.artifacts.reader import find_mapping, mapped_file, uncached_bytes
from tiering.sampling.base import Sampler
from tiering.text.progress import note
from tiering.text.units import format_bytes

WINDOWED = ("uniform", "replacement")
"""Rules, as the core names them, whose draws depend on ``indptr`` alone, so that a hop's reads are known before it."""


def window_files(sampler: Sampler, room: int) -> list[str]:
    """Return the file of each relation's ``indices`` for windows of batches, which read lists from them.

    None where `room`, in bytes, has the page cache hold the lists, or where they are in no files of their own. Where a
    rule, times or an induced subgraph needs them mapped, the kernel is told not to read ahead, with one note.
    """
    lists = [sampler.graph.csc(relation)[1] for relation in sampler.relations]
    if (needed := sum(map(uncached_bytes, lists))) <= max(0, room):
        return []
    if sampler.rule in WINDOWED and sampler.times is None and sampler.subgraphs.subgraph_type != "induced":
        found = [find_mapping(array) if array.nbytes else (Path(), 0) for array in lists]
        paths = [place[0] for place in found if place is not None and place[1] == 0]
        sizes = [path.stat().st_size if path.is_file() else 0 for path in paths]
        if sizes == [array.nbytes for array in lists]:
            return list(map(str, paths))
    for array in lists:
        if (mapped := mapped_file(array)) is not None:
            mapped._mmap.madvise(mmap.MADV_RANDOM)  # type: ignore[attr-defined]
    note(
        f"note: neighbor lists take {format_bytes(needed)}, and memory has room for {format_bytes(max(0, room))}: they "
        "are read at random from disk. Sampler uniform or replacement without time reads them in order."
    )
    return []
