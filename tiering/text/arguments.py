"""Arguments of commands that name files are checked first; names of a package that are loaded when asked for."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from inspect import signature
from typing import Any, TypeVar

from tiering.errors import InputError, MissingError, quoted

F = TypeVar("F", bound=Callable[..., Any])
_URL, _URL_AS_PATH = re.compile(r"(?:^|[=,])\s*([A-Za-z][\w+.-]*)://"), re.compile(r"^([A-Za-z][\w+.-]+):/")
_ADDRESSES = ("address", "resources")  # options that are no paths
_REMOTE = ("source", "relation", "relations", "nodes", "destination")  # inputs that may be remote


def is_url(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is the URL of a remote file system, such as ``s3://bucket/folder``."""
    return isinstance(path, str) and re.match(r"[A-Za-z][\w+.-]*://", path) is not None


def nameable(path: str | os.PathLike[str]) -> bool:
    """Return whether the system can have a file with this path at all."""
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
            raise InputError(f"expected text that can be part of a file name, found {quoted(os.fspath(value))}")


def require_local(what: str = "a local path", /, **values: Any) -> None:
    """Raise `InputError`, which shows no more than the scheme, for a URL among values by name, in lists too."""
    for name, value in values.items():
        if isinstance(value, (list, tuple, Mapping)):
            for one in (*value, *(value.values() if isinstance(value, Mapping) else ())):
                require_local(what, **{name: one})
        elif isinstance(value, (str, os.PathLike)) and name not in (_ADDRESSES + _REMOTE * isinstance(value, str)):
            pattern = _URL if isinstance(value, str) else _URL_AS_PATH
            if found := pattern.search(os.fsdecode(value)):
                raise InputError(
                    f"{name.rstrip('_')}: expected {what}, found scheme {found[1]!r}; only local paths are supported: "
                    "copy an input to a directory first (`tiering copy URL DIR`), and an output from one afterwards"
                )


def check_working_directory() -> None:
    """Raise `MissingError` if the working directory was removed."""
    try:
        os.getcwd()  # noqa: PTH109 - which `Path.cwd` calls
    except FileNotFoundError as error:
        raise MissingError("working directory: it was removed; change to one that exists") from error


def naming_files(function: F) -> F:
    """Wrap a function: its arguments and the working directory are checked first."""
    parameters = list(signature(function).parameters)

    @wraps(function)
    def checked(*args: Any, **named: Any) -> Any:
        check_working_directory()
        check_names(*args, *named.values())
        require_local(**named, **dict(zip(parameters, args, strict=False)))
        return function(*args, **named)

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
