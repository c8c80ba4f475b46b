"""`tiering run`: the whole chain from one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tiering.units import format_seconds, parse_threads

from .describe_forecast import print_forecast
from .options import COMMON, DryRunOption, JsonOption, NoVerifyOption, ThreadsOption
from .output import print_json, print_table


def run_command(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="What to run.", show_default=False)],
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory",
            metavar="SIZE|auto",
            help="Memory to stay within, such as 8GiB or 50%; page cache is free. [default: the file's, or auto]",
            show_default=False,
            rich_help_panel=COMMON,
        ),
    ] = None,
    threads: ThreadsOption = "auto",
    force: Annotated[bool, typer.Option("--force", help="Redo every step.", show_default=False)] = False,
    no_verify: NoVerifyOption = False,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Run the whole chain from one file. Finished steps are kept: started again, it goes on where it stopped."""
    from tiering import pipeline

    if dry_run:
        print_forecast(pipeline.predict_run(config, threads=threads, memory=memory, force=force), json)
        return
    report = pipeline.run_config(
        config, threads=parse_threads(threads), memory=memory, force=force, verify=not no_verify
    )
    if json:
        print_json({"config": str(config), "stages": report})
        return
    rows = [
        (step["stage"], "done" if step["done"] else "was there", format_seconds(step["seconds"]), step["path"])
        for step in report
    ]
    rows.append(("all", "", format_seconds(sum(step["seconds"] for step in report)), ""))
    print_table("", ("step", "", "time", "artifact"), rows, left=2)
