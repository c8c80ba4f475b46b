"""`tiering run`: the whole chain from one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tiering.units import format_seconds

from . import options as opts
from .describe import print_forecast
from .options import COMMON, MEMORY_HELP, option
from .output import print_json, print_table


def run_command(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="What to run.", show_default=False)],
    executor: opts.ExecutorOption = None,
    store: opts.StoreOption = None,
    address: opts.AddressOption = None,
    workers: opts.WorkersOption = None,
    task_memory: opts.TaskMemoryOption = None,
    shards: opts.ShardsOption = None,
    resources: opts.ResourcesOption = None,
    memory: Annotated[
        str | None, option(f"{MEMORY_HELP} [default: the file's, or auto]", panel=COMMON, metavar="SIZE|auto")
    ] = None,
    threads: opts.ThreadsOption = "auto",
    force: Annotated[bool, option("Redo every step.", "--force")] = False,
    no_verify: opts.NoVerifyOption = False,
    dry_run: opts.DryRunOption = False,
    json: opts.JsonOption = False,
) -> None:
    """Run the whole chain from one file. Finished steps are kept: started again, it goes on where it stopped."""
    from tiering import pipeline

    cluster = opts.cluster_options(executor, store, address, workers, task_memory, shards, resources)
    if dry_run:
        print_forecast(pipeline.predict_run(config, threads=threads, memory=memory, force=force, cluster=cluster), json)
        return
    report = pipeline.run_config(
        config, threads=threads, memory=memory, force=force, verify=not no_verify, cluster=cluster
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
