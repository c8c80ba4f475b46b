"""Progress of long work: one bar, quiet when nobody watches (standard error is no terminal)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol


class Progress(Protocol):
    """What a stage reports to: a count of finished units."""

    def update(self, amount: int = 1) -> object:
        """Add `amount` finished units."""


@contextmanager
def progress(
    total: int | None, desc: str, unit: str = "it", *, scale: bool = False, watched: bool = True
) -> Iterator[Any]:
    """Show a bar with rate and time left while the block runs; `scale`: counts have metric prefixes (bytes, edges);
    `watched`: whether anybody wants it.
    """
    from tqdm import tqdm

    quiet = not (watched and sys.stderr.isatty())
    with tqdm(
        total=total, desc=desc, unit=unit, unit_scale=scale, leave=False, disable=quiet, dynamic_ncols=True
    ) as bar:
        yield bar


kept: list[str] = []
"""What commands of this process that were stopped have left to be gone on with; a command that begins clears it."""


def note(text: str) -> None:
    """Tell the user something that is no result: one line on standard error."""
    print(printable(text), file=sys.stderr, flush=True)


def printable(text: str) -> str:
    r"""Text that is one line and leaves a terminal alone: controls, line ends and the like come as ``\x1b``."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
