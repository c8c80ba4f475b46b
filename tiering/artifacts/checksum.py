"""Block checksums: XXH3-64 over 64 MiB blocks, then over their digests, to find damage, not forgery."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from tiering.artifacts.remote_path import RemotePath
from tiering.artifacts.storage import Bytes, open_descriptor, read_all
from tiering.errors import FormatError
from tiering.text.units import parse_threads

BLOCK_BYTES = 64 * 1024 * 1024
PREFIX = "xxh3-64-b64m:"
DIGEST_BYTES = 8  # bytes of a block's digest
SAMPLES, SAMPLE_BYTES = 64, 64 * 1024  # pieces of a file that its sampled digest covers, and their size
_PIECE = 1024 * 1024


def _hash_range(hasher: xxhash.xxh3_64, fd: int, begin: int, end: int) -> None:
    buffer = memoryview(bytearray(min(_PIECE, max(0, end - begin))))
    for offset in range(begin, end, _PIECE):
        piece = buffer[: end - offset]
        read_all(fd, piece, offset)
        hasher.update(piece)


def num_blocks(nbytes: int) -> int:
    """Return the number of blocks of a file of `nbytes`."""
    return -(-nbytes // BLOCK_BYTES)


def combine_digests(digests: bytes) -> str:
    """Return a file's checksum from the concatenated digests of its blocks."""
    return PREFIX + xxhash.xxh3_64(digests).hexdigest()


def split_digests(digests: bytes) -> dict[int, bytes]:
    """Return the digest of each block by its number, from the concatenated digests of all."""
    return {at // DIGEST_BYTES: digests[at : at + DIGEST_BYTES] for at in range(0, len(digests), DIGEST_BYTES)}


def block_digests(
    path: str | os.PathLike[str], blocks: Iterable[int], threads: int = 1, header: int = 0
) -> list[bytes]:
    """Return the digests of some blocks of a file, read 1 MiB at a time; block 0 begins behind `header` bytes."""
    with open_descriptor(path) as fd:
        size = os.fstat(fd).st_size

        def digest(block: int) -> bytes:
            begin, hasher = header + block * BLOCK_BYTES, xxhash.xxh3_64()
            _hash_range(hasher, fd, begin, min(size, begin + BLOCK_BYTES))
            return hasher.digest()

        if threads <= 1:
            return [digest(block) for block in blocks]
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(digest, blocks))


def file_digests(path: str | os.PathLike[str], threads: int = 1) -> bytes:
    """Return the concatenated digests of all blocks of a file. Cost: one sequential read."""
    return b"".join(block_digests(path, range(num_blocks(Path(path).stat().st_size)), threads))


def checksum_file(path: str | os.PathLike[str], threads: int = 1) -> str:
    """Return the checksum of a whole file. Cost: one sequential read."""
    return combine_digests(file_digests(path, threads))


def sampled_digest(path: Path, blocks: int = SAMPLES, block_bytes: int = SAMPLE_BYTES) -> str:
    """Return the digest of a file's size and of evenly spaced pieces, all of a small file; a remote file's state."""
    if isinstance(path, RemotePath):
        return path.state()
    buffer = memoryview(bytearray(block_bytes))
    with path.open("rb", buffering=0) as file:

        def read(begin: int, end: int) -> memoryview:
            read_all(file.fileno(), buffer[: end - begin], begin)
            return buffer[: end - begin]

        return digest_samples(read, path.stat().st_size, blocks, block_bytes)


def digest_samples(
    read: Callable[[int, int], Any], size: int, blocks: int = SAMPLES, block_bytes: int = SAMPLE_BYTES
) -> str:
    """Return the sampled digest of a file of `size` bytes; `read` returns bytes [begin, end) of it."""
    hasher = xxhash.xxh3_64(str(size).encode())
    starts: Iterable[int] = range(0, size, block_bytes)
    if size > blocks * block_bytes:
        starts = [(size - block_bytes) * i // (blocks - 1) for i in range(blocks)]
    for start in starts:
        hasher.update(read(start, min(size, start + block_bytes)))
    return "xxh3-64-sampled:" + hasher.hexdigest()


def file_state(path: Path, sampled: str | None = None) -> str:
    """Return a text that changes with the file: its sampled digest and the time of its last change."""
    if isinstance(path, RemotePath):
        return sampled or path.state()
    changed, nanoseconds = divmod(path.stat().st_mtime_ns, 10**9)
    when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(changed))
    return f"{sampled or sampled_digest(path)} of {when}.{nanoseconds:09}Z"


def digest_bytes(*parts: bytes | memoryview) -> str:
    """Return the digest of a document, such as a manifest, given in consecutive parts."""
    state = xxhash.xxh3_128()
    for part in parts:
        state.update(part)
    return "xxh3-128:" + state.hexdigest()


class Verifier:
    """The expected content of a file: readers `update` it with what they read, `finalize` reads all other blocks.

    `path` is its name in messages, `place` opens it, `whole` is its checksum, `blocks` are the digests of its blocks,
    if recorded; else only `finalize` compares. `read`: a reader has begun the file, so all of it is verified.
    """

    def __init__(self, path: Path, place: str, nbytes: int, whole: str, blocks: bytes | None) -> None:
        self.path, self.place, self.nbytes, self.read = path, place, nbytes, False
        self._whole, self._blocks = whole, blocks
        self._pending = set(range(num_blocks(nbytes)))
        self._lock = threading.Lock()
        self._streams: dict[int, tuple[int, Any]] = {}  # by thread: where it is, and the hash of the block it is in

    @property
    def by_block(self) -> bool:
        """Whether the digests of the blocks are known."""
        return self._blocks is not None

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
            skipped = -offset % BLOCK_BYTES
            offset, data, hasher = offset + skipped, data[skipped:], xxhash.xxh3_64()
        while len(data):
            block = offset // BLOCK_BYTES
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
        """Return bytes [begin, end) of the file, verified where its blocks are known. Cost: reads blocks whole once."""
        blocks = range(begin // BLOCK_BYTES, -(-end // BLOCK_BYTES)) if self._blocks is not None and begin < end else ()
        data = np.empty(end - begin, np.uint8)
        with open_descriptor(self.place) as fd:
            stop = self.span(blocks[-1])[1] if blocks else end
            if (found := os.lseek(fd, 0, os.SEEK_END)) < stop:
                raise FormatError(f"{self.path}: expected {self.nbytes} bytes, found {found}; make the artifact again")
            read_all(fd, data.data, begin)
            with self._lock:  # one of the threads that read a block verifies it
                for block in self._pending.intersection(blocks):
                    low, high = self.span(block)
                    first, last, hasher = max(low, begin), min(high, end), xxhash.xxh3_64()
                    _hash_range(hasher, fd, low, first)
                    hasher.update(data[first - begin : last - begin].data)
                    _hash_range(hasher, fd, last, high)
                    if hasher.digest() != self._expected(block):
                        raise self._error(block)
                    self._pending.discard(block)
        return data

    def span(self, block: int) -> tuple[int, int]:
        """Return the first byte and the end of a block."""
        return block * BLOCK_BYTES, min(self.nbytes, (block + 1) * BLOCK_BYTES)

    def describe(self, block: int) -> str:
        """Return a block's place for messages."""
        begin, end = self.span(block)
        return f"bytes {begin} to {end}"

    def damaged(self, blocks: Iterable[int], threads: int | None = None, data: memoryview | None = None) -> list[int]:
        """Return the damaged blocks among `blocks`; all or none where only the file's checksum is known."""
        wanted, threads = sorted(blocks), threads or parse_threads("auto")
        if not wanted:
            return []
        if self._blocks is None:
            wanted = list(range(num_blocks(self.nbytes)))
        if data is not None:
            with ThreadPoolExecutor(threads) as pool:
                digests = list(pool.map(lambda block: xxhash.xxh3_64(data[slice(*self.span(block))]).digest(), wanted))
        else:
            digests = block_digests(self.place, wanted, threads)
        if self._blocks is None:
            return [] if combine_digests(b"".join(digests)) == self._whole else wanted
        return [block for block, digest in zip(wanted, digests, strict=True) if digest != self._expected(block)]

    def _expected(self, block: int) -> bytes:
        return (self._blocks or b"")[block * DIGEST_BYTES : (block + 1) * DIGEST_BYTES]

    def _error(self, block: int) -> FormatError:
        return FormatError(
            f"{self.path}: {self.describe(block)} differ from what was written (checksum): the file is "
            "damaged; restore it or make the artifact again (--no-verify reads it as it is)"
        )
