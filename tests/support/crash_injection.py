"""Runs commands in processes that die, fail or are interrupted at a chosen call of the operating system.

Started as a server (``python crash_injection.py``) that has everything imported and forks a process for each command,
so that a trial costs milliseconds. It reads one JSON document per line and answers with one:

``argv``     arguments of `tiering`
``program``  another than `tiering`, see `PROGRAMS`
``variant``  what is made small, see `VARIANTS`
``fault``    ``none``; ``kill`` (SIGKILL), ``interrupt`` (SIGINT) or ``error`` (EIO, then always) at call number ``at``;
             ``delay``: SIGKILL from outside after ``at`` seconds. Native calls, too, with the library of `calls`:
             ``refuse`` (``errno``, once) and ``record`` (into ``log``), on what lies ``below`` some directories
``where``    of a kill: ``before`` the call, ``after`` it, or ``half`` way through where the call writes

``cwd``      the working directory

The answer has ``code`` (negative: the signal), ``calls`` (their names, in order), ``last`` (the call at which the fault
struck), ``out`` and ``err``.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import mmap
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from calls import arm, counted

MOST_SECONDS = 300
"""Of a processor: a command that never ends is killed."""
BLOCK_BYTES = 4096
"""Of files and their checksums, instead of 64 MiB."""
CALLS = (
    "pwrite", "fsync", "fdatasync", "rename", "replace", "link", "unlink", "rmdir", "mkdir", "posix_fallocate",
    "truncate", "ftruncate",
)  # fmt: skip
NATIVE = ("refuse", "record")
NAMES = (*CALLS, "write", "exchange", "_append")
MOST_CALLS = 1 << 16


class CrashInjection:
    """The server, seen from a test; a context manager.

    Parameters
    ----------
    library
        As `calls.build` makes it.
    """

    def __init__(self, library: Path | None = None) -> None:
        self._environment = {**os.environ, **({} if library is None else {"LD_PRELOAD": str(library)})}

    def __enter__(self) -> CrashInjection:
        self._server = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self._environment
        )
        return self

    def run(self, *argv: object, fault: str = "none", **options: Any) -> dict[str, Any]:
        """Run one command."""
        assert self._server.stdin is not None and self._server.stdout is not None
        order = {"argv": [str(argument) for argument in argv], "fault": fault, **options}
        self._server.stdin.write(json.dumps(order) + "\n")
        self._server.stdin.flush()
        answer = self._server.stdout.readline()
        assert answer, "the server of processes that crash ended"
        found: dict[str, Any] = json.loads(answer)
        return found

    def __exit__(self, *error: object) -> None:
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.close()
        self._server.stdout.close()
        self._server.wait()


def _serve() -> None:
    import tiering.artifacts.checksum

    tiering.artifacts.checksum.BLOCK_BYTES = BLOCK_BYTES  # before anybody copies it
    import tqdm  # noqa: F401

    import tiering.datasets
    import tiering.graph
    import tiering.layout
    import tiering.pipeline.chain
    import tiering.reorder
    import tiering.scores
    from tiering.cli.main import main

    load_what_commands_load(main)
    for line in sys.stdin:
        print(json.dumps(_trial(json.loads(line))), flush=True)


def load_what_commands_load(main: Callable[[list[str]], int]) -> None:
    """Load what commands load when they run: a child tells which modules; all processes after it have them."""
    read, write = os.pipe()
    if os.fork() == 0:
        known = set(sys.modules)
        with tempfile.TemporaryDirectory() as folder, Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
            for command in (
                "generate @/data --nodes 40 --edges 300 --dim 4",
                "import @/data --out @/graph",
                "score @/graph --out @/scores --method wrpr",
                "reorder @/graph --scores @/scores --out @/reordered",
                "layout @/reordered --out @/layout --gpu 15% --ssd @/ssd",
                "import @/data --out @/graph",  # how an error is said
            ):
                main(command.replace("@", folder).split())
        os.write(write, "\n".join(set(sys.modules) - known).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as names:
        for name in sorted(names.read().split()):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    os.wait()


def _trial(order: dict[str, Any]) -> dict[str, Any]:
    if order.get("program") == "train":
        import torch  # noqa: F401

        import tiering.loader.loader  # noqa: F401
    shared = mmap.mmap(-1, 16 + MOST_CALLS)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            _live(order, shared, out.fileno(), err.fileno())
        if order["fault"] == "delay":
            time.sleep(order["at"])
            os.kill(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    if order["fault"] in NATIVE:
        return {"code": code, "out": texts[0], "err": texts[1], **counted(shared[:])}
    count, struck = struct.unpack_from("qq", shared)
    calls = [NAMES[each] for each in shared[16 : 16 + count]]
    return {"code": code, "calls": calls, "last": calls[struck - 1] if struck else "", "out": texts[0], "err": texts[1]}


def _live(order: dict[str, Any], shared: mmap.mmap, out: int, err: int) -> None:
    code = 99
    try:
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.chdir(order.get("cwd", "."))
        VARIANTS[order.get("variant", "plain")]()
        if order["fault"] in NATIVE:
            _no_rings()
            arm(order, shared)
        else:
            _Fault(order, shared).arm()
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
        code = PROGRAMS[order.get("program", "tiering")](order["argv"])
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class _Fault:
    """Counts calls, and strikes at one of them."""

    def __init__(self, order: dict[str, Any], shared: mmap.mmap) -> None:
        self._kind, self._at = order["fault"], order.get("at", -1)
        self._where = order.get("where", "before")
        self._shared, self._lock, self._count = shared, threading.Lock(), 0

    def arm(self) -> None:
        from tiering.artifacts import atomic
        from tiering.artifacts.file_writer import FileWriter
        from tiering.artifacts.journal import Journal

        for name in CALLS:
            self._wrap(os, name, _half_pwrite if name == "pwrite" else None)
        self._wrap(FileWriter, "write", None)
        self._wrap(atomic, "exchange", None)
        self._wrap(Journal, "_append", _half_line)

    def _wrap(self, owner: Any, name: str, half: Callable[..., object] | None) -> None:
        plain = getattr(owner, name)

        def call(*arguments: Any, **options: Any) -> Any:
            with self._lock:
                number, self._count = self._count, self._count + 1
                struct.pack_into("q", self._shared, 0, self._count)
                self._shared[16 + number] = NAMES.index(name)
                if number == self._at and self._kind not in ("none", "delay"):
                    struct.pack_into("q", self._shared, 8, self._count)
            if self._kind == "error" and number >= self._at:
                raise OSError(5, "Input/output error")
            if number == self._at and self._kind == "interrupt":
                os.kill(os.getpid(), signal.SIGINT)
            elif number == self._at and self._kind == "kill":
                if self._where == "after":
                    plain(*arguments, **options)
                elif self._where == "half" and half is not None:
                    half(plain, *arguments)
                os.kill(os.getpid(), signal.SIGKILL)
            return plain(*arguments, **options)

        setattr(owner, name, call)


def _half_pwrite(plain: Callable[..., object], fd: int, data: Any, offset: int) -> None:
    half = len(data) // 2 // 4096 * 4096
    if half:
        plain(fd, data[:half], offset)


def _half_line(plain: Callable[..., object], journal: Any, document: dict[str, Any]) -> None:
    line = json.dumps(document).encode()
    journal._file.write(line[: len(line) // 2])


def _no_rings() -> None:
    """Reads by calls that can be seen."""
    from tiering import native

    native.uring_unavailable = lambda: "not seen by the library"


def _small_rows() -> None:
    from tiering.reorder import table_reader

    table_reader.SIZES = table_reader.PieceSizes(chunk=8192)


def _windows() -> None:
    """No relation fits in memory where it is relabeled: it is made window by window."""
    _small_rows()
    _room(0)


def _buckets() -> None:
    """Relations are made by buckets: half of the records lie in a scratch file, large buckets are scattered twice."""
    from tiering.graph.build import build_graph
    from tiering.graph.plan import SortSizes

    _small_rows()
    build_graph.__kwdefaults__["sizes"] = SortSizes(
        min_chunk=200, max_chunk=200, bucket_edges=50, run_records=1, columns=64, resident=0.5
    )


def _room(window: int) -> None:
    """A budget that always leaves so much for a window."""
    from tiering.artifacts import checksum
    from tiering.memory import Budget
    from tiering.reorder import table_reader

    checksum.BLOCK_BYTES = 4096
    table_reader.SIZES = replace(table_reader.SIZES, free=0)
    Budget.left = lambda self: window + 4 * table_reader.SIZES.chunk  # type: ignore[method-assign]
    Budget.require = lambda self, needed, what: None  # type: ignore[method-assign]


def _passes() -> None:
    """No table fits in memory: it is read two or three times."""
    _small_rows()
    _room(60_000)


def _scatter() -> None:
    """No table fits in memory: its rows go to scratch files."""
    _small_rows()
    _room(20_000)


def _bounded() -> None:
    """Little memory, small files, little time: what hangs or grows without end is found out."""
    for limit, size in ((resource.RLIMIT_AS, 4 << 30), (resource.RLIMIT_FSIZE, 64 << 20)):
        resource.setrlimit(limit, (size, size))
    signal.alarm(30)


VARIANTS: dict[str, Callable[[], None]] = {
    "plain": _small_rows, "windows": _windows, "buckets": _buckets, "passes": _passes, "scatter": _scatter,
    "bounded": _bounded,
}  # fmt: skip


def _tiering(argv: list[str]) -> int:
    from tiering.cli.main import main

    return main(argv)


def _train(argv: list[str]) -> int:
    """Go through an epoch of a layout; `argv` are its directory and the loader's options as JSON."""
    from tiering.errors import TieringError
    from tiering.loader.layout import open_layout

    try:
        with open_layout(argv[0]) as layout:
            for _ in layout.loader("train", workers=2, **json.loads(argv[1])):
                pass
    except TieringError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


PROGRAMS: dict[str, Callable[[list[str]], int]] = {"tiering": _tiering, "train": _train}


def clear(folder: Path) -> None:
    """Remove a directory and make it anew."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


if __name__ == "__main__":
    _serve()
