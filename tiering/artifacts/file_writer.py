"""The one way to write a large file: blocks of 64 MiB that are synced, hashed and journalled, so a killed run goes on.

The blocks are those of the checksum. They come in any order (`FileWriter.write`), or front to back as pieces of any
size that are written in the background (`FileWriter.append`). Writes go past the page cache where the file system
allows it and the memory is aligned.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from tiering.artifacts import checksum
from tiering.artifacts.direct_io import ALIGNMENT, aligned_bytes, open_direct, write_all
from tiering.artifacts.journal import Journal
from tiering.artifacts.storage import reserve, storage_errors
from tiering.errors import InternalError
from tiering.progress import note
from tiering.units import parse_threads

Bytes = npt.NDArray[np.uint8]

PIECE_BYTES = 8 * 1024 * 1024
"""Appended bytes are written in pieces of this size; a block is a whole number of pieces."""
_PIECES = 4
"""Pieces in memory: one is filled while the others are written."""
_WRITERS = 4
"""Writes side by side: enough for an SSD."""
_UNSEALED = 8
"""Blocks that may wait for their seal: those that wait share one sync."""


def appending_memory(nbytes: int, piece_bytes: int = PIECE_BYTES) -> int:
    """Memory that a file of `nbytes` takes while it is appended to."""
    return min(_PIECES * piece_bytes, nbytes)


def block_key(key: str) -> str:
    """What keys of a file's blocks begin with in a journal; their number follows."""
    return f"blocks {key} "


def damaged_blocks(path: Path, digests: Mapping[int, bytes], header: int = 0) -> list[int]:
    """Return the blocks of a file of an earlier run that do not have their digests, and say so in a note.

    The blocks begin behind `header` bytes. Cost: reads the blocks; 1 MiB of memory for each of up to 8 threads.
    """
    with storage_errors(path):
        found = checksum.block_digests(path, digests, min(8, parse_threads("auto")), header)
    wrong = [block for block, digest in zip(digests, found, strict=True) if digest != digests[block]]
    if wrong:
        note(f"note: {path}: {len(wrong)} of {len(digests)} blocks from an earlier run are damaged, and made again")
    return wrong


class FileWriter:
    """A file of `nbytes`, reserved at once, that is being written; a context manager that closes it.

    Blocks are recorded in the `journal`, if there is one, under `key`: what an earlier run made is kept then, once it
    was compared with its digests (`damaged_blocks`).
    `finished` is called with the digests of all blocks when the context ends well. `piece_bytes`, a power of two, is
    what appended bytes are written in. A `header`, of a multiple of 4096 bytes, stands before the blocks: offsets,
    sizes and digests are those of what follows it.

    Memory: none for `write`, `appending_memory` for `append`, from the first byte to the last.
    """

    def __init__(
        self,
        path: Path,
        nbytes: int,
        journal: Journal | None = None,
        key: str = "",
        *,
        finished: Callable[[bytes], None] | None = None,
        piece_bytes: int = PIECE_BYTES,
        header: bytes = b"",
    ) -> None:
        self.path, self.nbytes, self.block_bytes = path, nbytes, checksum.BLOCK_BYTES
        self.num_blocks = checksum.num_blocks(nbytes)
        self._journal, self._key, self._finished = journal, block_key(key), finished
        self._header = header
        self._digests: dict[int, bytes] = {}
        self._take_over()
        with storage_errors(path):
            self._file = os.open(path, os.O_RDWR)
            self._direct = open_direct(path)
        missing = self.missing()
        self.done = self.span(missing[0])[0] if missing else nbytes
        """Bytes from the front that an earlier run has written: `append` need not be given them again."""
        self._appended = _Appended(self, self.done, min(piece_bytes, self.block_bytes))

    def _take_over(self) -> None:
        """Keep what an earlier run has journalled of the file, if it is what that has written, or begin it anew."""
        journal, size = self._journal, len(self._header) + self.nbytes
        known = [] if journal is None else journal.keys(self._key)
        if journal is not None and known and self.path.is_file() and self.path.stat().st_size == size:
            blocks = {key: int(key.removeprefix(self._key)) for key in known}
            self._digests = {block: bytes.fromhex((journal.get(key) or {})["digest"]) for key, block in blocks.items()}
            unproven = {block: self._digests[block] for key, block in blocks.items() if key in journal.unproven}
            for block in damaged_blocks(self.path, unproven, len(self._header)):
                del self._digests[block]
                journal.forget(f"{self._key}{block}")
            journal.unproven.difference_update(known)
        else:
            if journal is not None:
                journal.forget(*known)
            reserve(self.path, size)
        if self._header:
            with storage_errors(self.path, size), self.path.open("r+b") as file:
                file.write(self._header)
                file.flush()
                os.fsync(file.fileno())

    def missing(self) -> list[int]:
        """Blocks that are still to be written, ascending."""
        return [block for block in range(self.num_blocks) if block not in self._digests]

    def missing_ranges(self, fits: Callable[[range], bool]) -> Iterator[range]:
        """Ranges of missing blocks, as long as ``fits(range)`` holds, one block at the least.

        Each is to be written before the next is asked for. The grid of blocks does not depend on memory, threads or
        machine: made alone or together, a block has the same bytes, and whoever can read the inputs may make any.
        """
        while missing := self.missing():
            first = end = missing[0]
            for block in missing:
                if block != end or (block > first and not fits(range(first, block + 1))):
                    break
                end = block + 1
            yield range(first, end)

    def span(self, block: int) -> tuple[int, int]:
        return block * self.block_bytes, min(self.nbytes, (block + 1) * self.block_bytes)

    def write(self, first: int, data: Bytes) -> None:
        """Write consecutive whole blocks, the first of them `first`; they are on disk when this returns.

        `data` is contiguous; aligned to 4096 bytes it is written past the page cache.
        """
        end = first * self.block_bytes + data.size
        if end > self.nbytes or (data.size % self.block_bytes and end != self.nbytes):
            raise InternalError(f"{self.path}: {data.size} bytes from block {first} on are no whole blocks")
        pieces = [data[offset : offset + self.block_bytes] for offset in range(0, data.size, self.block_bytes)]
        blocks = range(first, first + len(pieces))
        with storage_errors(self.path, self.nbytes):
            if len(pieces) == 1:
                digests = [self._write_block(first, data)]
            else:
                with ThreadPoolExecutor(_WRITERS) as pool:
                    digests = list(pool.map(self._write_block, blocks, pieces))
        self.seal(dict(zip(blocks, digests, strict=True)))

    def _write_block(self, block: int, data: Bytes) -> bytes:
        self.put(data, block * self.block_bytes)
        return checksum.block_digest(data.data)

    def append(self, values: np.ndarray[Any, Any], offset: int | None = None) -> None:
        """Take the bytes of an array that follow those of the call before; those that are there are passed over.

        `offset` is where they belong, if the caller does not begin at 0: no later than `done` and what was appended.
        Errors of the disk may show in a later call.
        """
        data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        with storage_errors(self.path, self.nbytes):
            self._appended.take(data, offset)

    def put(self, data: Bytes, offset: int) -> None:
        """Write at a multiple of 4096 behind the header, without record, past the page cache where that is possible."""
        whole, offset = 0, len(self._header) + offset
        if self._direct is not None and data.ctypes.data % ALIGNMENT == 0:
            whole = data.size // ALIGNMENT * ALIGNMENT
            write_all(self._direct, data[:whole], offset)
        write_all(self._file, data[whole:], offset + whole)

    def seal(self, digests: dict[int, bytes]) -> None:
        """Sync the file, and record blocks that were written whole."""
        with storage_errors(self.path, self.nbytes):
            os.fdatasync(self._file)
        for block, digest in digests.items():
            self._digests[block] = digest
            if self._journal is not None:
                self._journal.record(f"{self._key}{block}", digest=digest.hex())

    def digests(self) -> bytes:
        """Digests of all blocks, once none is missing; equals `tiering.artifacts.checksum.file_digests`."""
        if missing := self.missing():
            raise InternalError(f"{self.path}: {len(missing)} of {self.num_blocks} blocks were not written")
        return b"".join(self._digests[block] for block in range(self.num_blocks))

    def close(self) -> None:
        """Wait for what is being written, and close the file."""
        self._appended.stop()
        for fd in (self._file, self._direct):
            if fd is not None:
                os.close(fd)
        self._file, self._direct = -1, None

    def __enter__(self) -> FileWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self.close()
        if kind is None and self._finished is not None:
            self._finished(self.digests())


class _Appended:
    """What is appended to a file: pieces being filled and written, and the blocks they make up."""

    def __init__(self, file: FileWriter, begin: int, piece_bytes: int) -> None:
        self._file, self._end, self._piece_bytes = file, begin, piece_bytes
        self._next = 0
        self._buffers: list[Bytes] = []
        self._writes: list[Future[None] | None] = []
        self._current = self._filled = 0
        self._hash, self._of_block = xxhash.xxh3_64(), deque[Future[None]]()
        self._unsealed = deque[tuple[int, bytes, list[Future[None]]]]()
        self._seals = deque[Future[None]]()
        self._torn = False
        self._pool, self._sealer = ThreadPoolExecutor(_WRITERS), ThreadPoolExecutor(1)  # threads come with work

    def take(self, data: Bytes, offset: int | None) -> None:
        file, offset = self._file, self._next if offset is None else offset
        if offset > self._end or offset + data.size > file.nbytes:
            raise InternalError(f"{file.path}: {data.size} bytes at {offset} do not follow {self._end}")
        self._next = offset + data.size
        data = data[self._end - offset :]
        while data.size:
            buffer = self._buffer()
            count = min(buffer.size - self._filled, data.size)
            buffer[self._filled : self._filled + count] = data[:count]
            data, self._filled, self._end = data[count:], self._filled + count, self._end + count
            if self._filled == buffer.size or self._end == file.nbytes:
                self._flush(buffer[: self._filled])

    def _buffer(self) -> Bytes:
        """The piece being filled, once its last write is through."""
        if not self._buffers:
            size = min(self._piece_bytes, self._file.nbytes - self._end)
            self._buffers = [aligned_bytes(size) for _ in range(_PIECES if size == self._piece_bytes else 1)]
            self._writes = [None] * len(self._buffers)
        last, self._writes[self._current] = self._writes[self._current], None
        if last is not None:
            last.result()
        return self._buffers[self._current]

    def _flush(self, piece: Bytes) -> None:
        """Hand a piece to the writers; at the end of a block, its seal too; at the end of the file, wait for all."""
        file = self._file
        self._hash.update(piece.data)
        write = self._pool.submit(file.put, piece, self._end - piece.size)
        self._writes[self._current] = write
        self._of_block.append(write)
        self._current, self._filled = (self._current + 1) % len(self._buffers), 0
        if self._end % file.block_bytes == 0 or self._end == file.nbytes:
            self._unsealed.append(((self._end - 1) // file.block_bytes, self._hash.digest(), list(self._of_block)))
            self._seals.append(self._sealer.submit(self._seal))
            self._hash = xxhash.xxh3_64()
            self._of_block.clear()
        while self._seals and (len(self._seals) > _UNSEALED or self._end == file.nbytes):
            self._seals.popleft().result()
        if self._end == file.nbytes:
            self.stop()

    def _seal(self) -> None:
        """Record the blocks that wait, in order; none after one that was not written."""
        blocks = [self._unsealed.popleft() for _ in range(len(self._unsealed))]
        if not blocks or self._torn:
            return
        self._torn = True
        for _, _, writes in blocks:
            for write in writes:
                write.result()
        self._file.seal({block: digest for block, digest, _ in blocks})
        self._torn = False

    def stop(self) -> None:
        """Wait for writes under way, and give the memory back."""
        self._pool.shutdown()
        self._sealer.shutdown()
        self._buffers = []
