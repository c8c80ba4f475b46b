"""Rank and world size of a training process, and its share of an epoch's batches."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

import numpy as np

from tiering.errors import InputError


@dataclass(frozen=True)
class ProcessRank:
    """Rank and world size of one of several processes that train together, as in ``torch.distributed``."""

    rank: int = 0
    """Number of the process, from 0 on."""
    world_size: int = 1
    """Number of processes."""

    def batches(self, count: int, drop_last: bool) -> list[int]:
        """Return this process's batches among the `count` of an epoch: every `world_size`-th.

        All processes get equally many. Where `count` is no multiple, the first batches come again at the end, as with
        torch's ``DistributedSampler``; with `drop_last` the last are left out instead.
        """
        own = count // self.world_size if drop_last else -(-count // self.world_size)
        return [(self.rank + k * self.world_size) % count for k in range(own)]


def find_rank(rank: int | None, world_size: int | None) -> ProcessRank:
    """Return the rank that the caller gives.

    By default that of torch's default process group, else of ``torchrun``'s environment, else of one process alone.
    """
    if (rank is None) != (world_size is None):
        raise InputError(f"rank, world_size: give both or none, found rank={rank!r}, world_size={world_size!r}")
    if rank is None or world_size is None:
        rank, world_size = _from_torch() or _from_environment() or (0, 1)
    for name, value in (("rank", rank), ("world_size", world_size)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise InputError(f"{name}: expected a whole number, found {value!r}")
    if not 0 <= rank < world_size:
        raise InputError(f"rank: expected 0..{world_size - 1} of world_size={world_size}, found {rank}")
    return ProcessRank(int(rank), int(world_size))


def _from_torch() -> tuple[int, int] | None:
    # A program with a process group has imported the package.
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def _from_environment() -> tuple[int, int] | None:
    rank, world_size = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    return (int(rank), int(world_size)) if rank.isdigit() and world_size.isdigit() else None
