"""Arguments of commands: those that name files are checked first, and errors name them as the caller spells them.

Messages spell options as the command line does; callers from Python read ``memory="8GiB"`` in place of --memory 8GiB.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from typing import Any, TypeVar

from tiering.errors import InputError, MissingError, TieringError, quoted

F = TypeVar("F", bound=Callable[..., Any])
flags: dict[str, str] | None = None
"""Flags of the command that runs by keyword; ``None`` where the caller is Python."""
_FLAG = re.compile(r"""(?<![^\s('"])--([a-z][a-z-]*)(?: (auto\b|[A-Z]{2,}|\d(?:[^\s;:)]*[^\s;:),.])?))?""")
_KEYWORDS = {
    "from": "scores", "no-verify": "verify=False", "no-header": "header=False", "force": "force=True",
    "executor": "cluster", "metapath": "metapaths",
}  # fmt: skip
"""Keywords whose flags are others."""


def name_keywords(text: str) -> str:
    """Return a message with keywords in place of flags; commands in backquotes stay."""

    def spell(match: re.Match[str]) -> str:
        name, value = match.groups()
        keyword = _KEYWORDS.get(name, name.replace("-", "_"))
        if value is None:
            return f"`{keyword}`" if match.start() else keyword
        return f"{keyword}={value}" if value.isupper() else f'{keyword}="{value}"'

    return "`".join(part if k % 2 else _FLAG.sub(spell, part) for k, part in enumerate(text.split("`")))


def name_flags(text: str) -> str:
    """Return a message that begins with a keyword of the command that runs, with its flag in place of it."""
    head, colon, rest = text.partition(":")
    return f"{(flags or {}).get(head.replace(' ', '_'), head)}{colon}{rest}"


def nameable(path: str | os.PathLike[str]) -> bool:
    """Return whether the system can have a file of such a path at all."""
    try:
        return b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False


def check_names(*values: Any) -> None:
    """Raise `InputError` for text that can name no file: with NUL or a lone surrogate. Lists are looked into."""
    for value in values:
        if isinstance(value, (list, tuple, Mapping)):
            check_names(*value, *(value.values() if isinstance(value, Mapping) else ()))
        elif isinstance(value, (str, os.PathLike)) and not nameable(value):
            raise InputError(f"expected text that a file name can hold, found {quoted(os.fspath(value))}")


def check_working_directory() -> None:
    """Raise `MissingError` if the working directory was removed."""
    try:
        os.getcwd()  # noqa: PTH109 - which `Path.cwd` calls
    except FileNotFoundError as error:
        raise MissingError("working directory: it was removed; change to one that exists") from error


def naming_files(function: F) -> F:
    """Wrap a function: arguments and working directory are checked first, and errors name keywords."""

    @wraps(function)
    def checked(*args: Any, **named: Any) -> Any:
        try:
            check_working_directory()
            check_names(*args, *named.values())
            return function(*args, **named)
        except TieringError as error:
            if flags is None:
                error.args = tuple(name_keywords(part) if isinstance(part, str) else part for part in error.args)
            raise

    return checked  # type: ignore[return-value]


def lazy_names(package: str, *modules: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package: names in its ``__all__`` come from the first module that has them."""

    def get(name: str) -> Any:
        loaded = sys.modules[package]
        for module in modules if name in loaded.__all__ else ():
            value = getattr(import_module(f"{package}.{module}"), name, loaded)
            if value is not loaded:
                setattr(loaded, name, value)
                return value
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get
