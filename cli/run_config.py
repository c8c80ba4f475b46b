"""`tiering run`: the whole chain from one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tiering.run.carrier import ClusterOptions
from tiering.units import format_seconds

from .describe import print_estimate
from .options import MEMORY, Call, Common, Group, flag, takes
from .output import print_json, print_table


@takes(Group(ClusterOptions), Group(Common, ("threads", "no_verify", "dry_run", "json")))
def run_command(
    call: Call,
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="What to run.", show_default=False)],
    memory: Annotated[
        str | None, flag(f"{MEMORY.help} Default: the file's, or auto.", panel=MEMORY.panel, metavar=MEMORY.metavar)
    ] = None,
    force: Annotated[bool, flag("Redo every step.", "--force")] = False,
) -> None:
    """Run the whole chain from one file. Finished steps are kept: started again, it goes on where it stopped."""
    from tiering import pipeline

    asked = {"threads": call.threads, "memory": memory, "force": force, "cluster": call.cluster()}
    if call.dry_run:
        print_estimate(pipeline.estimate_run(config, **asked), call.json)
        return
    report = pipeline.run_config(config, verify=not call.no_verify, **asked)
    if call.json:
        print_json({"config": str(config), "stages": report})
        return
    rows = [
        (step["stage"], "done" if step["done"] else "was there", format_seconds(step["seconds"]), step["path"])
        for step in report
    ]
    rows.append(("all", "", format_seconds(sum(step["seconds"] for step in report)), ""))
    print_table("", ("step", "", "time", "artifact"), rows, left=2)
