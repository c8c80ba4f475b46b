"""The exchange through the store: a segment of each task, of which others read ranges. It outlives every process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tiering.cluster.exchanges.exchange import Left, Part
from tiering.cluster.manifests import LostError, Manifest, read_manifest, segments_folder
from tiering.cluster.segments import Segment, SegmentWriter, read_part
from tiering.cluster.stores import Store
from tiering.errors import FormatError, MissingError


class StoreTaskExchange:
    """As an attempt uses it; manifests are read once."""

    def __init__(self, store: Store, job: str) -> None:
        self._store, self._job = store, job
        self._segments: dict[tuple[str, int], Segment] = {}

    @contextmanager
    def writer(self, key: str, nbytes: int) -> Iterator[SegmentWriter]:
        with self._store.writer(key, nbytes) as out:
            yield SegmentWriter(key, out)

    def part(self, stage: str, index: int, part: int) -> Part:
        segment = self._segment(stage, index)
        try:
            return read_part(self._store, segment, part)
        except (FormatError, MissingError) as error:
            raise LostError(stage, index, str(error), segment.key) from error

    def remove(self, key: str) -> None:
        self._store.remove(key)

    def _segment(self, stage: str, index: int) -> Segment:
        if (stage, index) not in self._segments:
            found = read_manifest(self._store, self._job, stage, index)
            if found is None:
                raise LostError(stage, index, "its manifest is not there")
            self._segments[stage, index] = Segment.from_json(found["segment"])
        return self._segments[stage, index]


class StoreExchange:
    """As who leads a job uses it: all is in the store, nothing is held."""

    def __init__(self, store: Store, job: str) -> None:
        self._store, self._job = store, job

    def giving(self) -> tuple[StoreTaskExchange, Left]:
        return StoreTaskExchange(self._store, self._job), Left()

    def keep(self, tasks: int, manifest: Manifest, left: Left) -> None:
        pass

    def there(self, manifest: Manifest) -> bool:
        segment = Segment.from_json(manifest["segment"])
        return self._store.size(segment.key) == segment.nbytes

    def carried(self, stages: Sequence[str]) -> None:
        return None

    def part(self, stage: str, index: int, part: int) -> Part:
        return StoreTaskExchange(self._store, self._job).part(stage, index, part)

    def lost_with(self, stage: str, index: int) -> list[int]:
        return [index]

    def drop(self, stage: str) -> None:
        self._store.clear(segments_folder(self._job, stage))

    def clear(self) -> None:
        pass
