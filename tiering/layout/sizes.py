"""Sizes of tiers where the user gives none: what the machine has room for, with the reason of each number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tiering.errors import InputError
from tiering.layout.tiers import Capacities
from tiering.text.description import Table
from tiering.text.units import Size, format_bytes

_STEPS = 5  # binary digits of a chosen size: what is free differs from run to run, and a stopped run goes on


@dataclass(frozen=True)
class TierRoom:
    """Memory of a machine for feature rows, in bytes, after what training takes."""

    gpu: int  # of each GPU; 0 without one
    cpu: int  # where all rows lie in memory
    cpu_and_ssd: int  # where rows are read ahead from SSD, too
    gpu_reason: str = ""
    cpu_reason: str = ""
    ssd_reason: str = ""
    batches: tuple[str, str, str] | None = None  # row of the table: for which batches memory is left


@dataclass
class ChosenSizes:
    """Sizes of all tiers, and why."""

    capacities: Capacities
    rows: list[tuple[str, str, str]] = field(default_factory=list)  # tier, size, reason
    bytes: dict[str, int] = field(default_factory=dict)  # by tier that was chosen

    @property
    def table(self) -> Table:
        """The table of the sizes and their reasons."""
        return Table("Sizes chosen for this machine", ("tier", "size", "reason"), self.rows, left=3)

    def choose(self, tier: str, size: Size | None, nbytes: int, why: str) -> None:
        """Choose the size of a tier."""
        gpu, cpu = (size, self.capacities.cpu) if tier == "gpu" else (self.capacities.gpu, size)
        self.capacities = replace(self.capacities, gpu=gpu, cpu=cpu)
        self.bytes[tier] = nbytes
        self.rows.append((tier, format_bytes(nbytes) if nbytes else "none", why))


def choose_sizes(
    asked: Capacities, automatic: Sequence[str], room: TierRoom, total: int, lists: int, ssd: int
) -> ChosenSizes:
    """Choose the `automatic` tiers, ``gpu`` and ``cpu``, for `total` bytes of rows; the others are as asked.

    `lists`: bytes of adjacency lists that share the gpu tier. `ssd`: number of directories for the rest; `InputError`
    if there is a rest and no directory.
    """
    found, rest = ChosenSizes(asked, [room.batches] if room.batches else []), total
    if "gpu" in automatic:
        everything, size = total + lists, _round_down(room.gpu)
        fits = room.gpu >= everything
        found.choose("gpu", Size("auto") if fits else _size(size), everything if fits else size, room.gpu_reason)
    gpu = found.capacities.gpu
    if gpu is not None:
        rest -= min(rest, gpu.of(total) if gpu.auto else max(0, gpu.of(total) - lists))
    if asked.peer is not None:
        rest -= min(rest, asked.num_peers * asked.peer.of(total))
    if "cpu" not in automatic:
        return found
    if rest <= room.cpu:
        what = "all rows" if rest == total else "the other rows"
        found.choose("cpu", Size("auto"), rest, f"{what}: {room.cpu_reason}")
        found.capacities = replace(found.capacities, ssd=False)
        if ssd:
            found.rows.append(("ssd", "none", "all rows fit in memory: the directories stay empty"))
        return found
    if not ssd:
        raise InputError(
            f"{format_bytes(rest - room.cpu)} of {format_bytes(total)} feature data do not fit in memory "
            f"({room.cpu_reason}{' of ' if room.batches else ''}{', '.join((room.batches or ())[1:])}); give --ssd "
            "DIR for them, or --cpu 100% to prepare the layout for a machine with more memory"
        )
    size = min(_round_down(room.cpu_and_ssd), rest)
    found.choose("cpu", _size(size), size, room.ssd_reason)
    found.rows.append(("ssd", format_bytes(rest - size), f"other rows, in {ssd} director{'y' if ssd == 1 else 'ies'}"))
    return found


def _size(nbytes: int) -> Size | None:
    return Size(format_bytes(nbytes), bytes=nbytes) if nbytes else None


def _round_down(nbytes: int) -> int:
    """Return a size of `_STEPS` binary digits, at most 1/16 less; 0 below a MiB."""
    return 0 if nbytes < 1 << 20 else nbytes >> (shift := nbytes.bit_length() - _STEPS) << shift
