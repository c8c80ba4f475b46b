"""What tasks hand to each other: each task writes one segment to the store, and later tasks read partitions of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from tiering.cluster.manifests import LostError, read_manifest
from tiering.cluster.segments import Segment, SegmentWriter, read_part
from tiering.cluster.store import Store
from tiering.errors import FormatError, MissingError

Part = dict[str, npt.NDArray[np.generic]]
"""The columns of a partition, not to be written to."""


class Partitions:
    """The partitions that the tasks of a job have in a store; manifests are read once."""

    def __init__(self, store: Store, job: str) -> None:
        self._store, self._job = store, job
        self._segments: dict[tuple[str, int], Segment] = {}

    @contextmanager
    def writer(self, key: str) -> Iterator[SegmentWriter]:
        """Write the segment of an attempt under a key of its own."""
        with self._store.writer(key) as out:
            yield SegmentWriter(key, out)

    def part(self, stage: str, index: int, part: int) -> Part:
        """Read a partition of a task; `LostError` if it is not there, or not what was written."""
        segment = self._segment(stage, index)
        try:
            return read_part(self._store, segment, part)
        except (FormatError, MissingError) as error:
            raise LostError(stage, index, str(error), segment.key) from error

    def _segment(self, stage: str, index: int) -> Segment:
        if (stage, index) not in self._segments:
            found = read_manifest(self._store, self._job, stage, index)
            if found is None:
                raise LostError(stage, index, "its manifest is not there")
            self._segments[stage, index] = Segment.from_json(found["segment"])
        return self._segments[stage, index]
