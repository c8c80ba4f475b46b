"""Commands and their parameters as click runs them: types, words in any case, and help in sections."""

from __future__ import annotations

import inspect
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args, get_origin

import click

from tiering.errors import InputError
from tiering.text.options import Parse, spell_flag, words_of

ARGUMENTS, OPTIONS, COMMON = "Arguments", "Options", "Common options"
_METAVARS = {int: "N", float: "X", Path: "PATH"}
_RANGES: dict[Any, Any] = {int: click.IntRange, float: click.FloatRange}


class Command(click.Command):
    """A command whose help shows options in sections: its own, the common ones, then each group."""

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write nothing: `format_options` has a section of the arguments."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections of the parameters."""
        sections: dict[str, list[tuple[str, str]]] = {ARGUMENTS: [], OPTIONS: [], COMMON: []}
        for parameter in self.get_params(ctx):
            section, record = getattr(parameter, "panel", None), parameter.get_help_record(ctx)
            if record is not None:
                last = COMMON if sections[COMMON] else OPTIONS  # click's own --help
                sections.setdefault(section or last, []).append(record)
        write_sections(formatter, sections)


class Argument(click.Argument):
    """An argument with help."""

    def __init__(self, name: str, text: str, **settings: Any) -> None:
        super().__init__([name], **settings)
        self.text, self.panel = text, ARGUMENTS

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return the name and the help of the argument."""
        return self.make_metavar(ctx), self.text


class Option(click.Option):
    """An option in a section of the help."""

    def __init__(self, flags: list[str], panel: str | None = None, **settings: Any) -> None:
        super().__init__(flags, **settings)
        self.panel = panel or OPTIONS


class Text(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """Text, some of whose values are words: these are taken in any case."""

    name = "text"

    def __init__(self, metavar: str | None, parse: Parse | None = None) -> None:
        self._metavar, self._parse = metavar, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the text, a word as its help spells it."""
        if self._parse is not None:  # what the option knows itself is recorded as it was typed
            with suppress(InputError):
                self._parse(value, "")
                return value
        low = str(value).lower()
        return low if low in words_of(self._metavar) else value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        """Return the words that begin with what was typed."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(word) for word in words_of(self._metavar) if word.startswith(incomplete.lower())]


def make_parameter(
    name: str, kind: Any, default: Any, *, text: str, flags: tuple[str, ...] = (), least: float | None = None,
    show: bool = False, argument: bool = False, metavar: str | None = None, parse: Parse | None = None, **settings: Any,
) -> click.Parameter:  # fmt: skip
    """Return the parameter of a command: an argument, or an option that is required if it has no default."""
    kinds = (kind,) if get_origin(kind) in (None, list) else get_args(kind)
    first = next(k for k in kinds if k is not type(None))
    many, names = get_origin(first) is list, [name, *(flags or (spell_flag(name),))]
    plain = get_args(first)[0] if many else first
    required = default is inspect.Parameter.empty
    settings |= {"required": required} if required else {"default": None if many else default}
    if plain is bool:
        return Option(names, help=text, is_flag=True, show_default=False, **settings)
    settings["metavar"] = metavar or _METAVARS.get(plain)
    if plain in _RANGES:
        settings["type"] = plain if least is None else _RANGES[plain](min=least)
    else:
        settings.setdefault("type", click.Path(path_type=Path) if plain is Path else Text(metavar, parse))
    if argument:
        return Argument(name, text, nargs=-1 if many else 1, **settings)
    return Option(names, help=text, multiple=many, show_default=show, **settings)


def write_sections(formatter: click.HelpFormatter, sections: dict[str, list[tuple[str, str]]]) -> None:
    """Write each section that has rows, below its name."""
    for name, rows in sections.items():
        if rows:
            with formatter.section(click.style(name, bold=True)):
                formatter.write_dl(rows, col_max=28)
