"""Verification of files by the digests of their blocks: as they are read, the rest of them at once, or by ranges."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from tiering.artifacts import checksum
from tiering.artifacts.direct_io import read_all
from tiering.artifacts.storage import open_descriptor, storage_errors
from tiering.errors import FormatError
from tiering.units import parse_threads

Bytes = npt.NDArray[np.uint8]


class Verifier:
    """The expected content of a file: readers `update` it with what they read, `finalize` reads all other blocks.

    `path` is the file's name in messages, `place` the path that opens it, `whole` its checksum, `blocks` the digests of
    its blocks: ``None`` where they were not recorded; then only `finalize` compares. `read` is whether a reader has
    begun the file; then all of it is verified before results are published.
    """

    def __init__(self, path: Path, place: str, nbytes: int, whole: str, blocks: bytes | None) -> None:
        self.path, self.place, self.nbytes, self.read = path, place, nbytes, False
        self._whole, self._blocks = whole, blocks
        self._pending = set(range(checksum.num_blocks(nbytes)))
        self._lock = threading.Lock()
        self._streams: dict[int, tuple[int, Any]] = {}  # by thread: where it is, and the hash of the block it is in

    @property
    def done(self) -> bool:
        """Whether all blocks are verified."""
        return not self._pending

    def update(self, offset: int, data: memoryview) -> None:
        """Verify blocks that one thread reads whole, in consecutive calls; `FormatError` if one is damaged."""
        if self.done or self._blocks is None:
            return
        at, hasher = self._streams.get(threading.get_ident(), (-1, None))
        if offset != at:
            skipped = -offset % checksum.BLOCK_BYTES
            offset, data, hasher = offset + skipped, data[skipped:], xxhash.xxh3_64()
        while len(data):
            block = offset // checksum.BLOCK_BYTES
            _, end = self.span(block)
            piece = data[: end - offset]
            pending = block in self._pending
            if pending:
                hasher.update(piece)
            offset, data = offset + len(piece), data[len(piece) :]
            if offset == end:
                if pending and hasher.digest() != self._expected(block):
                    raise self._error(block)
                with self._lock:
                    self._pending.discard(block)
                hasher = xxhash.xxh3_64()
        self._streams[threading.get_ident()] = offset, hasher

    def finalize(self, data: memoryview | None = None) -> None:
        """Verify the blocks that are not verified yet: read them, or take them from `data`, the whole file mapped."""
        with self._lock:
            if wrong := self.damaged(self._pending, None, data):
                raise self._error(wrong[0])
            self._pending.clear()

    def read_range(self, begin: int, end: int) -> Bytes:
        """Return bytes [begin, end) of the file, verified where its blocks are known. Cost: reads whole blocks."""
        size = checksum.BLOCK_BYTES
        blocks = range(begin // size, -(-end // size)) if self._blocks is not None and begin < end else range(0)
        data, stop = np.empty(end - begin, np.uint8), self.span(blocks[-1])[1] if blocks else end
        with storage_errors(self.path), open_descriptor(self.place) as fd:
            if (found := os.lseek(fd, 0, os.SEEK_END)) < stop:
                raise FormatError(f"{self.path}: expected {self.nbytes} bytes, found {found}; make the artifact again")
            read_all(fd, data.data, begin)
            for block in blocks:
                low, high = self.span(block)
                first, last, hasher = max(low, begin), min(high, end), xxhash.xxh3_64()
                checksum.hash_range(hasher, fd, low, first)
                hasher.update(data[first - begin : last - begin].data)
                checksum.hash_range(hasher, fd, last, high)
                if hasher.digest() != self._expected(block):
                    raise self._error(block)
        return data

    def span(self, block: int) -> tuple[int, int]:
        """Return the first byte and the end of a block."""
        return block * checksum.BLOCK_BYTES, min(self.nbytes, (block + 1) * checksum.BLOCK_BYTES)

    def describe(self, block: int) -> str:
        """Return a block's place for messages."""
        begin, end = self.span(block)
        return f"bytes {begin} to {end}"

    def damaged(self, blocks: Iterable[int], threads: int | None = None, data: memoryview | None = None) -> list[int]:
        """Return those of `blocks` that are damaged; all or none where only the file's checksum is known."""
        wanted, threads = sorted(blocks), threads or parse_threads("auto")
        if not wanted:
            return []
        if self._blocks is None:
            wanted = list(range(checksum.num_blocks(self.nbytes)))
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
