"""One parser for everything with a unit: byte sizes, shares, thread counts, fanouts."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from tiering.errors import InputError

_FACTORS = {
    "": 1,
    "b": 1,
    **{f"{p}ib": 1024 ** (i + 1) for i, p in enumerate("kmgtp")},
    **{p: 1024 ** (i + 1) for i, p in enumerate("kmgtp")},
    **{f"{p}b": 1000 ** (i + 1) for i, p in enumerate("kmgtp")},
}
_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*$")
_PERCENT = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*%\s*$")


@dataclass(frozen=True)
class Size:
    """A size as the user wrote it: absolute bytes, a share of something, or ``auto``.

    Exactly one of `bytes` and `fraction` is set; both are ``None`` for ``auto``.
    """

    text: str
    """What the user wrote, for messages."""
    bytes: int | None = None
    """Absolute size in bytes."""
    fraction: float | None = None
    """Share of the whole in [0, 1]."""

    @property
    def auto(self) -> bool:
        """Whether the size is left to the program."""
        return self.bytes is None and self.fraction is None

    def of(self, total: int) -> int:
        """Bytes this size stands for when the whole is `total` bytes; ``auto`` is all of it."""
        if self.bytes is not None:
            return self.bytes
        return total if self.fraction is None else int(total * self.fraction)


def parse_size(text: str | int, what: str = "size") -> Size:
    """Parse ``8GiB``, ``500MB``, ``4096``, ``25%`` or ``auto``.

    ``KiB``, ``MiB``... and the bare letters ``K``, ``M``... are powers of 1024; ``KB``, ``MB``... powers of 1000.

    Parameters
    ----------
    text
        What the user wrote; an ``int`` is bytes.
    what
        Name of the option, for the message.

    Raises
    ------
    InputError
        If the text is none of these forms, negative, or a share above 100 %.
    """
    if isinstance(text, int) and not isinstance(text, bool):
        if text < 0:
            raise InputError(f"{what}: expected a size of 0 bytes or more, found {text}")
        return Size(str(text), bytes=text)
    text = str(text)
    if text.strip().lower() == "auto":
        return Size("auto")
    if match := _PERCENT.match(text):
        share = float(match.group(1)) / 100
        if share > 1:
            raise InputError(f"{what}: expected a share between 0% and 100%, found {text!r}")
        return Size(text.strip(), fraction=share)
    match = _SIZE.match(text)
    if not match or match.group(2).lower() not in _FACTORS:
        raise InputError(f"{what}: expected a size such as 8GiB, 500MB, 4096, 25% or auto, found {text!r}")
    number, factor = match.group(1), _FACTORS[match.group(2).lower()]
    return Size(text.strip(), bytes=int(float(number) * factor) if "." in number else int(number) * factor)


def parse_bytes(text: str | int, what: str = "size") -> int:
    """Parse an absolute size in bytes; shares and ``auto`` are refused."""
    size = parse_size(text, what)
    if size.bytes is None:
        raise InputError(f"{what}: expected an absolute size such as 4KiB, found {size.text!r}")
    return size.bytes


def format_bytes(count: float) -> str:
    """Render a number of bytes for people: ``1.5 GiB``, ``512 B``."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{int(value)} B" if unit == "B" else f"{value:.4g} {unit}"


def format_count(count: int) -> str:
    """Render a count with thousands separators: ``3,216,152``."""
    return f"{count:,}"


def parse_threads(threads: int | str | None) -> int:
    """Number of threads to use: ``None`` or ``auto`` is every processor this process may run on."""
    if threads is None or threads == "auto":
        return max(1, len(os.sched_getaffinity(0)))
    try:
        count = int(threads)
    except ValueError:
        raise InputError(f"threads: expected a whole number or auto, found {threads!r}") from None
    if not 1 <= count <= 1024:
        raise InputError(f"threads: expected 1 to 1024, found {count}")
    return count


def parse_fanouts(text: str, what: str = "fanouts") -> list[int]:
    """Parse ``10,10,5``: neighbours sampled per hop, the seeds' own hop first; -1 means all.

    Raises
    ------
    InputError
        If empty, not whole numbers, or an entry is 0 or below -1.
    """
    try:
        fanouts = [int(part) for part in str(text).split(",")]
    except ValueError:
        raise InputError(
            f"{what}: expected whole numbers separated by commas such as 10,10,10, found {text!r}"
        ) from None
    for value in fanouts:
        if value == 0 or value < -1:
            raise InputError(f"{what}: each entry is at least 1, or -1 for all neighbours; found {value}")
    return fanouts
