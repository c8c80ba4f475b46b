"""Block checksums: XXH3-64 over 64 MiB blocks, then XXH3-64 over the blocks' digests.

Why blocks: a large file is hashed by several threads, while it is written or afterwards, with the same result.
Why not SHA-256: the aim is to find damage, not forgery, at the speed of memory.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import xxhash

BLOCK_BYTES = 64 * 1024 * 1024
PREFIX = "xxh3-64-b64m:"


def block_digest(block: memoryview) -> bytes:
    """Digest of one block."""
    return xxhash.xxh3_64(block).digest()


def combine_digests(digests: list[bytes]) -> str:
    """Checksum of a file from the digests of its blocks, in order."""
    return PREFIX + xxhash.xxh3_64(b"".join(digests)).hexdigest()


class BlockHasher:
    """Hashes a stream of buffers as it passes by; `hexdigest` equals `checksum_file` of the same bytes."""

    def __init__(self) -> None:
        self._done: list[bytes] = []
        self._block = xxhash.xxh3_64()
        self._room = BLOCK_BYTES

    def update(self, data: bytes | bytearray | memoryview) -> None:
        """Add `data` (any contiguous buffer) to the stream."""
        view = memoryview(data).cast("B")
        while len(view):
            piece = view[: self._room]
            self._block.update(piece)
            self._room -= len(piece)
            view = view[len(piece) :]
            if self._room == 0:
                self._done.append(self._block.digest())
                self._block = xxhash.xxh3_64()
                self._room = BLOCK_BYTES

    def hexdigest(self) -> str:
        """Checksum of everything seen so far."""
        tail = [] if self._room == BLOCK_BYTES else [self._block.digest()]
        return combine_digests(self._done + tail)


def checksum_file(path: Path, threads: int = 1) -> str:
    """Checksum of a whole file. Cost: one sequential read."""
    if path.stat().st_size == 0:
        return combine_digests([])
    data = np.memmap(path, dtype=np.uint8, mode="r")
    starts = range(0, data.size, BLOCK_BYTES)

    def digest(start: int) -> bytes:
        return block_digest(data[start : start + BLOCK_BYTES].data)

    if threads <= 1 or len(starts) == 1:
        return combine_digests([digest(start) for start in starts])
    with ThreadPoolExecutor(threads) as pool:
        return combine_digests(list(pool.map(digest, starts)))


def sampled_digest(path: Path, blocks: int = 64, block_bytes: int = 64 * 1024) -> str:
    """Digest of a file's size and of `blocks` evenly spaced blocks: notices a changed input in milliseconds.

    A file of up to ``blocks * block_bytes`` is read whole. A change between the blocks of a larger one goes unseen.
    """
    size = path.stat().st_size
    hasher = xxhash.xxh3_64(str(size).encode())
    last = size - block_bytes
    if size <= blocks * block_bytes:
        starts = list(range(0, size, block_bytes))
    else:
        starts = [last * i // (blocks - 1) for i in range(blocks)]
    try:
        with path.open("rb", buffering=0) as file:
            for start in starts:
                hasher.update(os.pread(file.fileno(), block_bytes, start))
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error  # a read does not know of what
    return "xxh3-64-sampled:" + hasher.hexdigest()


def file_state(path: Path, sampled: str | None = None) -> str:
    """What tells an input from a changed one between two runs: the sampled digest and the time of the last change.

    Parameters
    ----------
    sampled
        The digest, if it is known.
    """
    changed, nanoseconds = divmod(path.stat().st_mtime_ns, 10**9)
    when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(changed))
    return f"{sampled or sampled_digest(path)} of {when}.{nanoseconds:09}Z"


def digest_bytes(data: bytes) -> str:
    """Digest of a small buffer, such as a manifest."""
    return "xxh3-128:" + xxhash.xxh3_128(data).hexdigest()
