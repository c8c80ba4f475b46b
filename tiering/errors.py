"""The errors users see, and values as their messages quote them. One root; leaves also inherit a builtin error.

A message says which thing (path or argument), what was expected, what was found, and what to do next.
"""

from __future__ import annotations

import errno
from typing import Any


class TieringError(Exception):
    """Root of every error this package raises on purpose. The CLI prints it as one line, exit code 1."""

    exit_code = 1


class InputError(TieringError, ValueError):
    """An argument or the user's data does not fit (shape, dtype, id out of range, nonsense size)."""


class MissingError(TieringError, FileNotFoundError):
    """A file, artifact, split, node type or relation that was asked for does not exist."""


class ExistsError(TieringError, FileExistsError):
    """An output exists already and ``force`` was not given."""


class FormatError(TieringError, ValueError):
    """An artifact on disk is damaged, of another kind, or of a version this package cannot read."""


class RefusedError(ValueError):
    """Values that the C++ core refuses; the caller, who knows their file, makes a `TieringError` of it."""

    def __init__(self, message: str, subject: str = "argument", relation: int = -1) -> None:
        super().__init__(message)
        self.subject = subject  # the kind of the refused values: ``argument``, ``adjacency`` or ``weights``
        self.relation = relation
        """Number of their relation, among those that the core was given; -1 where that is plain."""

    def __reduce__(self) -> tuple[type[RefusedError], tuple[str, str, int]]:
        return RefusedError, (str(self), self.subject, self.relation)


class BusyError(TieringError, RuntimeError):
    """Another process is writing the same output."""


class StorageError(TieringError, OSError):
    """The operating system refused an operation on storage (disk full, I/O error, permission).

    Raised with (errno, message), as every ``OSError``. Its text is the message, and a remedy where descriptors ran out.
    """

    def __str__(self) -> str:
        remedy = "; raise the limit (`ulimit -Hn`) and run it again" if self.errno == errno.EMFILE else ""
        return f"{self.args[1] if len(self.args) > 1 else self.args[0]}{remedy}"


class BudgetError(TieringError, MemoryError):
    """The memory given is less than the work needs; the message says how much that is."""


class CapabilityError(TieringError, RuntimeError):
    """Something optional that was asked for is not available here (engine, GPU, an extra package)."""


class DeviceError(TieringError, RuntimeError):
    """A GPU, its driver, or a process that shares the memory of its GPU failed while it was in use."""


class InternalError(TieringError, RuntimeError):
    """A result that contradicts an invariant: a bug in this package; please report it."""


def quoted(value: Any) -> str:
    """Return a value of the user as messages quote it, cut if it is long."""
    if isinstance(value, int) and abs(value) >= 10**40:  # Python refuses to write numbers of many digits
        return f"a number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"
