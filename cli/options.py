"""Options of the commands: those that several share, and the way from tables of options to a command."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import click

from tiering import errors
from tiering.errors import InputError
from tiering.run.options import ClusterOptions
from tiering.text.arguments import require_local
from tiering.text.options import Option, option, options_of, spell_flag
from tiering.text.units import parse_threads

from .output import print_artifact, print_estimate
from .parameters import COMMON, Command, make_parameter

MEMORY = Option("Memory to stay within, such as 8GiB or 50%; page cache is free.", "SIZE|auto", COMMON)


@dataclass(frozen=True)
class Common:
    """Options that every stage has."""

    memory: str = option("auto", MEMORY.help, MEMORY.metavar, panel=COMMON)
    threads: str = option("auto", "Threads; the result is the same.", "N|auto", panel=COMMON)
    force: bool = option(False, "Replace an existing output, if tiering wrote all that it holds.", panel=COMMON)
    no_verify: bool = option(False, "Do not compare what is read with its checksums.", panel=COMMON)
    dry_run: bool = option(False, "Print time, memory and disk that it would take, and do nothing.", panel=COMMON)
    json: bool = option(False, "Print one JSON document instead of text.", panel=COMMON)


def flag(text: str, *names: str, default: bool = False, **more: Any) -> Any:
    """Return an option of one command with its help; the default is shown on request."""
    return partial(make_parameter, text=text, flags=names, show=default, **more)


def argument(metavar: str, text: str, **more: Any) -> Any:
    """Return an argument of one command."""
    return partial(make_parameter, text=text, metavar=metavar, argument=True, **more)


Out = Annotated[Path, flag("Artifact to write.", "--out", "-o", metavar="DIR")]
Seed = Annotated[int, flag("Seed of everything random.", "--seed", least=0, default=True)]
Train = Annotated[
    str | None,
    flag(
        "Training nodes: a split of the graph, a .npy file of ids (TYPE=FILE where there are several types), or a "
        "fraction such as 1%. Default: the graph's own train split.",
        "--train",
        metavar="SPLIT|FILE|PERCENT",
    ),
]
SeedTime = Annotated[
    str | None,
    flag(
        "With --time: a .npy file of the time of each training node, in their order (TYPE=FILE where there are several "
        "types); a node may come several times then. Default: the nodes' own times.",
        "--seed-time",
        metavar="FILE",
    ),
]
GraphArgument = Annotated[Path, argument("G", "Graph.")]


@dataclass(frozen=True)
class Group:
    """Options of a table that a command has: all, or those named."""

    table: type
    names: tuple[str, ...] = ()

    def parameters(self) -> list[click.Parameter]:
        """Return the options of the table as parameters of a command."""
        known = options_of(self.table)
        chosen = [field for field in fields(self.table) if field.name in (self.names or known)]
        # Only types that are the command line's too: others may need modules that take time to load.
        plain = {"__annotations__": {f.name: f.type for f in chosen if known[f.name].cli is None}}
        kinds = get_type_hints(type("Plain", (), plain), vars(sys.modules[self.table.__module__]))
        return [_parameter(field, kinds.get(field.name), known[field.name]) for field in chosen]


def _parameter(field: Field[Any], kind: Any, entry: Option) -> click.Parameter:
    name, default = field.name, field.default
    if entry.cli is not None:
        kind, default = entry.cli, entry.cli_default
    checks: Any = {"callback": lambda ctx, param, value: parse_threads(value)} if name == "threads" else {}
    return make_parameter(
        name, kind, default, text=entry.help, flags=entry.flags, panel=entry.panel, metavar=entry.metavar,
        parse=entry.parse, show=default not in (None, False, MISSING), **checks,
    )  # fmt: skip


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
                raise InputError(f"{spell_flag(name)}: has no effect without --executor; add it, or leave it out")
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


STAGE = (Group(ClusterOptions), Group(Common))  # options of a command that runs a stage


def takes(*groups: Group, remote: tuple[str, ...] = ()) -> Callable[[Callable[..., None]], Command]:
    """Make a command of a function: its own parameters, and the options of groups as attributes of the `Call`.

    Parameters in `remote` may be URLs.
    """

    def wrap(function: Callable[..., None]) -> Command:
        kinds = get_type_hints(function, include_extras=True)
        _, *named = inspect.signature(function).parameters.values()
        own = [kinds[p.name].__metadata__[0](p.name, kinds[p.name].__origin__, p.default) for p in named]

        @click.pass_context
        def run(context: click.Context, /, **values: Any) -> None:
            values = {name: list(v) or None if isinstance(v, tuple) else v for name, v in values.items()}
            errors.flags = {
                str(p.name).rstrip("_"): max(p.opts, key=len) for p in parameters if isinstance(p, click.Option)
            }
            require_local(**{name: value for name, value in values.items() if name not in remote})
            function(Call(context, values), **{parameter.name: values.pop(parameter.name) for parameter in named})

        parameters = [*own, *(parameter for group in groups for parameter in group.parameters())]
        name = function.__name__.removesuffix("_command")
        return Command(name, params=parameters, callback=run, help=function.__doc__)

    return wrap
