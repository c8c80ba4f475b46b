"""Training processes: their ranks, and those of one machine that share tiers and the buffer of the ssd tier."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiering.errors import DeviceError, InputError
from tiering.loader.processes.peers import PeerGroup, find_group
from tiering.memory import Budget, parse_memory, proportional_memory

Key = tuple[int, int]  # number of an epoch, and how many times it was begun before


@dataclass(frozen=True)
class ProcessRank:
    """Rank and world size of one of several processes that train together, as in ``torch.distributed``."""

    rank: int = 0
    world_size: int = 1

    def batches(self, count: int, drop_last: bool) -> list[int]:
        """Return this process's batches among the `count` of an epoch, every `world_size`-th: as many for each process.

        Where `count` is no multiple, the first batches come again at the end; with `drop_last` the last are left out.
        """
        own = count // self.world_size if drop_last else -(-count // self.world_size)
        return [(self.rank + k * self.world_size) % count for k in range(own)]


def find_rank(rank: int | None, world_size: int | None) -> ProcessRank:
    """Return the rank given, else that of torch's default process group, ``torchrun``'s, or of one alone."""
    if (rank is None) != (world_size is None):
        raise InputError(f"rank, world_size: give both or none, found rank={rank!r}, world_size={world_size!r}")
    if rank is None or world_size is None:
        rank, world_size = 0, 1
        found = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
        if (dist := _initialized_torch()) is not None:
            rank, world_size = dist.get_rank(), dist.get_world_size()
        elif all(text.isdigit() for text in found):
            rank, world_size = map(int, found)
    for name, value in (("rank", rank), ("world_size", world_size)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise InputError(f"{name}: expected a whole number, found {value!r}")
    if not 0 <= rank < world_size:
        raise InputError(f"rank: expected 0..{world_size - 1} of world_size={world_size}, found {rank}")
    return ProcessRank(int(rank), int(world_size))


def _initialized_torch() -> Any:
    """Return ``torch.distributed`` if it has a process group, whose program has imported it; else ``None``."""
    dist = sys.modules.get("torch.distributed")
    return dist if dist is not None and dist.is_available() and dist.is_initialized() else None


def host_group(peers: Any, rank: ProcessRank) -> PeerGroup | None:
    """Return the processes of this machine that share host memory with a loader of `rank`, by the option `peers`.

    ``None`` if it is alone here, was given another rank than ``torch.distributed`` has, or that is not initialised. All
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
                        f"{name}: expected all ranks of this machine to make the same loader, found {mine!r} by rank "
                        f"{rank.rank} and {theirs!r} by rank {other['rank']}; with peers='off' each holds its own rows"
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

    def interleaved(self, count: int, drop_last: bool) -> list[int]:
        """Return the batches of all processes in the order in which they come: the first of each, the second, ..."""
        shares = [rank.batches(count, drop_last) for rank in self._ranks]
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
        return self.ended(0, "or has given up its loader")

    def ended(self, number: int, when: str) -> DeviceError:
        """Return the error for a process that has ended."""
        what = ", which reads the ssd tier for the ranks of this machine," if number == 0 else ""
        return DeviceError(f"{self.name(number)}{what} has ended {when}; start all processes again")
