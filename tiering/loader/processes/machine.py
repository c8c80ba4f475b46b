"""Training processes: ranks, the processes of one machine that make a loader, and connections between two of these."""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from tiering.errors import DeviceError, InputError
from tiering.loader.processes.peers import PeerGroup, find_group
from tiering.memory import Budget, parse_memory, proportional_memory
from tiering.sampling.plan import whole_number

_CHECK_SECONDS = 1.0  # seconds after which a wait checks that the other end is alive
Key = tuple[int, int]  # number of an epoch, and how many times it was begun before


@dataclass(frozen=True)
class ProcessRank:
    """Rank and world size of one of several processes that train together, as in ``torch.distributed``."""

    rank: int = 0
    world_size: int = 1

    def batches(self, count: int) -> range:
        """Return the numbers of this process's batches: one of each round of `world_size` among the epoch's `count`."""
        return range(self.rank, count, self.world_size)

    def resumed_batches(self, count: int, last: int) -> list[int]:
        """Return the numbers of this process's batches: the `last` ones, at least one, then those before."""
        return [*(share := self.batches(count))[-last:], *share[:-last]]


def find_rank(rank: int | None, world_size: int | None) -> ProcessRank:
    """Return the given rank, else the rank in torch's default process group or in ``torchrun``, else rank 0 of 1."""
    if (rank is None) != (world_size is None):
        raise InputError(f"rank, world_size: give both or neither, found rank={rank!r}, world_size={world_size!r}")
    if rank is None or world_size is None:
        rank, world_size = 0, 1
        found = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
        if (dist := _initialized_torch()) is not None:
            rank, world_size = dist.get_rank(), dist.get_world_size()
        elif all(text.isdigit() for text in found):
            rank, world_size = map(int, found)
    size = whole_number(world_size, 1, 2**31, "world_size", " of 1 or more")
    return ProcessRank(whole_number(rank, 0, size, "rank", f" of 0..{size - 1}, as world_size is {size}"), size)


def _initialized_torch() -> Any:
    """Return ``torch.distributed`` if it has a process group, whose program has imported it; else ``None``."""
    dist = sys.modules.get("torch.distributed")
    return dist if dist is not None and dist.is_available() and dist.is_initialized() else None


def host_group(peers: Any, rank: ProcessRank) -> PeerGroup | None:
    """Return the processes of this machine that share host memory with a loader of `rank`, by the option `peers`.

    ``None`` if it is alone here, was given another rank than ``torch.distributed`` has, or that is not initialized. All
    processes call this together the first time.
    """
    if rank.world_size == 1 or peers is None or peers == "off":
        return None
    group: PeerGroup | None
    if isinstance(peers, PeerGroup):
        group = peers
    else:
        if (dist := _initialized_torch()) is None:
            return None
        world = peers if isinstance(peers, dist.ProcessGroup) else None
        if (dist.get_rank(world), dist.get_world_size(world)) != (rank.rank, rank.world_size):
            return None
        group = find_group(peers)
    return group if group is not None and group.size > 1 and group.pid == os.getpid() else None


class MachineProcesses:
    """The processes that make one loader on this machine, by number in the group; process 0 owns the buffer."""

    def __init__(self, group: PeerGroup, rank: ProcessRank, loader: dict[str, Any], needs: dict[str, int]) -> None:
        """Wait for the processes that make the same `loader` (JSON types by name); `needs`: bytes of this one."""
        same = {"world_size": rank.world_size, **loader}
        own = {"rank": rank.rank, "loader": same, "needs": needs, "resident": proportional_memory()}
        self.group, self.size = group, group.size
        self._facts = group.exchange(group.numbered("loader"), own)
        for other in self._facts:
            for name, mine in same.items():
                theirs = other["loader"].get(name)
                if mine != theirs:
                    raise InputError(
                        f"{name}: all processes of this machine must make the same loader, found {mine!r} at rank "
                        f"{rank.rank} and {theirs!r} at rank {other['rank']}; peers='off' gives each its own rows"
                    )
        self._ranks = [ProcessRank(int(fact["rank"]), rank.world_size) for fact in self._facts]

    def needs(self, name: str) -> list[int]:
        """Return the bytes that each process needs for something."""
        return [int(fact["needs"][name]) for fact in self._facts]

    def budget(self, memory: Any) -> Budget:
        """Return the budget of all processes together; shared memory counts once. A `Budget` stays as it is."""
        return parse_memory(memory, sum(int(fact["resident"]) for fact in self._facts))

    def ask_owner(self, value: Any) -> Any:
        """Return the owner's value; all processes call this together."""
        return self.group.exchange(self.group.numbered("owner"), value)[0]

    def interleaved(self, count: int, last: int) -> list[int]:
        """Return the batches of all processes in the order in which they come: the first of each, the second, ...

        An epoch that begins in its middle has the `last` batches of each process; those before follow.
        """
        shares = [rank.resumed_batches(count, last) for rank in self._ranks]
        return [batch for turn in zip(*shares, strict=True) for batch in turn]

    def name(self, number: int) -> str:
        """Return the name of a process, for people."""
        return f"rank {self._ranks[number].rank} (process {self.group.process(number).pid})"

    def expect_alive(self, number: int) -> None:
        """Raise a `DeviceError` if a process has ended."""
        if not self.group.process(number).alive():
            raise self.ended(number, "")

    def owner_ended(self) -> DeviceError:
        """Return the error for an owner that does not answer."""
        return self.ended(0, "or has closed its loader")

    def ended(self, number: int, when: str) -> DeviceError:
        """Return the error for a process that has ended."""
        what = ", which reads the ssd tier for the processes of this machine," if number == 0 else ""
        return DeviceError(f"{self.name(number)}{what} has ended {when}; start all processes again")


class Channel:
    """One end of a Unix socket for messages of a JSON object and bytes. Several threads may send; one receives."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket, self._sending = connection, threading.Lock()
        self._messages = Connection(os.dup(connection.fileno()))

    @property
    def peer(self) -> int:
        """Process id of the other end, as the kernel knows it."""
        credentials = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", credentials)[0])

    def send(self, header: dict[str, Any], payload: bytes | memoryview = b"") -> None:
        """Send a message; `OSError` if the other end is gone."""
        with self._sending:
            self._messages.send_bytes(json.dumps(header).encode())
            self._messages.send_bytes(payload)

    def send_if_open(self, header: dict[str, Any]) -> None:
        """Send a message, unless the other end is gone."""
        with suppress(OSError):
            self.send(header)

    def receive(self, check: Callable[[], None]) -> tuple[dict[str, Any], bytes]:
        """Return the next message; `EOFError` if the other end is gone. `check`, called each second, may raise."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while not poll.poll(_CHECK_SECONDS * 1000):
            check()
        try:
            return json.loads(self._messages.recv_bytes()), self._messages.recv_bytes()
        except OSError as error:
            raise EOFError from error

    def shut(self, how: int = socket.SHUT_RDWR) -> None:
        """End all waits of both ends, in any thread."""
        with suppress(OSError):
            self._socket.shutdown(how)

    def close(self) -> None:
        """Close the descriptors; the channel cannot be used any more."""
        self._messages.close()
        self._socket.close()
