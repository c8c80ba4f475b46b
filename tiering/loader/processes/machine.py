"""The processes of one machine that share tiers and the buffer of the ssd tier, and what they agree upon."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiering.errors import DeviceError, InputError
from tiering.loader.processes.peers import PeerGroup, find_group
from tiering.loader.processes.rank import ProcessRank
from tiering.memory import Budget, own_memory, parse_memory

_MAPPING = re.compile(r"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ (\d+) +/memfd:tiering-")


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
        dist = sys.modules.get("torch.distributed")
        if dist is None or not dist.is_available() or not dist.is_initialized():
            return None
        world = peers if isinstance(peers, dist.ProcessGroup) else None
        if (dist.get_rank(world), dist.get_world_size(world)) != (rank.rank, rank.world_size):
            return None
        group = find_group(peers)
    return group if group is not None and group.size > 1 and group.pid == os.getpid() else None


@dataclass(frozen=True)
class MachineProcesses:
    """The processes that make one loader on this machine, by number in the group, and what each sent to `meet`."""

    group: PeerGroup
    ranks: list[ProcessRank]
    facts: list[dict[str, Any]]

    @classmethod
    def meet(
        cls, group: PeerGroup, rank: ProcessRank, loader: Mapping[str, Any], needs: Mapping[str, int]
    ) -> MachineProcesses:
        """Wait for the other processes that make this loader.

        `loader`: what must be the same for all of them, JSON types by name. `needs`: bytes that this process takes.
        """
        mappings, same = _shared_mappings(), {"world_size": rank.world_size, **loader}
        own = {
            "rank": rank.rank, "loader": same, "needs": dict(needs),
            "private": own_memory() - sum(resident for _, resident in mappings.values()),
            "shared": {inode: size for inode, (size, _) in mappings.items()},
        }  # fmt: skip
        facts = group.exchange(group.numbered("loader"), own)
        for other in facts:
            for name, mine in same.items():
                theirs = other["loader"].get(name)
                if mine != theirs:
                    raise InputError(
                        f"{name}: expected all ranks of this machine to make the same loader, found {mine!r} by rank "
                        f"{rank.rank} and {theirs!r} by rank {other['rank']}; with peers='off' each holds its own rows"
                    )
        return cls(group, [ProcessRank(int(fact["rank"]), rank.world_size) for fact in facts], facts)

    @property
    def size(self) -> int:
        """Number of processes."""
        return self.group.size

    @property
    def own(self) -> int:
        """Number of this process in the group; process 0 owns the buffer."""
        return self.group.rank

    def total(self, need: str) -> int:
        """Return the bytes of a need of all processes together."""
        return sum(int(fact["needs"][need]) for fact in self.facts)

    def most(self, need: str) -> int:
        """Return the bytes of a need of the process that has most of it."""
        return max(int(fact["needs"][need]) for fact in self.facts)

    def budget(self, memory: Any) -> Budget:
        """Return the budget of all processes together; shared memory counts once. A `Budget` stays as it is."""
        shared = {inode: size for fact in self.facts for inode, size in fact["shared"].items()}
        return parse_memory(memory, sum(int(fact["private"]) for fact in self.facts) + sum(shared.values()))

    def ask_owner(self, value: Any) -> Any:
        """Return the owner's value; all processes call this together."""
        return self.group.exchange(self.group.numbered("owner"), value)[0]

    def interleaved(self, count: int, drop_last: bool) -> list[int]:
        """Return the batches of all processes in the order in which they come: the first of each, the second, ..."""
        shares = [rank.batches(count, drop_last) for rank in self.ranks]
        return [batch for turn in zip(*shares, strict=True) for batch in turn]

    def name(self, number: int) -> str:
        """Return the name of a process, for people."""
        return f"rank {self.ranks[number].rank} (process {self.group.process(number).pid})"

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


def _shared_mappings() -> dict[str, tuple[int, int]]:
    """Return memory that processes share, by inode: its size, and the bytes that count as this process's."""
    mappings: dict[str, tuple[int, int]] = {}
    inode = ""
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, rest = line.partition(":")
        if match := _MAPPING.match(line):
            inode = match[1]
            mappings.setdefault(inode, (0, 0))
        elif " " in name:  # another mapping: names of its fields have no blanks
            inode = ""
        elif inode and name in ("Size", "Rss"):
            size, resident = mappings[inode]
            nbytes = int(rest.split()[0]) * 1024
            mappings[inode] = (max(size, nbytes), resident) if name == "Size" else (size, resident + nbytes)
    return mappings
