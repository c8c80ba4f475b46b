"""Descriptions of things for people, as data: fields, tables, lines, small plots. The command line prints them as text.

Notebooks show them as HTML. Names come from files that anybody may have written, so all text is escaped, and what no
eye can see is spelled out (`progress.printable`). The HTML says nothing of colors and fonts, so that it fits
light and dark themes; plots are on white.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from io import StringIO
from typing import Any, TypeAlias
from unicodedata import combining, east_asian_width

from tiering.text.progress import printable


@dataclass(frozen=True)
class Fields:
    """Names and values, one pair a line, below a title if there is one."""

    values: Mapping[str, object]
    title: str = ""


@dataclass(frozen=True)
class Table:
    """A table below its title; the first `left` columns are aligned left, the others right."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    left: int = 1


@dataclass(frozen=True)
class Plot:
    """A plot below its title, made on a ``matplotlib.figure.Figure`` when it is shown; text has none."""

    title: str
    draw: Callable[[Any], None]


@dataclass(frozen=True)
class Figure:
    """A drawing below its title, as SVG (`tiering.text.svg`); text has none."""

    title: str
    svg: str


Part: TypeAlias = Fields | Table | str | Plot | Figure
"""Text is one line."""


class Described:
    """Base of classes that notebooks show as HTML, by their `describe`."""

    def describe(self) -> list[Part]:
        """Describe the object to people: `Fields`, `Table`, lines of text, `Plot`."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return to_html(self.describe())


def to_text(parts: Sequence[Part], title: Callable[[str], str] = str) -> str:
    """Return `parts` as lines of text, without plots; `title` styles the titles of tables."""
    return "".join(f"{line}\n" for part in parts for line in _lines(part, title))


def _lines(part: Part, title: Callable[[str], str]) -> Iterator[str]:
    if isinstance(part, str):
        yield printable(part)
    elif isinstance(part, Fields):
        width = max(map(len, part.values), default=0)
        yield from [title(printable(part.title))] if part.title else []
        yield from (printable(f"{name:<{width}}  {value}") for name, value in part.values.items())
        yield ""
    elif isinstance(part, Table):
        rows = [[printable(str(value)) for value in row] for row in (part.columns, *part.rows)]
        widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
        yield from [title(printable(part.title))] if part.title else []
        for number, row in enumerate(rows):
            blanks = [" " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)]
            padded = enumerate(zip(row, blanks, strict=True))
            cells = [cell + blank if index < part.left else blank + cell for index, (cell, blank) in padded]
            yield f" {'   '.join(cells)}".rstrip()
            if number == 0:
                yield "─" * (sum(widths) + 3 * len(widths) - 1)
        yield ""


def _width(text: str) -> int:
    """Return the columns of a terminal that a text takes."""
    return sum(0 if combining(c) else 1 + (east_asian_width(c) in "WF") for c in text)


def to_html(parts: Sequence[Part]) -> str:
    """Return self-contained HTML of `parts`: no script, nothing loaded from other places."""
    return "<div>\n" + "".join(f"{_html(part)}\n" for part in parts) + "</div>"


def _html(part: Part) -> str:
    if isinstance(part, Fields):
        return _table(part.title, [_row("td", (name, value), 2) for name, value in part.values.items()])
    if isinstance(part, Table):
        head = _row("th", part.columns, part.left)
        return _table(part.title, [f"<thead>{head}</thead>", *(_row("td", row, part.left) for row in part.rows)])
    if isinstance(part, str):
        return f"<p>{_text(part)}</p>"
    if isinstance(part, Figure):
        return f"<figure><figcaption>{_text(part.title)}</figcaption>\n{part.svg}</figure>"
    drawn = _svg(part.draw)
    if drawn is None:
        return ""
    # As an image, what is drawn can neither run scripts nor share the page's names.
    source = f"data:image/svg+xml;base64,{b64encode(drawn.encode()).decode()}"
    return f'{_title("p", part.title)}<img alt="{_text(part.title)}" src="{source}">'


def _table(title: str, rows: Sequence[str]) -> str:
    return "\n".join(["<table>", *([_title("caption", title)] if title else []), *rows, "</table>"])


def _title(tag: str, title: str) -> str:
    return f'<{tag} style="text-align: left; caption-side: top"><b>{_text(title)}</b></{tag}>'


def _row(tag: str, cells: Sequence[object], left: int) -> str:
    sides = ("left" if index < left else "right" for index in range(len(cells)))
    made = (f'<{tag} style="text-align: {side}">{_text(cell)}</{tag}>' for cell, side in zip(cells, sides, strict=True))
    return f"<tr>{''.join(made)}</tr>"


def _text(value: object) -> str:
    return escape(printable(str(value)))


def _svg(draw: Callable[[Any], None]) -> str | None:
    """Return SVG of what `draw` draws on a ``matplotlib.figure.Figure``, on white; ``None`` without matplotlib."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        return None
    with rc_context({"svg.hashsalt": "tiering"}):  # the same plot is the same text
        figure = Figure(layout="constrained")
        draw(figure)
        text = StringIO()
        figure.savefig(text, format="svg", facecolor="white", metadata={"Date": None})
    return text.getvalue()
