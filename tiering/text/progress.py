"""Progress of long work: one bar on a terminal or in a notebook; quiet where nobody watches."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

from tiering.errors import spell_options

_NOTEBOOK_COLUMNS = 80  # width of a bar in a notebook, which does not say how wide it is


@contextmanager
def progress(
    total: int | None, desc: str, unit: str = "it", *, scale: bool = False, watched: bool = True
) -> Iterator[Any]:
    """Show a bar while the block runs, if `watched`; all bars of a notebook's cell share a line."""
    if not watched or in_log():
        yield SimpleNamespace(n=0, disable=True, update=lambda n=1: None)
        return
    from tqdm import tqdm

    options: dict[str, Any] = {"dynamic_ncols": True, "leave": False}
    if in_notebook():
        options = {"ncols": _NOTEBOOK_COLUMNS, "leave": True, "file": _LINE}
    with tqdm(total=total, desc=desc, unit=unit, unit_scale=scale, **options) as bar:
        yield bar


def in_log() -> bool:
    """Return whether standard error is neither a terminal nor a notebook's: bars are not shown then."""
    return not (sys.stderr.isatty() or in_notebook())


def in_notebook() -> bool:
    """Return whether a Jupyter kernel runs this process; workers and commands started from one do not count."""
    ipython = sys.modules.get("IPython")  # a kernel has imported it
    if ipython is None:
        return False
    import multiprocessing

    if multiprocessing.parent_process() is not None:
        return False
    return any(kind.__name__ == "ZMQInteractiveShell" for kind in type(ipython.get_ipython()).__mro__)


class _CellLine:
    """A file of which a notebook's cell shows, as one of its outputs, the last line that was written."""

    encoding = "utf-8"  # bars are drawn with its blocks
    output: tuple[int | None, Any] = None, None  # number of the cell that shows the line, and its output

    def write(self, text: str) -> None:
        """Show a line; what only moves the cursor is nothing to show."""
        from IPython import display, get_ipython

        if not (line := text.replace("\x1b[A", "").strip()):
            return
        if (cell := get_ipython().execution_count) == self.output[0]:
            self.output[1].update({"text/plain": line}, raw=True)
        else:
            self.output = cell, display.display({"text/plain": line}, raw=True, display_id=True)


_LINE = _CellLine()
_groups: list[dict[str, dict[str, None]]] = []  # of each open `grouped_notes`: places by the words on them
kept: list[str] = []  # outputs of stopped commands of this process that can be resumed; a command that begins clears it


def note(text: str) -> None:
    """Print one line that is no result to standard error."""
    print(printable(spell_options(text)), file=sys.stderr, flush=True)


@contextmanager
def grouped_notes() -> Iterator[None]:
    """Hold back the notes on places of the block, and print each kind once at its end."""
    _groups.append({})
    try:
        yield
    finally:
        for words, places in _groups.pop().items():
            note(f"note: {', '.join(places)}{words}")


def note_at(place: str, words: str) -> None:
    """Print a note on a place; inside `grouped_notes` places with the same words share one line."""
    with nullcontext() if _groups else grouped_notes():
        _groups[-1].setdefault(words, {})[place] = None


def printable(text: str) -> str:
    r"""Return text as one line that is safe for a terminal: controls, line ends and the like come as ``\x1b``."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
