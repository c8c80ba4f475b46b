"""Parsers and formatters of values with a unit: byte sizes, percentages, times, thread counts, fanouts, devices."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tiering.errors import InputError, quoted

_FACTORS = {"": 1, "b": 1}
for _power, _prefix in enumerate("kmgtp", 1):
    _FACTORS |= {_prefix: 1024**_power, f"{_prefix}ib": 1024**_power, f"{_prefix}b": 1000**_power}
_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*$")
_PERCENT = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*%\s*$")


@dataclass(frozen=True)
class Size:
    """A size as the user wrote it: `bytes`, a `fraction` (0 to 1) of something, or ``auto``, which is neither."""

    text: str
    bytes: int | None = None
    fraction: float | None = None

    @property
    def auto(self) -> bool:
        """Whether the program chooses the size."""
        return self.bytes is None and self.fraction is None

    def of(self, total: int) -> int:
        """Return the size in bytes where the whole is `total` bytes; ``auto`` is all of it."""
        if self.bytes is not None:
            return self.bytes
        return total if self.fraction is None else int(total * self.fraction)


def parse_size(text: str | int, what: str = "size") -> Size:
    """Parse ``8GiB``, ``500MB``, ``4096``, ``25%`` or ``auto``; `what` is the option's name, for messages.

    ``KiB``, ``MiB``... and the bare letters ``K``, ``M``... are powers of 1024; ``KB``, ``MB``... powers of 1000.
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
            raise InputError(f"{what}: expected a fraction between 0% and 100%, found {text!r}")
        return Size(text.strip(), fraction=share)
    match = _SIZE.match(text)
    if not match or match.group(2).lower() not in _FACTORS:
        raise InputError(f"{what}: expected a size such as 8GiB, 500MB, 4096, 25% or auto, found {text!r}")
    number, factor = match.group(1), _FACTORS[match.group(2).lower()]
    return Size(text.strip(), bytes=int(float(number) * factor) if "." in number else int(number) * factor)


def parse_bytes(text: str | int, what: str = "size") -> int:
    """Parse an absolute size in bytes; percentages and ``auto`` are refused."""
    size = parse_size(text, what)
    if size.bytes is None:
        raise InputError(f"{what}: expected an absolute size such as 4KiB, found {size.text!r}")
    return size.bytes


def ask_percent(size: str) -> str:
    """Return `` (did you mean 20%?)`` for ``20`` and other sizes up to 100 bytes without a unit, else ``""``."""
    return f" (did you mean {size}%?)" if size.isdigit() and 0 < int(size) <= 100 else ""


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


def format_share(part: float, whole: float) -> str:
    """Render `part` as a percentage of `whole`: ``12.5 %``; ``-`` of nothing."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def format_seconds(seconds: float) -> str:
    """Render a time for people: ``0.4 s``, ``42 s``, ``12 min 05 s``, ``3 h 07 min``."""
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    if seconds < 3599.5:
        return f"{round(seconds) // 60} min {round(seconds) % 60:02} s"
    return f"{round(seconds / 60) // 60} h {round(seconds / 60) % 60:02} min"


def format_small_seconds(seconds: float) -> str:
    """Render a time that may be tiny: ``310 ns``, ``22.3 us``, ``1.03 ms``; a second and more as `format_seconds`."""
    for unit, scale in (("ms", 1e3), ("us", 1e6), ("ns", 1e9)):
        if seconds * scale >= 0.9995:
            return format_seconds(seconds) if seconds >= 0.9995 else f"{seconds * scale:.3g} {unit}"
    return f"{seconds:.3g} s"


def parse_threads(threads: int | str | None) -> int:
    """Return the number of threads to use: ``None`` or ``auto`` is every processor this process may run on."""
    if threads is None or threads == "auto":
        return max(1, len(os.sched_getaffinity(0)))
    try:
        count = int(threads)
    except ValueError:
        raise InputError(f"threads: expected a whole number or auto, found {threads!r}") from None
    if not 1 <= count <= 1024:
        raise InputError(f"threads: expected 1 to 1024, found {count}")
    return count


def parse_fanouts(fanouts: Any, what: str = "fanouts") -> list[int | dict[str, int]]:
    """Parse fanouts, neighbors sampled per hop, the seeds' own hop first, in any of the forms users write them.

    Text ``10,10,5``, or a list: one number per hop for all relations; -1 means all neighbors. By relation, 0 for none:
    text ``cites=10,writes=5;cites=5,writes=0``, one mapping per hop, or a mapping from relation to a list. Returns per
    hop a number, or a mapping from relation, as text, to number; relations are checked where the graph is known.
    """
    if isinstance(fanouts, str):
        hops = fanouts.split(";" if "=" in fanouts or ";" in fanouts else ",")
        fanouts = [_hop_of_text(hop, what) if "=" in hop else hop for hop in hops]
    elif isinstance(fanouts, Mapping):
        fanouts = _hops_of_relations(fanouts, what)
    elif isinstance(fanouts, bytes) or not isinstance(fanouts, Sequence) or not fanouts:
        raise InputError(f"{what}: expected one entry per hop such as [10, 10, 10], found {fanouts!r}")
    return [_hop(hop, what) for hop in fanouts]


def format_fanouts(fanouts: Sequence[Any]) -> str:
    """Render fanouts as `parse_fanouts` reads them: ``10,10``, or ``cites=10,writes=5;cites=5,writes=0``."""
    hops = [",".join(f"{r}={n}" for r, n in h.items()) if isinstance(h, Mapping) else str(h) for h in fanouts]
    return (";" if any("=" in hop for hop in hops) else ",").join(hops)


def _hop(hop: Any, what: str) -> int | dict[str, int]:
    if not isinstance(hop, Mapping):
        return _fanout(hop, what, 1)
    if not hop:
        raise InputError(f"{what}: a hop has no relations; give numbers by relation, such as cites=10,writes=5")
    named = {":".join(r) if isinstance(r, tuple) else str(r): n for r, n in hop.items()}
    return {name: _fanout(number, f"{what} of {name}", 0) for name, number in named.items()}


def _hop_of_text(hop: str, what: str) -> dict[str, str]:
    """Return the numbers of ``cites=10,writes=5`` by relation."""
    pairs = [part.partition("=") for part in hop.split(",")]
    numbers = {name.strip(): number for name, _, number in pairs}
    if len(numbers) < len(pairs) or not all(numbers):
        raise InputError(f"{what}: expected each relation once per hop, such as cites=10,writes=5, found {hop!r}")
    return numbers


def _hops_of_relations(fanouts: Mapping[Any, Any], what: str) -> list[dict[Any, Any]]:
    """Return a mapping from relation to one number per hop as one mapping per hop."""
    for relation, numbers in fanouts.items():
        if isinstance(numbers, str) or not isinstance(numbers, Sequence):
            raise InputError(f"{what} of {relation}: expected one number per hop such as [10, 5], found {numbers!r}")
    hops = {len(numbers) for numbers in fanouts.values()}
    if len(hops) != 1 or hops == {0}:
        counts = ", ".join(f"{relation} {len(numbers)}" for relation, numbers in fanouts.items())
        problem = "all relations need the same number of hops"
        raise InputError(f"{what}: {problem}, found {counts or 'no relation'}")
    return [{relation: numbers[hop] for relation, numbers in fanouts.items()} for hop in range(*hops)]


def _fanout(value: Any, what: str, least: int) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        number = int(value) if isinstance(value, str) else operator.index(value)
    except (TypeError, ValueError):
        raise InputError(
            f"{what}: expected whole numbers separated by commas such as 10,10,10, found {value!r}"
        ) from None
    if number != -1 and not least <= number < 2**31:
        raise InputError(
            f"{what}: entries must be at least {least} and below 2^31, or -1 for all neighbors; found {quoted(number)}"
        )
    return number


def parse_device(device: Any) -> int | None:
    """Return the number of a GPU of ``cuda:1`` or a ``torch.device``; ``None``: the CPU, -1: the current GPU."""
    text = str(device)
    kind, _, number = text.partition(":")
    if kind == "cpu":
        return None
    if kind != "cuda" or (number and not number.isdecimal()):
        raise InputError(f"device: expected cpu, cuda or cuda:N, found {text!r}")
    return int(number) if number else -1
