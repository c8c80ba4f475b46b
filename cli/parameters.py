"""Commands as typer runs them: words of options in any case, and help in sections."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import click
from typer.core import TyperArgument, TyperCommand, TyperOption

from tiering.errors import InputError
from tiering.text.options import Parse, words_of

ARGUMENTS, OPTIONS, COMMON = "Arguments", "Options", "Common options"
_METAVARS = {"integer": "N", "float": "X", "path": "PATH"}


class Command(TyperCommand):
    """A command whose help shows options in sections: its own, the common ones, then each group."""

    def __init__(self, name: str | None, *, params: list[click.Parameter], **settings: Any) -> None:
        super().__init__(name, params=params, **settings)
        for parameter in params:
            if parameter.type is click.STRING:
                parameter.type = Text(parameter.metavar)
            parameter.metavar = parameter.metavar or _METAVARS.get(parameter.type.name.split()[0])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections of the parameters."""
        sections: dict[str, list[tuple[str, str]]] = {ARGUMENTS: [], OPTIONS: [], COMMON: []}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, TyperArgument):
                sections[ARGUMENTS].append((parameter.make_metavar(ctx), parameter.help or ""))
            elif record := parameter.get_help_record(ctx):
                last = COMMON if sections[COMMON] else OPTIONS  # click's own --help
                panel = parameter.rich_help_panel or OPTIONS if isinstance(parameter, TyperOption) else last
                sections.setdefault(panel, []).append(record)
        write_sections(formatter, sections)


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


def write_sections(formatter: click.HelpFormatter, sections: dict[str, list[tuple[str, str]]]) -> None:
    """Write each section that has rows, below its name."""
    for name, rows in sections.items():
        if rows:
            with formatter.section(click.style(name, bold=True)):
                formatter.write_dl(rows, col_max=28)
