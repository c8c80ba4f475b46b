"""Arguments that name files, checked before anything is done with them."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

from tiering.errors import InputError, MissingError, shown

F = TypeVar("F", bound=Callable[..., Any])


def check_names(what: str, value: Any) -> None:
    """Raise `InputError` if a text in `value` can name no file, as none with NUL or half a character can; `what` it is.

    Mappings and lists are looked into.
    """
    if isinstance(value, Mapping):
        value = [*value.keys(), *value.values()]
    if isinstance(value, (list, tuple)):
        for one in value:
            check_names(what, one)
    elif isinstance(value, (str, os.PathLike)):
        text = os.fspath(value)
        try:
            sound = b"\0" not in os.fsencode(text)
        except UnicodeEncodeError:
            sound = False
        if not sound:
            raise InputError(
                f"{what}: expected text that a file name can hold, found {shown(text)}; leave out NUL and surrogates"
            )


def check_working_directory() -> None:
    """Raise `MissingError` if the working directory was removed: relative paths mean nothing then."""
    try:
        os.getcwd()  # noqa: PTH109 - which `Path.cwd` calls
    except FileNotFoundError as error:
        raise MissingError("working directory: it was removed; change to one that exists") from error


def naming_files(function: F) -> F:
    """The same function, which checks its arguments by `check_names` first, and the working directory."""
    parameters = list(inspect.signature(function).parameters)

    @wraps(function)
    def checked(*args: Any, **named: Any) -> Any:
        check_working_directory()
        for what, value in (*zip(parameters, args, strict=False), *named.items()):
            check_names(what, value)
        return function(*args, **named)

    return checked  # type: ignore[return-value]
