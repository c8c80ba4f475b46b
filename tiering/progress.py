"""Progress of long work: one bar on a terminal or in a notebook; quiet where nobody watches."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Protocol

_NOTEBOOK_COLUMNS = 80
"""Width of a text bar in a notebook, which does not say how wide it is."""


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
    bar_type, options = _bar(watched and sys.stderr.isatty(), watched and in_notebook())
    with bar_type(total=total, desc=desc, unit=unit, unit_scale=scale, leave=False, **options) as bar:
        yield bar


def in_log() -> bool:
    """Return whether nobody watches bars: standard error is no terminal, and this process no notebook's."""
    return not (sys.stderr.isatty() or in_notebook())


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this process: what is started from one, a worker or a command, is none."""
    ipython = sys.modules.get("IPython")  # a kernel has imported it
    if ipython is None or multiprocessing.parent_process() is not None:
        return False
    return any(kind.__name__ == "ZMQInteractiveShell" for kind in type(ipython.get_ipython()).__mro__)


def _bar(terminal: bool, notebook: bool) -> tuple[Any, dict[str, Any]]:
    """The bar that fits where standard error goes, and how to make it."""
    if notebook and find_spec("ipywidgets") is not None:
        from tqdm.notebook import tqdm as widget

        return widget, {"dynamic_ncols": True}
    from tqdm import tqdm

    if notebook:
        return tqdm, {"ncols": _NOTEBOOK_COLUMNS}
    return tqdm, {"dynamic_ncols": True, "disable": not terminal}


kept: list[str] = []
"""What commands of this process that were stopped have left to be gone on with; a command that begins clears it."""


def note(text: str) -> None:
    """Tell the user something that is no result: one line on standard error."""
    print(printable(text), file=sys.stderr, flush=True)


def printable(text: str) -> str:
    r"""Text that is one line and leaves a terminal alone: controls, line ends and the like come as ``\x1b``."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
