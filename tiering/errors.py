"""The errors users see, and values as their messages quote them. One root; leaves also inherit a builtin error.

A message says what is wrong with which path or argument, what was found, and what to do next. It is written
with options as the command line spells them; callers from Python read ``memory="8GiB"`` in place of --memory 8GiB.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Collection
from typing import Any

flags: dict[str, str] | None = None
"""Flags of the command that runs by keyword; ``None`` where the caller is Python."""
_FLAG = re.compile(r"""(?<![^\s('"])--([a-z][a-z-]*)(?: (auto\b|[A-Z]{2,}|\d(?:[^\s;:)]*[^\s;:),.])?))?""")
_KEYWORDS = {
    "from": "scores", "no-verify": "verify=False", "no-header": "header=False", "force": "force=True",
    "no-edge-ids": "edge_ids=False",
    "executor": "cluster", "metapath": "metapaths", "id": "id_column", "add-reverse": "reverse_edges",
    "num-labeled": "num_labelled",
}  # fmt: skip
"""Keywords whose flags are others."""


class TieringError(Exception):
    """Root of every error this package raises on purpose. The CLI prints it as one line, exit code 1."""

    exit_code = 1
    place = ""  # the task and the process, where another than this one raised it, at the end of the message

    def __str__(self) -> str:
        return spell_options(super().__str__()) + self.place


class InputError(TieringError, ValueError):
    """An argument or the user's data is invalid (shape, dtype, id out of range, impossible size)."""


class MissingError(TieringError, FileNotFoundError):
    """A requested file, artifact, split, node type or relation does not exist."""


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
        remedy = "; raise the limit (`ulimit -Hn`) and run the command again" if self.errno == errno.EMFILE else ""
        return spell_options(f"{self.args[1] if len(self.args) > 1 else self.args[0]}{remedy}") + self.place


class BudgetError(TieringError, MemoryError):
    """The memory is less than the work needs; the message says how much the work needs."""


class CapabilityError(TieringError, RuntimeError):
    """A requested optional feature is not available here (engine, GPU, an extra package)."""


class DeviceError(TieringError, RuntimeError):
    """A GPU, its driver, or a process that shares the memory of its GPU failed while it was in use."""


class ModelError(TieringError, RuntimeError):
    """A function of the caller failed or returned a wrong result; its cause is the error itself."""


class InternalError(TieringError, RuntimeError):
    """A result that contradicts an invariant: a bug in this package; please report it."""


def spell_options(text: str, section: str = "", keys: Collection[str] = ()) -> str:
    """Return a message as its reader spells options; commands in backquotes stay.

    In Python keywords for flags; for the `keys` of a `section` of chain.toml, the section and the key.
    """

    def spell(match: re.Match[str]) -> str:
        name, value = match.groups()
        if (key := name.replace("-", "_")) in keys:
            return f"[{section}] {key}" + ("" if value is None else f' = "{value}"')
        if flags is not None:
            return match[0]
        keyword = _KEYWORDS.get(name, name.replace("-", "_"))
        if value is None:
            return f"`{keyword}`" if match.start() else keyword
        return f"{keyword}={value}" if value.isupper() else f'{keyword}="{value}"'

    if flags is not None and not keys:
        return text
    parts = enumerate(text.split("`"))  # every other one is in backquotes
    return "`".join(part if k % 2 and part[:2] != "--" else _FLAG.sub(spell, part) for k, part in parts)


def name_flags(text: str) -> str:
    """Return a message with the flag instead of the keyword that it begins with, for the command that runs."""
    head, colon, rest = text.partition(":")
    return f"{(flags or {}).get(head.replace(' ', '_'), head)}{colon}{rest}"


def quoted(value: Any) -> str:
    """Return a value of the user as messages quote it, cut if it is long."""
    if isinstance(value, int) and abs(value) >= 10**40:  # Python refuses to write numbers of many digits
        return f"a number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"
