"""Sizes of tiers where the user gives none: what the machine has room for, with the reason of each number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tiering.errors import InputError
from tiering.layout.tiers import Capacities
from tiering.text.description import Table
from tiering.text.units import Size, format_bytes

_STEPS = 5  # binary digits of a chosen size: what is free differs from run to run, and a stopped run goes on


@dataclass(frozen=True)
class TierRoom:
    """Memory of a machine for feature rows, in bytes, after what training takes."""

    gpu: int | None  # of each GPU; ``None`` without one
    cpu: int  # where all rows lie in memory
    cpu_and_ssd: int  # where rows are read ahead from SSD, too
    gpu_reason: str = ""
    cpu_reason: str = ""
    ssd_reason: str = ""


@dataclass(frozen=True)
class ChosenSizes:
    """Sizes of all tiers, and why."""

    capacities: Capacities
    rows: Sequence[tuple[str, str, str]]  # tier, size, reason
    bytes: dict[str, int]  # by tier that was chosen

    @property
    def table(self) -> Table:
        """The table of the sizes and their reasons."""
        return Table("Sizes chosen for this machine", ("tier", "rows", "because"), self.rows, left=3)


def choose_sizes(
    asked: Capacities, automatic: Sequence[str], room: TierRoom, total: int, lists: int, ssd: int
) -> ChosenSizes:
    """Choose the `automatic` tiers, ``gpu`` and ``cpu``, for `total` bytes of rows, hottest tier first.

    `lists`: bytes of adjacency lists that share the gpu tier. `ssd`: number of directories for the rest.

    Raises
    ------
    InputError
        If rows are left over and there is no directory for them.
    """
    rows, chosen, rest, found = list[tuple[str, str, str]](), dict[str, int](), total, asked
    if "gpu" in automatic and room.gpu is not None:
        size = total + lists if room.gpu >= total + lists else _round_down(room.gpu)
        found = replace(found, gpu=Size("auto") if size == total + lists else _size(size))
        chosen["gpu"] = size
        rows.append(("gpu", format_bytes(size), room.gpu_reason))
    elif "gpu" in automatic:
        rows.append(("gpu", "none", room.gpu_reason))
    elif asked.gpu is not None:
        rows.append(("gpu", format_bytes(asked.gpu.of(total)), "as asked"))
    if found.gpu is not None:
        rest -= min(rest, found.gpu.of(total) if found.gpu.auto else max(0, found.gpu.of(total) - lists))
    if asked.peer is not None:
        shared = min(rest, asked.num_peers * asked.peer.of(total))
        rest -= shared
        rows.append(("peer", format_bytes(shared), "as asked"))
    if "cpu" not in automatic:
        return ChosenSizes(found, rows, chosen)
    if rest <= room.cpu:
        rows.append(("cpu", format_bytes(rest), f"all {'other ' * bool(rows[1:] or chosen)}rows: {room.cpu_reason}"))
        found = replace(found, cpu=Size("auto"), ssd=False)
        if ssd:
            rows.append(("ssd", "none", "all rows lie in memory, and the directories stay empty"))
        return ChosenSizes(found, rows, {**chosen, "cpu": rest})
    if not ssd:
        raise InputError(
            f"{format_bytes(rest - room.cpu)} of {format_bytes(total)} feature data find no room in memory "
            f"({room.cpu_reason}); give --ssd DIR for them, or --cpu 100% to lay out all for a machine with more memory"
        )
    size = min(_round_down(room.cpu_and_ssd), rest)
    found = replace(found, cpu=_size(size))
    rows.append(("cpu", format_bytes(size), room.ssd_reason))
    rows.append(("ssd", format_bytes(rest - size), f"the rest, in {ssd} director{'y' if ssd == 1 else 'ies'}"))
    return ChosenSizes(found, rows, {**chosen, "cpu": size})


def _size(nbytes: int) -> Size | None:
    return Size(format_bytes(nbytes), bytes=nbytes) if nbytes else None


def _round_down(nbytes: int) -> int:
    """Return a size of `_STEPS` binary digits: at most 1/16 less."""
    step = 1 << max(0, max(0, nbytes).bit_length() - _STEPS)
    return max(0, nbytes) // step * step
