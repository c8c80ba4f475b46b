"""Processes of one machine that share the peer tier: each fills the memory of its GPU, and reads that of the others.

They meet in a directory: each writes what the others need, with its process id and start time, so that a process that
ended, or a file left by an earlier run, is recognised. Nothing here waits for a process that is gone.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

from tiering import cuda
from tiering.errors import CapabilityError, DeviceError, InputError
from tiering.loader.gpu.device import Device
from tiering.loader.gpu.device_file import device_file
from tiering.loader.process import Process
from tiering.loader.warn import warn_once

_POLL_SECONDS = 0.005


_occasions: Counter[tuple[Path, str]] = Counter()
_lock = threading.Lock()


@dataclass
class PeerGroup:
    """Processes 0 .. size - 1 of one machine, one for each GPU of the peer tier.

    Parameters
    ----------
    rank, size
        Number of this process, and how many there are.
    directory
        Where they meet: the same for all, on a file system of this machine, of this run alone.
    timeout
        Seconds to wait for the others.

    Raises
    ------
    InputError
        If `rank` is none of 0 .. size - 1.
    """

    rank: int
    size: int
    directory: Path
    timeout: float = 120.0
    _members: dict[int, Process] = field(default_factory=dict, repr=False)
    _mine: list[str] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.size:
            raise InputError(f"peers: expected a rank of 0 to {self.size - 1}, found {self.rank}")
        self.directory = Path(self.directory)
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> PeerGroup | None:
        """The group that ``torchrun`` tells its processes of; ``None`` if this process runs alone.

        Raises
        ------
        InputError
            If LOCAL_RANK or LOCAL_WORLD_SIZE is no number.
        """
        try:
            rank, size = int(environment.get("LOCAL_RANK", "0")), int(environment.get("LOCAL_WORLD_SIZE", "1"))
        except ValueError:
            raise InputError("LOCAL_RANK, LOCAL_WORLD_SIZE: expected whole numbers, as torchrun sets them") from None
        if size == 1:
            return None
        names = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT")
        run = "-".join(environment[name] for name in names if environment.get(name))
        folder = re.sub(r"[^\w.-]", "_", f"tiering-{os.getuid()}-{run}-{os.getppid()}")
        shared = Path("/dev/shm")
        return cls(rank, size, (shared if shared.is_dir() else Path(tempfile.gettempdir())) / folder)

    def require_size(self, size: int, what: str) -> None:
        """Raise an `InputError` unless the peer tier was made for so many GPUs."""
        if size != self.size:
            raise InputError(
                f"{what}: the peer tier is made for {size} GPUs, and {self.size} processes share it; start {size}, or "
                f"make the layout with --peer {self.size}xSIZE"
            )

    def occasion(self, topic: str) -> str:
        """A name for `exchange` that was not used before: every process comes to the same if all ask in one order."""
        with _lock:
            number = _occasions[self.directory, topic]
            _occasions[self.directory, topic] += 1
        return f"{topic}-{number}"

    def exchange(self, topic: str, payload: Any) -> list[Any]:
        """Give something to all others and get what they give.

        Parameters
        ----------
        topic
            Name of the occasion; used once.
        payload
            JSON types.

        Returns
        -------
        list
            By rank, this process included.

        Raises
        ------
        DeviceError
            If a process has ended, or does not come within `timeout`.
        """
        self._write(topic, payload)
        deadline = time.monotonic() + self.timeout
        return [self._read(topic, rank, deadline) for rank in range(self.size)]

    def check(self) -> None:
        """Raise a `DeviceError` if a process of the group has ended: the memory of its GPU is gone."""
        for rank, member in self._members.items():
            if not member.alive():
                raise DeviceError(
                    f"peer {rank} (process {member.pid}) has ended, and rows in the memory of its GPU with it; "
                    "start all processes again"
                )

    def share_memory(
        self, topic: str, path: Path, nbytes: int, device: Device, what: str
    ) -> list[cuda.DeviceMemory | cuda.PeerMemory | None]:
        """Fill this process's share, and open those of the others.

        Returns
        -------
        list
            By rank: memory that this process's GPU reads; ``None`` where a share is empty or cannot be reached.
        """
        own = device_file(path, nbytes, device.index, f"{what}: peer tier", shared=True) if nbytes else None
        with cuda.device_errors(what):
            handle = own.share().hex() if own is not None else ""
        handles = self.exchange(topic, handle)
        return [
            own if rank == self.rank else open_memory(bytes.fromhex(each), device, f"rows of peer {rank}")
            for rank, each in enumerate(handles)
        ]

    def leave(self, topic: str) -> bool:
        """Tell the others that this process no longer reads their memory, and wait until they say so or have ended.

        Returns
        -------
        bool
            Whether memory that was shared may be given back; ``False`` if somebody did not answer in time.
        """
        self._write(topic, None)
        deadline = time.monotonic() + self.timeout
        for rank, member in self._members.items():
            while not (self._path(topic, rank).exists() or not member.alive()):
                if time.monotonic() > deadline:
                    return False
                time.sleep(_POLL_SECONDS)
        return True

    def _sweep(self) -> None:
        """Remove what this process wrote; the directory goes with the last. Not before the end: others still look."""
        for name in self._mine:
            (self.directory / name).unlink(missing_ok=True)
        self._mine.clear()
        try:
            self.directory.rmdir()
        except OSError:
            return  # others are still there

    def _path(self, topic: str, rank: int) -> Path:
        return self.directory / f"{topic}.{rank}"

    def _write(self, topic: str, payload: Any) -> None:
        me = Process.this()
        target = self._path(topic, self.rank)
        draft = target.with_name(f"{target.name}.{me.pid}.new")
        draft.write_text(json.dumps({"pid": me.pid, "started": me.started, "payload": payload}))
        draft.replace(target)
        if not self._mine:
            Finalize(None, self._sweep, exitpriority=0)  # unlike atexit, also in processes of multiprocessing
        self._mine.append(target.name)

    def _read(self, topic: str, rank: int, deadline: float) -> Any:
        path = self._path(topic, rank)
        while True:
            try:
                found = json.loads(path.read_text())
            except FileNotFoundError:
                found = None
            if found is not None:
                member = Process(found["pid"], found["started"])
                if member.alive():  # else left by an earlier run
                    if rank != self.rank:
                        self._members[rank] = member
                    return found["payload"]
            self.check()
            if time.monotonic() > deadline:
                raise DeviceError(
                    f"peer {rank} of {self.size} did not come within {self.timeout:g} s ({path}); are all processes "
                    "started, on this machine, with the same layout?"
                )
            time.sleep(_POLL_SECONDS)


def open_memory(handle: bytes, device: Device, whose: str) -> cuda.PeerMemory | None:
    """Memory of another process; ``None`` if it is empty, or this GPU cannot reach it: said once."""
    if not handle:
        return None
    try:
        with cuda.device_errors(whose):
            return cuda.PeerMemory(device.index, handle)
    except DeviceError as error:
        warn_once(f"{whose} are read from host memory: {error}")
        return None


def find_group(peers: PeerGroup | str | None) -> PeerGroup | None:
    """Resolve the `peers` argument: ``auto``, ``off`` or a group.

    Raises
    ------
    InputError
        If it is none of these.
    """
    if peers is None or isinstance(peers, PeerGroup):
        return peers
    if peers not in ("auto", "off"):
        raise InputError(f"peers: expected auto, off or a PeerGroup, found {peers!r}")
    if peers == "off":
        return None
    if not Path("/proc/self/stat").exists():
        raise CapabilityError("peers='auto': needs /proc, to see which processes run; use peers='off'")
    return PeerGroup.from_environment()
