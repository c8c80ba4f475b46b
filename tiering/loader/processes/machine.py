"""The ranks of one machine that hold tiers and the buffer of the ssd tier together, and what they agree upon."""

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
    """The processes of this machine that hold host memory together with a loader of `rank`, by the option `peers`.

    ``None`` where it is alone here, was given another number than ``torch.distributed`` knows, or that is not
    initialised. All processes ask together the first time.
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
    """The ranks that make one loader on this machine, in the order of their numbers in the group."""

    group: PeerGroup
    ranks: list[ProcessRank]
    facts: list[dict[str, Any]]
    """What each said of itself when they met; see `meet`."""

    @classmethod
    def meet(
        cls, group: PeerGroup, rank: ProcessRank, loader: Mapping[str, Any], needs: Mapping[str, int]
    ) -> MachineProcesses:
        """Wait for the other ranks that make this loader.

        `loader`: what has to be the same for all of them, JSON types by name. `needs`: bytes that this rank takes.
        """
        shared = {inode: size for inode, (size, _) in _shared_mappings().items()}
        private = own_memory() - sum(held for _, held in _shared_mappings().values())
        told = {
            "rank": rank.rank, "world_size": rank.world_size, "loader": dict(loader), "needs": dict(needs),
            "private": private, "shared": shared,
        }  # fmt: skip
        facts = group.exchange(group.numbered("loader"), told)
        for other in facts:
            for name in ("world_size", *loader):
                mine = told[name] if name == "world_size" else loader[name]
                theirs = other[name] if name == "world_size" else other["loader"].get(name)
                if mine != theirs:
                    raise InputError(
                        f"{name}: expected all ranks of this machine to make the same loader, found {mine!r} by rank "
                        f"{rank.rank} and {theirs!r} by rank {other['rank']}; with peers='off' each holds its own rows"
                    )
        return cls(group, [ProcessRank(int(fact["rank"]), rank.world_size) for fact in facts], facts)

    @property
    def size(self) -> int:
        """How many there are."""
        return self.group.size

    @property
    def own(self) -> int:
        """Number of this process in the group; 0 owns the buffer."""
        return self.group.rank

    def total(self, need: str) -> int:
        """Bytes of a need of all ranks together."""
        return sum(int(fact["needs"][need]) for fact in self.facts)

    def most(self, need: str) -> int:
        """Bytes of a need of the rank that has most of it."""
        return max(int(fact["needs"][need]) for fact in self.facts)

    def budget(self, memory: Any) -> Budget:
        """What all ranks together may hold; memory that they share counts once. A `Budget` is taken as it is."""
        shared = {inode: size for fact in self.facts for inode, size in fact["shared"].items()}
        return parse_memory(memory, sum(int(fact["private"]) for fact in self.facts) + sum(shared.values()))

    def told_by_owner(self, value: Any) -> Any:
        """What the owner gives here; all ranks call this together."""
        return self.group.exchange(self.group.numbered("owner"), value)[0]

    def interleaved(self, count: int, drop_last: bool) -> list[int]:
        """Numbers of the batches of all ranks, in the order in which they come: the first of each, the second, .."""
        shares = [rank.batches(count, drop_last) for rank in self.ranks]
        return [batch for turn in zip(*shares, strict=True) for batch in turn]

    def name(self, member: int) -> str:
        """A rank, for people."""
        return f"rank {self.ranks[member].rank} (process {self.group.process(member).pid})"

    def is_alive(self, member: int) -> bool:
        """Whether a rank's process still runs."""
        return self.group.process(member).alive()

    def ended(self, member: int, when: str) -> DeviceError:
        """What to say where a rank's process has ended."""
        what = ", which reads the ssd tier for the ranks of this machine," if member == 0 else ""
        return DeviceError(f"{self.name(member)}{what} has ended {when}; start all processes again")


def _shared_mappings() -> dict[str, tuple[int, int]]:
    """Memory that processes share, by inode: its size, and bytes that count as held by this process."""
    found: dict[str, tuple[int, int]] = {}
    inode = ""
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, rest = line.partition(":")
        if match := _MAPPING.match(line):
            inode = match[1]
            found.setdefault(inode, (0, 0))
        elif " " in name:  # another mapping: names of its fields have no blanks
            inode = ""
        elif inode and name in ("Size", "Rss"):
            size, held = found[inode]
            nbytes = int(rest.split()[0]) * 1024
            found[inode] = (max(size, nbytes), held) if name == "Size" else (size, held + nbytes)
    return found
