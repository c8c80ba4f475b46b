"""Output directories that exist whole or not at all: written beside, synced, renamed.

``OUT`` is written as ``.OUT.partial`` in the same parent, under a lock, and renamed at `commit`. A killed run leaves
only the hidden partial directory, which nothing opens and which the next run of the same command clears away.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from types import TracebackType

from tiering.errors import BusyError, ExistsError, InputError, StorageError
from tiering.io.storage import fsync_directory, storage_errors


class OutputDirectory:
    """A directory being written; a context manager that leaves nothing behind on an error.

    Parameters
    ----------
    out
        Where the finished directory will be. Its parent must exist or be creatable.
    force
        Replace an existing directory at `out`; it stays in place until `commit`.

    Raises
    ------
    ExistsError
        If `out` exists and `force` is not set.
    BusyError
        If another process is writing the same output; names its process id.
    """

    def __init__(self, out: str | os.PathLike[str], *, force: bool = False) -> None:
        self.out = Path(os.path.abspath(out))  # noqa: PTH100 - keep symbolic links in the name as given
        if not self.out.name:
            raise InputError(f"output {self.out}: expected the name of a directory to create")
        if (self.out.exists() or self.out.is_symlink()) and not force:
            raise ExistsError(f"{self.out}: already exists; give --force to replace it, or another --out")
        self.path = self.out.parent / f".{self.out.name}.partial"
        with storage_errors(self.out):
            self.out.parent.mkdir(parents=True, exist_ok=True)
        self._lock_path = self.out.parent / f".{self.out.name}.lock"
        self._lock = self._acquire()
        with storage_errors(self.path):
            shutil.rmtree(self.path, ignore_errors=True)
            self.path.mkdir()

    def _acquire(self) -> int:
        with storage_errors(self._lock_path):
            fd = os.open(self._lock_path, os.O_CREAT | os.O_RDWR, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(fd, 32).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            raise BusyError(
                f"{self.out}: process {owner} is writing it; wait for that run to end, or stop it first"
            ) from None
        if not self._lock_path.exists() or os.fstat(fd).st_ino != self._lock_path.stat().st_ino:
            os.close(fd)  # the file was removed by a run that ended between open and lock
            return self._acquire()
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        return fd

    def commit(self) -> None:
        """Sync what was written and rename it to `out`, replacing an older directory there."""
        with storage_errors(self.out):
            for folder, _, _ in os.walk(self.path):
                fsync_directory(Path(folder))
            old = self.out.parent / f".{self.out.name}.old"
            if self.out.is_symlink() or self.out.is_file():
                self.out.unlink()
            elif self.out.exists():
                shutil.rmtree(old, ignore_errors=True)
                self.out.rename(old)
            self.path.rename(self.out)
            fsync_directory(self.out.parent)
            shutil.rmtree(old, ignore_errors=True)
        self._release()

    def _release(self) -> None:
        if self._lock >= 0:
            self._lock_path.unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = -1

    def discard(self) -> None:
        """Remove everything written; `out` itself is untouched."""
        if self._lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            self._release()

    def __enter__(self) -> OutputDirectory:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self.discard()


def link_or_copy(source: Path, target: Path) -> None:
    """Make `target` the same file as `source` (hard link), or a copy where links do not reach."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        with storage_errors(target, source.stat().st_size):
            try:
                shutil.copyfile(source, target)
            except shutil.Error as error:
                raise StorageError(str(error)) from error
