"""Options of the commands: those that several share, and the way from tables of options to a command's signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from tiering.errors import InputError
from tiering.options import Option, option, options_of, spell_flag
from tiering.run.carrier import ClusterOptions
from tiering.units import parse_threads

from .output import print_artifact, print_estimate

A = TypeVar("A")
_COMMON, _KEYWORD = "Common options", inspect.Parameter.KEYWORD_ONLY
MEMORY = Option("Memory to stay within, such as 8GiB or 50%; page cache is free.", "SIZE|auto", _COMMON)


@dataclass(frozen=True)
class Common:
    """Options that every stage has."""

    memory: str = option("auto", MEMORY.help, MEMORY.metavar, panel=_COMMON)
    threads: str = option("auto", "Threads; the result is the same.", "N|auto", panel=_COMMON)
    force: bool = option(False, "Replace an existing output, if tiering wrote all that it holds.", panel=_COMMON)
    no_verify: bool = option(False, "Do not compare what is read with its checksums.", panel=_COMMON)
    dry_run: bool = option(False, "Print time, memory and disk that it would take, and do nothing.", panel=_COMMON)
    json: bool = option(False, "Print one JSON document instead of text.", panel=_COMMON)


def flag(text: str, *names: str, panel: str | None = None, default: bool = False, **more: Any) -> Any:
    """Return an option of one command with its help; the default is shown on request."""
    return typer.Option(*names, help=text, rich_help_panel=panel, show_default=default, **more)


Out = Annotated[Path, flag("Artifact to write.", "--out", "-o", metavar="DIR")]
Seed = Annotated[int, flag("Seed of everything random.", "--seed", min=0, default=True)]
Train = Annotated[
    str | None,
    flag(
        "Training nodes: a split of the graph, a .npy file of ids (TYPE=FILE where there are several types), or a "
        "fraction such as 1%. Default: the graph's own train split.",
        "--train",
        metavar="SPLIT|FILE|PERCENT",
    ),
]
GraphArgument = Annotated[Path, typer.Argument(metavar="G", help="Graph.", show_default=False)]


@dataclass(frozen=True)
class Group:
    """Options of a table that a command has: all, or those named."""

    table: type
    names: tuple[str, ...] = ()

    def parameters(self) -> list[inspect.Parameter]:
        """Return them as parameters of a command."""
        kinds, known = get_type_hints(self.table), options_of(self.table)
        chosen = [field for field in fields(self.table) if field.name in (self.names or known)]
        return [_parameter(field.name, kinds[field.name], field.default, known[field.name]) for field in chosen]


def _parameter(name: str, kind: Any, default: Any, entry: Option) -> inspect.Parameter:
    if entry.cli is not None:
        kind, default = entry.cli, entry.cli_default
    declared = flag(
        entry.help, *(entry.flags or (spell_flag(name),)), panel=entry.panel, metavar=entry.metavar,
        default=default not in (None, False, MISSING), callback=parse_threads if name == "threads" else None,
    )  # fmt: skip
    return inspect.Parameter(name, _KEYWORD, default=default, annotation=Annotated[kind, declared])


class Call:
    """One call of a command: the values of its options, and those `standing` on the command line."""

    def __init__(self, context: typer.Context, values: Mapping[str, Any]) -> None:
        self.values = values
        sources = {name: context.get_parameter_source(name) for name in context.params}
        self.standing = {n for n, s in sources.items() if s is not None and s.name in ("COMMANDLINE", "ENVIRONMENT")}

    def __getattr__(self, name: str) -> Any:
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(name) from None

    def collect(self, table: type) -> dict[str, Any]:
        """Return the options of a table that the user gave."""
        parsers = {name: entry.from_cli for name, entry in options_of(table).items()}
        values = {name: self.values[name] for name in parsers if name in self.standing and name in self.values}
        return {n: value if (parse := parsers[n]) is None else parse(value) for n, value in values.items()}

    def cluster(self) -> ClusterOptions | None:
        """Return what the options of tasks ask for; ``None`` where the command does the work itself."""
        given = self.collect(ClusterOptions)
        if self.executor is None:
            for name in given:
                raise InputError(f"{spell_flag(name)}: has no effect without --executor; add it, or leave it out")
            return None
        return ClusterOptions(**given)

    def run_stage(self, estimate: Callable[..., Any], make: Callable[..., A], *args: Any, **asked: Any) -> A | None:
        """Run a stage, print its artifact and return it; or print what it would take."""
        asked |= {"threads": self.threads, "memory": self.memory}
        if "executor" in self.values:
            asked["cluster"] = self.cluster()
        if self.dry_run:
            print_estimate(estimate(*args, **asked), self.json)
            return None
        if "no_verify" in self.values:
            asked["verify"] = not self.no_verify
        artifact = make(*args, force=self.force, **asked)
        print_artifact(artifact, self.json)
        return artifact


STAGE = (Group(ClusterOptions), Group(Common))  # options of a command that runs a stage


def takes(*groups: Group) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of groups, as attributes of its first argument, a `Call`."""

    def wrap(command: Callable[..., None]) -> Callable[..., None]:
        kinds, (_, *named) = (
            get_type_hints(command, include_extras=True),
            inspect.signature(command).parameters.values(),
        )
        own = [parameter.replace(kind=_KEYWORD, annotation=kinds[parameter.name]) for parameter in named]
        context = inspect.Parameter("context", _KEYWORD, annotation=typer.Context)

        def run(context: typer.Context, **values: Any) -> None:
            given = {parameter.name: values.pop(parameter.name) for parameter in own}
            command(Call(context, values), **given)

        parameters = [context, *own, *(p for group in groups for p in group.parameters())]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__doc__, run.__name__ = command.__doc__, command.__name__
        return run

    return wrap
