"""The memory a stage may use: what the user gave, what is left of it, and the error where it is too little."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tiering.errors import BudgetError, InputError
from tiering.execution.memory import available_memory, own_memory, total_memory
from tiering.units import format_bytes, parse_size

AUTO_SHARE = 0.8
"""Share of the memory available that ``auto`` takes."""
_SLACK = 8 << 20
"""Bytes by which what a process holds differs from run to run: what is advised has room for them."""


@dataclass(frozen=True)
class Budget:
    """A limit for the anonymous and shared memory of this process.

    Page cache, and with it every file that is mapped, does not count: it gives way.
    """

    limit: int
    """Bytes."""
    text: str
    """What the user gave."""
    reserved: int = 0
    """Bytes of the limit that something else is going to take."""
    expected: int = 0
    """Bytes that the work takes at its peak, as far as is known: no less is advised."""

    def without(self, nbytes: int) -> Budget:
        """What remains beside something else that is going to take some bytes."""
        return replace(self, reserved=self.reserved + nbytes)

    def expecting(self, nbytes: int) -> Budget:
        """The same where it is known that later on the work will need so many bytes."""
        return replace(self, expected=nbytes)

    def left(self) -> int:
        """Bytes that may still be taken: the limit less what this process holds now and what is reserved."""
        return max(0, self.limit - self.reserved - own_memory())

    def require(self, needed: int, what: str) -> None:
        """Raise `BudgetError` unless `needed` more bytes are left.

        Parameters
        ----------
        needed
            Bytes, the least with which the work can be done.
        what
            What needs them, for the message: ``wrpr: 24 bytes for each of 111,059,956 nodes``.
        """
        if needed <= self.left():
            return
        whole = own_memory() + max(self.reserved + needed, self.expected) + _SLACK
        beside = f"{format_bytes(own_memory())} held already"
        if self.reserved > 0:
            beside += f" and {format_bytes(self.reserved)} for what is written"
        raise BudgetError(
            f"memory: {what} need {format_bytes(needed)} beside the {beside}, found "
            f"{self.text} ({format_bytes(self.limit)}); give --memory {-(-whole // (1 << 20))}MiB or more"
        )


def parse_memory(memory: str | int | Budget | None) -> Budget:
    """Parse a memory budget: ``8GiB``, ``50%`` of the machine's memory, or ``auto`` (also ``None``).

    ``auto`` is 80 % of what is available now. Both shares respect the limit of a control group (container).

    Raises
    ------
    InputError
        If it is none of these, or 0.
    """
    if isinstance(memory, Budget):
        return memory
    size = parse_size("auto" if memory is None else memory, "memory")
    if size.bytes is not None:
        limit = size.bytes
    elif size.fraction is not None:
        limit = int(size.fraction * total_memory())
    else:
        limit = own_memory() + int(AUTO_SHARE * available_memory())
    if limit <= 0:
        raise InputError(f"memory: expected more than nothing, such as 8GiB, 50% or auto, found {size.text!r}")
    return Budget(limit, size.text)
