"""Neighbour lists that exceed memory: windows of batches read them from their files, or maps of them are advised."""

from __future__ import annotations

import mmap
from pathlib import Path

from tiering.artifacts.reader import find_mapping, mapped_file, uncached_bytes
from tiering.memory import available_memory
from tiering.sampling.base import Sampler
from tiering.text.progress import note
from tiering.text.units import format_bytes

WINDOW_BATCHES = 256
"""Batches of an epoch that windows divide, between two steps of a progress bar."""
WINDOWED = ("uniform", "replacement")
"""Rules, as the core names them, whose draws depend on ``indptr`` alone, so that a hop's reads are known before it."""


def window_files(sampler: Sampler, room: int) -> tuple[list[str], int]:
    """Return the file of each relation's ``indices``, from which windows of batches read lists, and the windows' room.

    There are no files where memory, up to `room` bytes, holds the lists in the page cache, or where these are in no
    files of their own. Where a rule, times or an induced subgraph needs them mapped, the kernel is told not to read
    ahead, with one note.
    """
    graph = sampler.graph
    lists = [graph.csc(relation)[1] for relation in sampler.relations]
    around = sum(8 * graph.num_nodes(relation[2]) for relation in sampler.relations)  # offsets, which stay in memory
    around += sum(8 * graph.num_nodes(node_type) for node_type in sampler.node_types)  # keys, likewise
    room = max(0, min(room, available_memory()) - around)
    if (needed := sum(map(uncached_bytes, lists))) <= room:
        return [], room
    if sampler.rule in WINDOWED and sampler.times is None and sampler.subgraphs.subgraph_type != "induced":
        found = [find_mapping(array) if array.nbytes else (Path(), 0) for array in lists]
        paths = [place[0] for place in found if place is not None and place[1] == 0]
        sizes = [path.stat().st_size if path.is_file() else 0 for path in paths]
        if sizes == [array.nbytes for array in lists]:
            return list(map(str, paths)), room
    for array in lists:
        if (mapped := mapped_file(array)) is not None:
            mapped._mmap.madvise(mmap.MADV_RANDOM)  # type: ignore[attr-defined]
    note(
        f"note: neighbor lists take {format_bytes(needed)}, and memory has room for {format_bytes(room)}: they are "
        "read at random from disk. Sampler uniform or replacement without time reads them in order."
    )
    return [], room
