"""Progress of long work: one bar on a terminal or in a notebook; quiet where nobody watches."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

_NOTEBOOK_COLUMNS = 80  # width of a text bar in a notebook, which does not say how wide it is


@contextmanager
def progress(
    total: int | None, desc: str, unit: str = "it", *, scale: bool = False, watched: bool = True
) -> Iterator[Any]:
    """Show a bar with rate and time left while the block runs, if `watched`; with `scale`, counts have prefixes."""
    bar_type, options = _bar(watched and sys.stderr.isatty(), watched and in_notebook())
    with bar_type(total=total, desc=desc, unit=unit, unit_scale=scale, leave=False, **options) as bar:
        yield bar


def in_log() -> bool:
    """Return whether standard error is neither a terminal nor a notebook's: bars are not shown then."""
    return not (sys.stderr.isatty() or in_notebook())


def in_notebook() -> bool:
    """Return whether a Jupyter kernel runs this process; workers and commands started from one do not count."""
    ipython = sys.modules.get("IPython")  # a kernel has imported it
    if ipython is None or multiprocessing.parent_process() is not None:
        return False
    return any(kind.__name__ == "ZMQInteractiveShell" for kind in type(ipython.get_ipython()).__mro__)


def _bar(terminal: bool, notebook: bool) -> tuple[Any, dict[str, Any]]:
    """Return the type of bar that fits standard error, and its options."""
    if notebook and find_spec("ipywidgets") is not None:
        from tqdm.notebook import tqdm as widget

        return widget, {"dynamic_ncols": True}
    from tqdm import tqdm

    if notebook:
        return tqdm, {"ncols": _NOTEBOOK_COLUMNS}
    return tqdm, {"dynamic_ncols": True, "disable": not terminal}


kept: list[str] = []  # outputs of stopped commands of this process that can be resumed; a command that begins clears it


def note(text: str) -> None:
    """Print one line that is no result to standard error."""
    print(printable(text), file=sys.stderr, flush=True)


def printable(text: str) -> str:
    r"""Return text as one line that is safe for a terminal: controls, line ends and the like come as ``\x1b``."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
