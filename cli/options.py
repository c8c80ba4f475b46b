"""Options of the commands: those that several share, and the way from tables of options to a command."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import click
import typer

from tiering import errors
from tiering.errors import InputError
from tiering.run.options import ClusterOptions
from tiering.text.arguments import require_local
from tiering.text.options import Option, option, options_of, spell_flag
from tiering.text.units import parse_threads

from .output import print_artifact, print_estimate
from .parameters import COMMON, Text

_KEYWORD = inspect.Parameter.KEYWORD_ONLY
MEMORY = Option("Memory limit, for example 8GiB or 50%. The page cache does not count.", "SIZE|auto", COMMON)


@dataclass(frozen=True)
class Common:
    """Options that every stage has."""

    memory: str = option("auto", MEMORY.help, MEMORY.metavar, panel=COMMON)
    threads: str = option("auto", "Number of threads; the result does not depend on it.", "N|auto", panel=COMMON)
    force: bool = option(False, "Replace an existing output, if tiering wrote everything in it.", panel=COMMON)
    no_verify: bool = option(False, "Do not compare what is read with its checksums.", panel=COMMON)
    dry_run: bool = option(False, "Print the time, memory and disk space needed, and do nothing.", panel=COMMON)
    json: bool = option(False, "Print one JSON document instead of text.", panel=COMMON)


Out = Annotated[Path, typer.Option("--out", "-o", help="Artifact to write.", metavar="DIR")]
Seed = Annotated[int, typer.Option(help="Seed of all random choices.", min=0)]
Train = Annotated[
    str | None,
    typer.Option(
        help="Training nodes: a split of the graph, a .npy file of ids (TYPE=FILE if there are several types), or "
        "a fraction such as 1%. Default: the graph's split named train.",
        metavar="SPLIT|FILE|PERCENT",
    ),
]
SeedTime = Annotated[
    str | None,
    typer.Option(
        help="With --time: a .npy file with the time of each training node, in their order (TYPE=FILE if there are "
        "several types). A node may occur several times. Default: the nodes' own times.",
        metavar="FILE",
    ),
]
GraphArgument = Annotated[Path, typer.Argument(metavar="G", help="Graph.")]


def group(table: type, *names: str) -> list[inspect.Parameter]:
    """Return the options of a table that a command has, all or those named, as parameters of a function."""
    known = options_of(table)
    chosen = [field for field in fields(table) if field.name in (names or known)]
    # Only types that are the command line's too: others may need modules that take time to load.
    plain = {"__annotations__": {f.name: f.type for f in chosen if known[f.name].cli is None}}
    kinds = get_type_hints(type("Plain", (), plain), vars(sys.modules[table.__module__]))
    return [_parameter(field, kinds.get(field.name), known[field.name]) for field in chosen]


def _parameter(field: Field[Any], kind: Any, entry: Option) -> inspect.Parameter:
    kind, default = (kind, field.default) if entry.cli is None else (entry.cli, entry.cli_default)
    plain = kind
    while inner := get_args(plain):
        plain = inner[0]  # str of list[str] | None
    info = typer.Option(
        *(entry.flags or (spell_flag(field.name),)), help=entry.help, metavar=entry.metavar,
        rich_help_panel=entry.panel, click_type=Text(entry.metavar, entry.parse) if plain is str else None,
        callback=parse_threads if field.name == "threads" else None,
    )  # fmt: skip
    return inspect.Parameter(field.name, _KEYWORD, default=default, annotation=Annotated[kind, info])


class Call:
    """One call of a command: the values of its options, and those `standing` on the command line."""

    def __init__(self, context: click.Context, values: Mapping[str, Any]) -> None:
        self.values = values
        sources = {name: context.get_parameter_source(name) for name in context.params}
        self.standing = {n for n, s in sources.items() if s is not None and s.name in ("COMMANDLINE", "ENVIRONMENT")}

    def __getattr__(self, name: str) -> Any:
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(name) from None

    def collect(self, *tables: type) -> dict[str, Any]:
        """Return the options of tables that the user gave."""
        parsers = {name: entry.from_cli for table in tables for name, entry in options_of(table).items()}
        values = {name: self.values[name] for name in parsers if name in self.standing and name in self.values}
        return {n: value if (parse := parsers[n]) is None else parse(value) for n, value in values.items()}

    def cluster(self) -> ClusterOptions | None:
        """Return the options of tasks; ``None`` where the command does the work itself."""
        given = self.collect(ClusterOptions)
        if self.executor is None:
            for name in given:
                raise InputError(f"{spell_flag(name)}: has no effect without --executor; add it, or omit the option")
            return None
        return ClusterOptions(**given)

    def run_stage(self, estimate: str, make: str, *args: Any, **asked: Any) -> Any:
        """Run a stage by functions of the pipeline, print its artifact and return it; or print what it would take."""
        from tiering import pipeline

        asked |= {"threads": self.threads, "memory": self.memory}
        if "executor" in self.values:
            asked["cluster"] = self.cluster()
        if self.dry_run:
            print_estimate(getattr(pipeline, estimate)(*args, **asked), self.json)
            return None
        if "no_verify" in self.values:
            asked["verify"] = not self.no_verify
        artifact = getattr(pipeline, make)(*args, force=self.force, **asked)
        print_artifact(artifact, self.json)
        return artifact


STAGE = (group(ClusterOptions), group(Common))  # options of a command that runs a stage


def takes(
    *groups: list[inspect.Parameter], remote: tuple[str, ...] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a function the options of groups, as attributes of the `Call` it gets, next to its own parameters.

    Parameters in `remote` may be URLs.
    """

    def wrap(function: Callable[..., None]) -> Callable[..., None]:
        _, *own = inspect.signature(function, eval_str=True).parameters.values()

        def run(**values: Any) -> None:
            context = click.get_current_context()
            options = [p for p in context.command.params if isinstance(p, click.Option)]
            errors.flags = {str(p.name).rstrip("_"): max(p.opts, key=len) for p in options}
            require_local(**{name: value for name, value in values.items() if name not in remote})
            function(Call(context, values), **{parameter.name: values.pop(parameter.name) for parameter in own})

        parameters = [p.replace(kind=_KEYWORD) for p in chain(own, *groups)]
        vars(run)["__signature__"] = inspect.Signature(parameters)
        run.__doc__ = function.__doc__
        return run

    return wrap
