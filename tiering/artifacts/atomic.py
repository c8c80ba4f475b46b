"""Output directories that exist whole or not at all: ``OUT`` is written as ``.OUT.partial``, under a lock, and renamed.

The next run of the same command resumes from the journal of a killed run. Whatever `commit` replaces goes last.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Any

from tiering.artifacts.document import open_manifest
from tiering.artifacts.journal import JOURNAL, OUTSIDE, Journal
from tiering.artifacts.overlap import refuse_foreign, refuse_overlap
from tiering.artifacts.storage import fsync_directory, make_folders, missing_folders, storage_errors, write_durably
from tiering.errors import BusyError, ExistsError, FormatError, InputError, MissingError
from tiering.text.arguments import require_local
from tiering.text.progress import kept, note
from tiering.version import __version__

OWNER = "layout"  # file in a directory outside that names its output
_TEMPORARY = "temporary "  # prefix of the keys of temporary directories, which count as finished work, unlike others
_STRIPES = re.compile(r"ssd-\d+-of-\d+")
_LOCK = re.compile(rb"[\0\d :\n-]*")  # content of a lock file, process and time, of which a power cut may leave pieces


class OutputDirectory(AbstractContextManager["OutputDirectory"]):
    """A directory being written, in `path`; a context manager that leaves nothing behind on an error.

    With an `identity`, JSON types that say what is computed from what, a run resumes from the `journal` of an earlier
    one. Without `force`, an `out` that exists is refused, and an unfinished one whose inputs changed.
    """

    def __init__(
        self, out: str | os.PathLike[str], *, force: bool = False, identity: Mapping[str, Any] | None = None,
        reads: Iterable[Path] = (),
    ) -> None:  # fmt: skip
        self._set_places(out)
        self._force, self._resumable = force, identity is not None
        refuse_overlap(self.out, reads)
        self.refuse_existing(out, force)
        with storage_errors():
            make_folders(self.out.parent)
            self._lock = self._acquire()
            try:
                self._recover()
                self._refuse_existing()
                self.journal = self._begin(identity)
            except BaseException:
                self._release()
                raise

    @classmethod
    def recover(cls, out: str | os.PathLike[str]) -> None:
        """End the commit of a run that was killed after `out` got its name; `BusyError` if the run is alive."""
        output = cls.__new__(cls)
        output._set_places(out)
        with storage_errors():
            if output._is_unfinished():
                output._lock = output._acquire()
                try:
                    output._recover()
                finally:
                    output._release()

    @classmethod
    def refuse_existing(cls, out: str | os.PathLike[str], force: bool) -> None:
        """Raise `ExistsError` if there is something at `out`, with `force` something foreign, that no run left."""
        output = cls.__new__(cls)
        output._set_places(out)
        output._force = force
        if not output._is_unfinished():
            output._refuse_existing()

    @classmethod
    def unfinished_identity(cls, out: str | os.PathLike[str]) -> dict[str, Any]:
        """Return the identity of a run that left `out` unfinished; empty if there is none."""
        output = cls.__new__(cls)
        output._set_places(out)
        return Journal.read_identity(output.path / JOURNAL)

    def _set_places(self, out: str | os.PathLike[str]) -> None:
        require_local(out=out)
        self.out = Path(os.path.abspath(out))  # noqa: PTH100 - keep symbolic links in the name as given
        if not self.out.name:
            raise InputError(f"output {self.out}: expected the name of a new directory")
        hidden = self.out.parent / f".{self.out.name}"
        self.path = hidden.with_name(f"{hidden.name}.partial")
        self._old = hidden.with_name(f"{hidden.name}.old")
        self._lock_path = hidden.with_name(f"{hidden.name}.lock")
        self._lock, self._named = -1, False

    def _is_unfinished(self) -> bool:
        return self._has_name() or self._old.exists() or self._lock_path.exists()

    def _has_name(self) -> bool:
        """Return whether a run was killed between naming its output and removing the journal in it."""
        return Journal.is_own(self.out / JOURNAL)

    def _refuse_existing(self) -> None:
        if os.path.lexists(self.out):
            if not self._force:
                raise ExistsError(f"{self.out}: already exists; give --force to replace it, or choose another output")
            self._refuse_foreign()
        if os.path.lexists(self._old):
            refuse_foreign(self._old)
        if os.path.lexists(self.path) and not Journal.is_own(self.path / JOURNAL):  # every run begins with one
            refuse_foreign(self.path, lambda _: False)

    def _refuse_foreign(self) -> None:
        """Raise `ExistsError` if `force` may not replace what is at `out`."""
        refuse_foreign(self.out)

    def _recover(self) -> None:
        returns = self._old.exists() and not self.out.exists()
        if returns:
            refuse_foreign(self._old)
        if self._has_name():
            self._end(Journal.reopen(self.out / JOURNAL))
        elif returns:
            self._old.rename(self.out)

    def _begin(self, identity: Mapping[str, Any] | None) -> Journal:
        """Return the journal of an earlier run of the same identity, or begin with an empty directory."""
        identity = identity if identity is None else json.loads(json.dumps({**identity, "package": __version__}))
        earlier = Journal.reopen(self.path / JOURNAL)
        if earlier is not None and earlier.identity == identity:
            if earlier.done:
                note(f"note: {self.out}: resuming an earlier run")
            return earlier
        if earlier is not None:
            earlier.close()
            if identity is not None and not self._force:
                self._refuse_changed(earlier.identity, identity)
            if earlier.done:
                version = earlier.identity.get("package", __version__)
                other = "other options or inputs" if version == __version__ else f"version {version} of tiering"
                note(f"note: {self.out}: removed the output of an unfinished run with {other}")
            ExternalDirectories(earlier, self.out).clear("make")
        _remove(self.path)
        self.path.mkdir()
        return Journal.begin(self.path, identity or {})

    def _refuse_changed(self, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        """Raise if an unfinished run differs from this one in its inputs only."""
        if {**before, "inputs": None} != {**now, "inputs": None}:
            return
        then, today = before.get("inputs", {}), now.get("inputs", {})
        name = next(name for name in sorted({*then, *today}) if then.get(name) != today.get(name))
        raise InputError(
            f"{name}: changed since a run that left {self.out} unfinished (expected {then.get(name, 'no such input')}, "
            f"found {today.get(name, 'none')}); give --force to start over, or restore the input to resume"
        )

    def _acquire(self) -> int:
        """Lock the output against other writers; return the descriptor of the lock file, which names this process."""
        while True:
            with ExitStack() as stack, storage_errors(self._lock_path):
                fd = os.open(self._lock_path, os.O_CREAT | os.O_RDWR, 0o666)
                stack.callback(os.close, fd)
                text = os.pread(fd, 64, 0)
                if not _LOCK.fullmatch(text):
                    raise ExistsError(f"{self._lock_path}: this is not a lock file of tiering; move it away")
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    pid, _, begun = text.decode().strip("\0\n").partition(" ")
                    raise BusyError(
                        f"{self.out}: process {pid or 'unknown'} is writing it{begun and f', since {begun}'}; "
                        "wait for that run to end, or stop it first"
                    ) from None
                if self._lock_path.exists() and os.fstat(fd).st_ino == self._lock_path.stat().st_ino:
                    try:
                        os.ftruncate(fd, 0)
                        os.pwrite(fd, f"{os.getpid()} {time.strftime('%Y-%m-%d %H:%M:%S')}\n".encode(), 0)
                    except BaseException:
                        self._lock_path.unlink(missing_ok=True)
                        raise
                    stack.pop_all()
                    return fd
            # the file was removed by a run that ended between open and lock

    def commit(self, keep: Iterable[Path] = ()) -> None:
        """Rename what was written, synced, to `out`; remove the journal and what was there, but files to `keep`."""
        self._refuse_existing()  # a user may have put something there since the run began
        ExternalDirectories(self.journal, self.out).record_replaced(keep)
        for folder, _, _ in os.walk(self.path):
            fsync_directory(Path(folder))
        replaced = os.path.lexists(self.out)
        if not (replaced and exchange(self.path, self.out)):
            if replaced:
                _remove(self._old)
                self.out.rename(self._old)
            self.path.rename(self.out)
        self._named = True
        fsync_directory(self.out.parent)
        self._end(self.journal)
        self._release()

    def _end(self, journal: Journal | None) -> None:
        """End a commit once the output has its name: remove what it replaced, then the journal."""
        _remove(self.path)
        _remove(self._old)
        fsync_directory(self.out.parent)
        if journal is not None:
            journal.close()
            ExternalDirectories(journal, self.out).clear("drop")
        (self.out / JOURNAL).unlink(missing_ok=True)

    def _release(self) -> None:
        if self._lock >= 0:
            self._lock_path.unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = -1

    def discard(self) -> None:
        """Remove everything written; `out` itself is untouched."""
        if self._lock >= 0:
            self.journal.close()
            if not self._named:
                with suppress(OSError):  # what cannot be removed now is left to the next run, with the journal
                    ExternalDirectories(self.journal, self.out).clear("make")
                    _remove(self.path)
            self._release()

    def suspend(self) -> None:
        """Leave finished work to the next run of the same command; `discard` where there is none."""
        if not self._resumable or not self.journal.done:
            self.discard()
        elif self._lock >= 0:
            self.journal.close()
            self._release()
            if not self._named:
                kept.append(str(self.out))

    def __exit__(self, *_: object) -> None:
        self.discard()


class OutputFile(OutputDirectory):
    """A numpy file being written: `content` lies in `path` until `commit_file`; `force` replaces another numpy file."""

    @property
    def content(self) -> Path:
        """The file while it is written."""
        return self.path / "content"

    def _refuse_foreign(self) -> None:
        start = b""
        if self.out.is_file():
            with storage_errors(self.out), self.out.open("rb") as file:
                start = file.read(6)
        if start != b"\x93NUMPY":
            raise ExistsError(
                f"{self.out}: expected a numpy file to replace, found another kind of file; choose another output"
            )

    def commit_file(self) -> None:
        """Give the file, which is synced, its name; remove the journal."""
        with storage_errors(self.out):
            self._refuse_existing()
            self.content.rename(self.out)
            fsync_directory(self.out.parent)
        self.discard()


class ExternalDirectories:
    """Directories outside the output `out` that its `journal` records; each holds a file that names their output."""

    def __init__(self, journal: Journal, out: Path) -> None:
        self._journal, self._out = journal, out

    def record(self, what: str, folder: Path) -> None:
        """Record what comes: an undo removes what to ``make``, and an empty ``parent``; the end what to ``drop``."""
        key = f"{OUTSIDE}{what} {folder}"
        if self._journal.get(key) is None:
            self._journal.record(key)

    def record_replaced(self, keep: Iterable[Path]) -> None:
        """Record that the stripe files of the layout to be replaced are dropped, except those in `keep`."""
        try:
            external = open_manifest(self._out, "layout").external.values()
        except (FormatError, MissingError):
            return
        kept = {os.path.realpath(path) for path in keep}
        for file in external:
            folder = file.path.parent
            ours = re.fullmatch(rf"{re.escape(self._out.name)}\.[0-9a-f]{{12}}", folder.name)
            if ours and os.path.realpath(file.path) not in kept:
                self.record("drop", folder)

    def own(self, folder: Path) -> None:
        """Create a directory and write into it, durably, that it belongs to the output."""
        folder.mkdir(exist_ok=True)
        if not self.owns(folder):
            write_durably(folder / OWNER, os.fsencode(f"{self._out}\n"))
            fsync_directory(folder)
            fsync_directory(folder.parent)

    def owns(self, folder: Path) -> bool:
        """Return whether a directory belongs to the output."""
        try:
            return (folder / OWNER).read_bytes() == os.fsencode(f"{self._out}\n")
        except (FileNotFoundError, NotADirectoryError):
            return False

    def own_temporary(self, folder: Path) -> None:
        """Create a directory that the run needs while it works; remove earlier runs' directories with other options."""
        for other in self._recorded(_TEMPORARY):
            if other != folder:
                self._remove(other, whole=True)
        for missing in missing_folders(folder.parent):
            self.record("parent", missing)
        if folder not in self._recorded(_TEMPORARY):
            self._journal.record(f"{_TEMPORARY}{folder}")
        make_folders(folder.parent)
        self.own(folder)

    def clear(self, what: str) -> None:
        """Remove what was recorded to ``make``, or ``drop``, the innermost first, then what only the run needed.

        Those are temporary directories, and directories made for them, or for the output, that are empty.
        """
        for folder in reversed(self._recorded(f"{OUTSIDE}{what} ")):
            self._remove(folder)
        for folder in self._recorded(_TEMPORARY):
            self._remove(folder, whole=True)
        for folder in reversed(self._recorded(f"{OUTSIDE}parent ")):
            with suppress(OSError):  # something else came into it
                folder.rmdir()
                fsync_directory(folder.parent)

    def _recorded(self, prefix: str) -> list[Path]:
        return [Path(key.removeprefix(prefix)) for key in self._journal.keys(prefix)]

    def _remove(self, folder: Path, *, whole: bool = False) -> None:
        """Remove a directory and what the run wrote there; a user's own file stays, but with `whole`."""
        # A kill may come between the directory and the file in it that says whose it is.
        if folder.is_dir() and (self.owns(folder) or {file.name for file in folder.iterdir()} <= {OWNER}):
            for entry in sorted(folder.iterdir(), key=lambda entry: entry.name == OWNER):  # which is removed last
                if whole and entry.is_dir():  # a worker that was lost may still write there
                    shutil.rmtree(entry, ignore_errors=True)
                elif whole or entry.name in (OWNER, ".attempts") or _STRIPES.fullmatch(entry.name):
                    shutil.rmtree(entry) if entry.is_dir() else entry.unlink(missing_ok=True)
            with suppress(OSError):
                folder.rmdir()
            fsync_directory(folder.parent)


def _remove(path: Path) -> None:
    """Remove what is at `path`, the journal last: with it, the rest of a directory is known to be ours."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        for entry in path.iterdir():
            if entry.name != JOURNAL:
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        shutil.rmtree(path)


def exchange(first: Path, second: Path) -> bool:
    """Swap the names of two directories in one step; ``False`` where the system or the file system cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    here, swap = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if rename(here, os.fsencode(first), here, os.fsencode(second), swap) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code), str(first))
