"""Block checksums: XXH3-64 over 64 MiB blocks, then XXH3-64 over the blocks' digests.

So several threads hash a large file, while it is written or afterwards; the aim is to find damage, not forgery.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import xxhash

from tiering.artifacts.direct_io import read_all
from tiering.artifacts.storage import open_descriptor

BLOCK_BYTES = 64 * 1024 * 1024
PREFIX = "xxh3-64-b64m:"
DIGEST_BYTES = 8  # bytes of a block's digest
SAMPLES, SAMPLE_BYTES = 64, 64 * 1024  # pieces of a file that its sampled digest covers, and their size
_PIECE = 1024 * 1024


def num_blocks(nbytes: int) -> int:
    """Return the number of blocks of a file of `nbytes`."""
    return -(-nbytes // BLOCK_BYTES)


def block_digest(block: memoryview) -> bytes:
    """Return the digest of a block in memory."""
    return xxhash.xxh3_64(block).digest()


def combine_digests(digests: bytes) -> str:
    """Return a file's checksum from the concatenated digests of its blocks."""
    return PREFIX + xxhash.xxh3_64(digests).hexdigest()


def split_digests(digests: bytes) -> dict[int, bytes]:
    """Return the digest of each block by its number, from the concatenated digests of all."""
    return {at // DIGEST_BYTES: digests[at : at + DIGEST_BYTES] for at in range(0, len(digests), DIGEST_BYTES)}


def hash_range(hasher: xxhash.xxh3_64, fd: int, begin: int, end: int) -> None:
    """Add bytes [begin, end) of a file to a hash, 1 MiB at a time."""
    buffer = memoryview(bytearray(min(_PIECE, max(0, end - begin))))
    for offset in range(begin, end, _PIECE):
        piece = buffer[: end - offset]
        read_all(fd, piece, offset)
        hasher.update(piece)


def block_digests(
    path: str | os.PathLike[str], blocks: Iterable[int], threads: int = 1, header: int = 0
) -> list[bytes]:
    """Return the digests of some blocks of a file; block 0 begins behind `header` bytes.

    Cost: reads the blocks, 1 MiB at a time in each thread.
    """
    with open_descriptor(path) as fd:
        size = os.fstat(fd).st_size

        def digest(block: int) -> bytes:
            begin, hasher = header + block * BLOCK_BYTES, xxhash.xxh3_64()
            hash_range(hasher, fd, begin, min(size, begin + BLOCK_BYTES))
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
    """Return the digest of a file's size and of `blocks` evenly spaced pieces: notices a changed input in milliseconds.

    A file of up to ``blocks * block_bytes`` is read whole. A change between the pieces of a larger one goes unseen.
    """
    size = path.stat().st_size
    hasher = xxhash.xxh3_64(str(size).encode())
    starts: Iterable[int] = range(0, size, block_bytes)
    if size > blocks * block_bytes:
        starts = [(size - block_bytes) * i // (blocks - 1) for i in range(blocks)]
    buffer = memoryview(bytearray(block_bytes))
    with path.open("rb", buffering=0) as file:
        for start in starts:
            piece = buffer[: size - start]
            read_all(file.fileno(), piece, start)
            hasher.update(piece)
    return "xxh3-64-sampled:" + hasher.hexdigest()


def file_state(path: Path, sampled: str | None = None) -> str:
    """Return a text that changes with the file: its sampled digest and the time of its last change."""
    changed, nanoseconds = divmod(path.stat().st_mtime_ns, 10**9)
    when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(changed))
    return f"{sampled or sampled_digest(path)} of {when}.{nanoseconds:09}Z"


def digest_parts(parts: Iterable[bytes | memoryview]) -> str:
    """Return the digest of a document, such as a manifest, given in consecutive parts."""
    state = xxhash.xxh3_128()
    for part in parts:
        state.update(part)
    return "xxh3-128:" + state.hexdigest()


def digest_bytes(data: bytes | memoryview) -> str:
    """Return the digest of a document in memory."""
    return digest_parts([data])
