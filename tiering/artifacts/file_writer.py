"""The one way to write a large file: blocks of 64 MiB that are synced, hashed and journaled."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import xxhash

from tiering.artifacts import checksum
from tiering.artifacts.journal import Journal
from tiering.artifacts.storage import ALIGNMENT, Bytes, aligned_bytes, open_direct, reserve, storage_errors, write_all
from tiering.errors import InternalError
from tiering.text.progress import note
from tiering.text.units import parse_threads

T = TypeVar("T")

PIECE_BYTES = 8 * 1024 * 1024  # size of the pieces in which appended bytes are written; a block is a multiple
_PIECES = 4  # pieces in memory: one is filled while the others are written
_WRITERS = 4  # concurrent writes: enough for an SSD
_UNSEALED = 8  # blocks that may wait for their seal; one sync seals all that wait


def appending_memory(nbytes: int, piece_bytes: int = PIECE_BYTES) -> int:
    """Return the memory in bytes that appending to a file of `nbytes` takes."""
    return min(_PIECES * piece_bytes, nbytes)


def block_key(key: str) -> str:
    """Return the prefix of the journal keys of a file's blocks; the block's number follows."""
    return f"blocks {key} "


def damaged_blocks(path: Path, digests: Mapping[int, bytes], header: int = 0) -> list[int]:
    """Return the blocks of an earlier run's file that do not have their digests, with a note. Cost: reads them."""
    actual = checksum.block_digests(path, digests, min(8, parse_threads("auto")), header)
    wrong = [block for block, digest in zip(digests, actual, strict=True) if digest != digests[block]]
    if wrong:
        note(f"note: {path}: {len(wrong)} of {len(digests)} blocks of an earlier run are damaged and are written again")
    return wrong


class FileWriter(AbstractContextManager["FileWriter"]):
    """A writer of one file of `nbytes`, reserved at once; a context manager that closes it.

    Blocks come in any order (`write`), or front to back as pieces of any size (`append`). A `journal` records finished
    blocks under `key`, and keeps an earlier run's blocks; `finished` receives all digests. A `header` is in neither.
    With `blocks` only these are written, to a file that others write to as well.
    """

    def __init__(
        self, path: Path, nbytes: int, journal: Journal | None = None, key: str = "", *,
        finished: Callable[[bytes], None] | None = None, piece_bytes: int = PIECE_BYTES, header: bytes = b"",
        blocks: range | None = None,
    ) -> None:  # fmt: skip
        self.path, self.nbytes, self.block_bytes = path, nbytes, checksum.BLOCK_BYTES
        self.num_blocks = checksum.num_blocks(nbytes)
        self._journal, self._key, self._finished = journal, block_key(key), finished
        self._piece_bytes, self._header = min(piece_bytes, self.block_bytes), header
        self._digests: dict[int, bytes] = {}
        self._blocks = range(self.num_blocks) if blocks is None else blocks
        self.begin, self.stop = self.span(self._blocks.start)[0], self.span(self._blocks.stop - 1)[1]  # own bytes
        if blocks is None:
            self._take_over()
        else:
            reserve(path, nbytes, shared=True)
        self._file = os.open(path, os.O_RDWR)
        self._direct = open_direct(path)
        if header:
            write_all(self._file, np.frombuffer(header, np.uint8), 0)
            self.seal({})
        missing = self.missing()
        self.done = self.span(missing[0])[0] if missing else self.stop  # bytes from the front of an earlier run
        self._appender: _Appender | None = None

    def _take_over(self) -> None:
        journal, size = self._journal, len(self._header) + self.nbytes
        keys = [] if journal is None else journal.keys(self._key)
        if journal is None or not keys or not self.path.is_file() or self.path.stat().st_size != size:
            if journal is not None:
                journal.forget(*keys)
            reserve(self.path, size)
            return
        blocks = {key: int(key.removeprefix(self._key)) for key in keys}
        self._digests = {block: bytes.fromhex((journal.get(key) or {})["digest"]) for key, block in blocks.items()}
        unproven = {block: self._digests[block] for key, block in blocks.items() if key in journal.unproven}
        for block in damaged_blocks(self.path, unproven, len(self._header)):
            del self._digests[block]
            journal.forget(f"{self._key}{block}")
        journal.unproven.difference_update(keys)

    def missing(self) -> list[int]:
        """Return the blocks that are still to be written, ascending."""
        return [block for block in self._blocks if block not in self._digests]

    def span(self, block: int) -> tuple[int, int]:
        """Return the first byte and the end of a block."""
        return block * self.block_bytes, min(self.nbytes, (block + 1) * self.block_bytes)

    def write(self, first: int, data: Bytes) -> None:
        """Write consecutive whole blocks from block `first` on, contiguous; they are durable when this returns."""
        end = first * self.block_bytes + data.size
        if end > self.nbytes or (data.size % self.block_bytes and end != self.nbytes):
            raise InternalError(f"{self.path}: {data.size} bytes from block {first} on are not whole blocks")
        pieces = [data[offset : offset + self.block_bytes] for offset in range(0, data.size, self.block_bytes)]
        if len(pieces) == 1:
            self.seal({first: self._write_block(first, data)})
            return
        with ThreadPoolExecutor(_WRITERS) as pool:
            digests = list(pool.map(self._write_block, range(first, first + len(pieces)), pieces))
        self.seal(dict(enumerate(digests, first)))

    def _write_block(self, block: int, data: Bytes) -> bytes:
        self.put(data, block * self.block_bytes)
        return xxhash.xxh3_64(data.data).digest()

    def append(self, values: np.ndarray[Any, Any], offset: int | None = None) -> None:
        """Append bytes at `offset`, by default the end of the call before; blocks of an earlier run are skipped."""
        if self._appender is None:
            self._appender = _Appender(self, self.done, self._piece_bytes)
        self._appender.append(np.ascontiguousarray(values).reshape(-1).view(np.uint8), offset)

    def put(self, data: Bytes, offset: int) -> None:
        """Write behind the header, unrecorded; aligned memory to a multiple of 4096 bypasses the page cache."""
        direct, offset = 0, len(self._header) + offset
        if self._direct is not None and data.ctypes.data % ALIGNMENT == 0 == offset % ALIGNMENT:
            direct = data.size // ALIGNMENT * ALIGNMENT
            write_all(self._direct, data[:direct], offset)
        write_all(self._file, data[direct:], offset + direct)

    def seal_put(self, threads: int) -> None:
        """Sync the file, and record the missing blocks, which were `put`. Cost: reads them."""
        if missing := self.missing():
            self.seal({})
            digests = checksum.block_digests(self.path, missing, threads, len(self._header))
            self.seal(dict(zip(missing, digests, strict=True)))

    def seal(self, digests: dict[int, bytes]) -> None:
        """Sync the file, and record blocks that were written whole."""
        with storage_errors(self.path, self.nbytes):
            os.fdatasync(self._file)
        for block, digest in digests.items():
            self._digests[block] = digest
            if self._journal is not None:
                self._journal.record(f"{self._key}{block}", digest=digest.hex())

    def digests(self) -> bytes:
        """Return the digests of all blocks, as `tiering.artifacts.checksum.file_digests` does."""
        if missing := self.missing():
            raise InternalError(f"{self.path}: {len(missing)} of {self.num_blocks} blocks were not written")
        return b"".join(self._digests[block] for block in self._blocks)

    @property
    def end(self) -> int:
        """Bytes from the front that were appended, by earlier runs too."""
        return self.done if self._appender is None else self._appender.end

    def close(self) -> None:
        """Wait for writes under way, and close the file."""
        if self._appender is not None:
            self._appender.close()
        for fd in (self._file, self._direct):
            if fd is not None:
                os.close(fd)
        self._file, self._direct = -1, None

    def __exit__(self, kind: object, *_: object) -> None:
        self.close()
        if kind is None and self._finished is not None:
            self._finished(self.digests())


class WriteBehind:
    """Buffers that are filled in turn, each while the others are written by `writers` threads."""

    def __init__(self, buffers: Sequence[Bytes], writers: int = 1) -> None:
        self._buffers = buffers
        self._writes: list[list[Future[Any]]] = [[] for _ in buffers]
        self._current = -1
        self._pool = ThreadPoolExecutor(writers)

    def next_buffer(self) -> Bytes:
        """Return the next buffer to fill, once all writes from it have ended; raise what one of them raised."""
        self._current = (self._current + 1) % len(self._buffers)
        self._wait(self._current)
        return self._buffers[self._current]

    def submit(self, write: Callable[..., T], *arguments: Any) -> Future[T]:
        """Call `write`, which reads the current buffer, in the background."""
        future = self._pool.submit(write, *arguments)
        self._writes[self._current].append(future)
        return future

    def finish(self) -> None:
        """Wait for all writes, raise what one of them raised, and `close`."""
        try:
            for buffer in range(len(self._buffers)):
                self._wait(buffer)
        finally:
            self.close()

    def close(self) -> None:
        """End the threads once the writes under way have ended, and let the buffers go."""
        self._pool.shutdown()
        self._buffers = ()

    def _wait(self, buffer: int) -> None:
        writes, self._writes[buffer] = self._writes[buffer], []
        for write in writes:
            write.result()


class _Appender:
    """Pieces being filled and written in the background, and the blocks that they make up."""

    def __init__(self, file: FileWriter, begin: int, piece_bytes: int) -> None:
        self._file, self.end, self._next = file, begin, 0
        size = min(piece_bytes, file.stop - begin)
        buffers = [aligned_bytes(size) for _ in range(_PIECES if size == piece_bytes else 1)]
        self._pieces, self._sealer = WriteBehind(buffers, _WRITERS), ThreadPoolExecutor(1)
        self._piece: Bytes | None = None
        self._filled = 0
        self._hash, self._of_block = xxhash.xxh3_64(), list[Future[None]]()
        self._unsealed, self._seals = deque[tuple[int, bytes, list[Future[None]]]](), deque[Future[None]]()

    def append(self, data: Bytes, offset: int | None) -> None:
        file, offset = self._file, self._next if offset is None else offset
        if offset > self.end or offset + data.size > file.stop:
            raise InternalError(f"{file.path}: {data.size} bytes at {offset} do not follow {self.end}")
        self._next = offset + data.size
        data = data[self.end - offset :]
        while data.size:
            if self._piece is None:
                self._piece, self._filled = self._pieces.next_buffer(), 0
            count = min(self._piece.size - self._filled, data.size)
            self._piece[self._filled : self._filled + count] = data[:count]
            data, self._filled, self.end = data[count:], self._filled + count, self.end + count
            if self._filled == self._piece.size or self.end == file.stop:
                self._flush(self._piece[: self._filled])

    def _flush(self, piece: Bytes) -> None:
        file, self._piece = self._file, None
        self._hash.update(piece.data)
        self._of_block.append(self._pieces.submit(file.put, piece, self.end - piece.size))
        if self.end % file.block_bytes == 0 or self.end == file.stop:
            self._unsealed.append(((self.end - 1) // file.block_bytes, self._hash.digest(), self._of_block))
            self._seals.append(self._sealer.submit(self._seal))
            self._hash, self._of_block = xxhash.xxh3_64(), []
        while self._seals and (len(self._seals) > _UNSEALED or self.end == file.stop):
            self._seals.popleft().result()
        if self.end == file.stop:
            self.close()

    def _seal(self) -> None:
        blocks = [self._unsealed.popleft() for _ in range(len(self._unsealed))]
        for write in (write for _, _, writes in blocks for write in writes):
            write.result()
        if blocks:
            self._file.seal({block: digest for block, digest, _ in blocks})

    def close(self) -> None:
        """Wait for writes under way, and give the memory back."""
        self._pieces.close()
        self._sealer.shutdown()
