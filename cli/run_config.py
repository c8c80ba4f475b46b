"""`tiering run`: the whole chain from one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import ForceOption, JsonOption
from .output import print_json


def run_command(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="What to run.", show_default=False)],
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Run the whole chain from one file. Finished steps are kept: started again, it goes on where it stopped."""
    from tiering import pipeline

    print_json(pipeline.run_config(config, force=force))
