"""Block checksums: XXH3-64 over 64 MiB blocks, then XXH3-64 over the blocks' digests.

Why blocks: a large file is hashed by several threads, while it is written or afterwards, with the same result.
Why not SHA-256: the aim is to find damage, not forgery, at the speed of memory.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import xxhash

BLOCK_BYTES = 64 * 1024 * 1024
PREFIX = "xxh3-64-b64m:"


DIGEST_BYTES = 8
"""Of a block."""
_PIECE = 1024 * 1024


def num_blocks(nbytes: int) -> int:
    return -(-nbytes // BLOCK_BYTES)


def block_digest(block: memoryview) -> bytes:
    return xxhash.xxh3_64(block).digest()


def combine_digests(digests: bytes) -> str:
    """Checksum of a file from the digests of its blocks, one after the other."""
    return PREFIX + xxhash.xxh3_64(digests).hexdigest()


def split_digests(digests: bytes) -> dict[int, bytes]:
    """The digest of each block by its number, from the digests of all, one after the other."""
    return {at // DIGEST_BYTES: digests[at : at + DIGEST_BYTES] for at in range(0, len(digests), DIGEST_BYTES)}


def block_digests(
    path: str | os.PathLike[str], blocks: Iterable[int], threads: int = 1, header: int = 0
) -> list[bytes]:
    """Digests of some blocks of a file, which begin behind `header` bytes.

    Cost: reads the blocks, 1 MiB at a time in each thread.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size

        def digest(block: int) -> bytes:
            begin = header + block * BLOCK_BYTES
            end = min(size, begin + BLOCK_BYTES)
            buffer, hasher = memoryview(bytearray(min(_PIECE, end - begin))), xxhash.xxh3_64()
            while begin < end:
                read = os.preadv(fd, [buffer[: end - begin]], begin)
                if read == 0:
                    raise OSError(errno.EIO, f"ends at byte {begin}, where there were {size}")
                hasher.update(buffer[:read])
                begin += read
            return hasher.digest()

        if threads <= 1:
            return [digest(block) for block in blocks]
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(digest, blocks))
    finally:
        os.close(fd)


def file_digests(path: str | os.PathLike[str], threads: int = 1) -> bytes:
    """Digests of all blocks of a file, one after the other. Cost: one sequential read."""
    return b"".join(block_digests(path, range(num_blocks(Path(path).stat().st_size)), threads))


def checksum_file(path: str | os.PathLike[str], threads: int = 1) -> str:
    """Checksum of a whole file. Cost: one sequential read."""
    return combine_digests(file_digests(path, threads))


SAMPLES, SAMPLE_BYTES = 64, 64 * 1024
"""Blocks of a file that its sampled digest covers, and their size; a file of no more bytes is covered whole."""


def sampled_digest(path: Path, blocks: int = SAMPLES, block_bytes: int = SAMPLE_BYTES) -> str:
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
    """What tells an input from a changed one between two runs: the sampled digest and the time of the last change."""
    changed, nanoseconds = divmod(path.stat().st_mtime_ns, 10**9)
    when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(changed))
    return f"{sampled or sampled_digest(path)} of {when}.{nanoseconds:09}Z"


def digest_parts(parts: Iterable[bytes | memoryview]) -> str:
    """`digest_bytes` of the parts one after the other, which need not be in memory together."""
    state = xxhash.xxh3_128()
    for part in parts:
        state.update(part)
    return "xxh3-128:" + state.hexdigest()


def digest_bytes(data: bytes | memoryview) -> str:
    """Digest of a buffer, such as a manifest."""
    return "xxh3-128:" + xxhash.xxh3_128(data).hexdigest()
