"""Neighbor lists that exceed memory: windows of batches read them from their files, or maps of them are advised."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np

from tiering.artifacts.reader import find_mapping, mapped_file, uncached_bytes
from tiering.memory import available_memory
from tiering.sampling.base import ListFiles, Sampler
from tiering.sampling.graph import checked_node_keys
from tiering.text.progress import note
from tiering.text.units import format_bytes

WINDOW_BATCHES = 256
"""Batches of an epoch that windows divide, between two steps of a progress bar."""
WINDOWED = ("uniform", "replacement", "weighted")
"""Rules, as the core names them, whose samples depend on ``indptr``, times and sums of weights in memory alone."""


def window_lists(sampler: Sampler, room: int) -> ListFiles | None:
    """Return the files from which windows of batches read neighbor lists, within memory of `room` bytes.

    ``None`` where that memory holds the lists in the page cache, or where windows cannot read them: then the kernel is
    told not to read ahead, with one note.
    """
    room = max(0, min(room, available_memory()) - bytes_around(sampler))
    if (needed := sum(map(uncached_bytes, _arrays(sampler)))) <= room:
        return None
    if (files := list_files(sampler, room)) is None:
        read_at_random(sampler, needed, room)
    return files


def lists_bytes(sampler: Sampler) -> int:
    """Return the bytes of all neighbor lists, and of the times that the sampler goes by."""
    return sum(int(array.nbytes) for array in _arrays(sampler))


def bytes_around(sampler: Sampler) -> int:
    """Return the bytes of what stays in memory in addition to lists: where lists begin, and keys of random numbers."""
    graph = sampler.graph
    offsets = sum(int(graph.csc(relation)[0].nbytes) for relation in sampler.relations)
    keys = [checked_node_keys(graph, node_type) for node_type in sampler.node_types]
    return offsets + sum(int(array.nbytes) for array in keys if array is not None)


def list_files(sampler: Sampler, room: int) -> ListFiles | None:
    """Return the files of ``indices`` and times for windows of `room` bytes; ``None`` where windows cannot read them.

    A rule whose samples need the lists has them mapped. Lists may be in no files of their own, too.
    """
    if sampler.rule not in WINDOWED:
        return None
    arrays = _arrays(sampler)
    found = [find_mapping(array) if array.nbytes else (Path(), 0) for array in arrays]
    paths = [place[0] for place in found if place is not None and place[1] == 0]
    sizes = [path.stat().st_size if path.is_file() else 0 for path in paths]
    if sizes != [array.nbytes for array in arrays]:
        return None
    names, count = [str(path) if path.is_file() else "" for path in paths], len(sampler.relations)
    return ListFiles(names[:count], names[count:], room)


def _arrays(sampler: Sampler) -> list[Any]:
    """Return the lists of all relations, then, for a sampler with times, the times of each; empty where it has none."""
    times = [] if sampler.times is None else sampler.times.words
    lists = [sampler.graph.csc(relation)[1] for relation in sampler.relations]
    return lists + [np.empty(0, np.int64) if array is None else array for array in times]


def read_at_random(sampler: Sampler, needed: int, room: int) -> None:
    """Tell the kernel not to read ahead in lists that exceed memory, and the user that this is slow."""
    for array in _arrays(sampler):
        if (mapped := mapped_file(array)) is not None:
            mapped._mmap.madvise(mmap.MADV_RANDOM)  # type: ignore[attr-defined]
    note(
        f"note: the adjacency lists need {format_bytes(needed)}, memory has room for {format_bytes(room)}: they are "
        "read at random from disk. Samplers uniform, replacement and weighted would read them in order."
    )
