"""Files whose content is known by the digests of their blocks: compared as they are read, or what is left of them at
once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import xxhash

from tiering.artifacts import checksum
from tiering.artifacts.storage import storage_errors
from tiering.errors import FormatError
from tiering.units import parse_threads


class _Stream:
    """How far a thread has come in a file."""

    def __init__(self) -> None:
        self.at, self.hash = -1, xxhash.xxh3_64()


class Verifier:
    """What a file must hold. Readers tell it what passes by; `finish` reads the blocks that nobody has.

    `path` is the file's name in messages, `place` what opens it, `whole` its checksum, `blocks` the digests of its
    blocks: ``None`` where they were not recorded, then nothing is compared before `finish`.
    """

    def __init__(self, path: Path, place: str, nbytes: int, whole: str, blocks: bytes | None) -> None:
        self.path, self.place, self.nbytes = path, place, nbytes
        self.read = False
        """Whether somebody reads the file: then all of it is to be compared before results are published."""
        self._whole, self._blocks = whole, blocks
        self._pending = set(range(checksum.num_blocks(nbytes)))
        self._lock = threading.Lock()
        self._streams: dict[int, _Stream] = {}

    @property
    def done(self) -> bool:
        return not self._pending

    def passed(self, offset: int, data: memoryview) -> None:
        """Take note of bytes that were read, from `offset` of the file on.

        Blocks are compared that arrive whole, in calls of one thread that follow each other; `FormatError` if one is
        not what was written.
        """
        if self.done or self._blocks is None:
            return
        stream = self._streams.setdefault(threading.get_ident(), _Stream())
        if offset != stream.at:
            skipped = -offset % checksum.BLOCK_BYTES
            offset, data, stream.hash = offset + skipped, data[skipped:], xxhash.xxh3_64()
        while len(data):
            block = offset // checksum.BLOCK_BYTES
            end = min(self.nbytes, (block + 1) * checksum.BLOCK_BYTES)
            piece = data[: end - offset]
            wanted = block in self._pending
            if wanted:
                stream.hash.update(piece)
            offset, data = offset + len(piece), data[len(piece) :]
            if offset == end:
                if wanted and stream.hash.digest() != self._expected(block):
                    raise self._error(block)
                with self._lock:
                    self._pending.discard(block)
                stream.hash = xxhash.xxh3_64()
        stream.at = offset

    def finish(self, data: memoryview | None = None) -> None:
        """Compare the blocks that have not passed by: read them, or take them from `data`, the whole file as mapped."""
        with self._lock:
            if wrong := self.damaged(self._pending, None, data):
                raise self._error(wrong[0])
            self._pending.clear()

    def span(self, block: int) -> tuple[int, int]:
        return block * checksum.BLOCK_BYTES, min(self.nbytes, (block + 1) * checksum.BLOCK_BYTES)

    def describe(self, block: int) -> str:
        begin, end = self.span(block)
        return f"bytes {begin} to {end}"

    @property
    def by_blocks(self) -> bool:
        """Whether the checksum of each block is known, not only that of all."""
        return self._blocks is not None

    def damaged(self, blocks: Iterable[int], threads: int | None = None, data: memoryview | None = None) -> list[int]:
        """Those of `blocks` that are not what was written; where only the file's checksum is known, all or none."""
        wanted = sorted(blocks)
        if not wanted:
            return []
        if self._blocks is None:
            wanted = list(range(checksum.num_blocks(self.nbytes)))
        threads = threads or parse_threads("auto")
        if data is not None:
            with ThreadPoolExecutor(threads) as pool:
                digests = list(pool.map(lambda block: checksum.block_digest(data[slice(*self.span(block))]), wanted))
        else:
            with storage_errors(self.path):
                digests = checksum.block_digests(self.place, wanted, threads)
        if self._blocks is None:
            return [] if checksum.combine_digests(b"".join(digests)) == self._whole else wanted
        return [block for block, digest in zip(wanted, digests, strict=True) if digest != self._expected(block)]

    def _expected(self, block: int) -> bytes:
        size = checksum.DIGEST_BYTES
        return (self._blocks or b"")[block * size : (block + 1) * size]

    def _error(self, block: int) -> FormatError:
        return FormatError(
            f"{self.path}: {self.describe(block)} are not what was written (their checksum differs): the file is "
            "damaged; restore it or make the artifact again (--no-verify reads it as it is)"
        )
