"""Options that users may set: each is one field of a dataclass, from which command line, checks and records follow."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

from tiering.errors import InputError

Parse = Callable[[Any, str], Any]
"""Return the value of an option from what a user gave; `InputError` that begins with the name (second argument)."""
_KEY = "option"


@dataclass(frozen=True)
class Option:
    """An option of a command and of the function behind it: its help, its value's name in help, its group there.

    `cli`, `cli_default` and `from_cli` are for fields of another type or default on the command line.
    """

    help: str
    metavar: str | None = None
    panel: str | None = None
    flags: tuple[str, ...] = ()
    parse: Parse | None = None
    cli: Any = None
    cli_default: Any = None
    from_cli: Callable[[Any], Any] | None = None


def option(default: Any, text: str, metavar: str | None = None, **more: Any) -> Any:
    """Return a dataclass field with its default, help and the other attributes of its `Option`."""
    return field(default=default, metadata={_KEY: Option(text, metavar, **more)})


@cache
def options_of(table: type) -> dict[str, Option]:
    """Return the options of a dataclass by name; fields without one are omitted."""
    return {entry.name: entry.metadata[_KEY] for entry in fields(table) if _KEY in entry.metadata}


def spell_flag(name: str) -> str:
    """Return an option's name as the command line spells it."""
    return "--" + name.replace("_", "-")


def accept_spelling(values: Any, other: str, name: str) -> None:
    """Rename the key `other` of a mapping, another spelling of `name`; anything else stays as it is."""
    if isinstance(values, dict) and other in values:
        values[name] = values.pop(other)


def words_of(metavar: str | None) -> list[str]:
    """Return the words among the values that a metavar lists: ``auto`` of ``SIZE|auto``."""
    return [word for word in (metavar or "").split("|") if word.isidentifier() and word.islower()]


def parse_options(table: type, values: Mapping[str, Any], spell: Callable[[str], str] | None = None) -> dict[str, Any]:
    """Return checked values of the options of a dataclass that are given; names are known to be among them."""
    parsers, spell = options_of(table), spell or (lambda name: name.replace("_", " "))
    return {n: value if (parse := parsers[n].parse) is None else parse(value, spell(n)) for n, value in values.items()}


def whole(low: int, high: int, expected: str) -> Parse:
    """Return a parser of whole numbers from `low` to `high`, both included."""
    return _checked(lambda v: isinstance(v, int) and not isinstance(v, bool) and low <= v <= high, expected)


def number(fits: Callable[[float], bool], expected: str, *, none: bool = False) -> Parse:
    """Return a parser of finite numbers that fit; with `none` also of ``None``."""

    def check(value: Any) -> bool:
        if value is None:
            return none
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and fits(value)

    return _checked(check, expected)


def choice(*values: str) -> Callable[[Any, str], str]:
    """Return a parser of one of some words."""
    parse = _checked(values.__contains__, f"one of {', '.join(values)}")
    return lambda value, name: str(parse(str(value), name))


def _checked(fits: Callable[[Any], bool], expected: str) -> Parse:
    def parse(value: Any, name: str) -> Any:
        if not fits(value):
            raise InputError(f"{name}: expected {expected}, found {value!r}")
        return value

    return parse
