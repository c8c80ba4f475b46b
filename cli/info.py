"""`tiering info`: what an artifact is, or what this installation can do."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Annotated, Any

import typer

from tiering import __version__

from .describe import print_artifact
from .options import Call, Common, Group, takes
from .output import print_fields, print_json


@takes(Group(Common, ("json",)))
def info_command(
    call: Call,
    path: Annotated[Path | None, typer.Argument(metavar="[PATH]", help="Any artifact.", show_default=False)] = None,
    build: Annotated[bool, typer.Option("--build", help="How the native part was built, what it found.")] = False,
) -> None:
    """Say what an artifact is; without PATH, or with --build, what this installation is."""
    if path is not None and not build:
        from tiering.formats.registry import open_artifact

        print_artifact(open_artifact(path), call.json)
        return
    document = installation()
    if call.json:
        print_json(document)
    else:
        built = document.pop("build")
        print_fields({**document, **built})


def installation() -> dict[str, Any]:
    """Return versions, processor kind, and what the build found; JSON types only."""
    from importlib.metadata import distributions

    from tiering import cuda, native

    torch = [package.version for package in distributions(name="torch")]
    return {
        "tiering": __version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "torch": torch[0] if torch else "not installed (needed by the loader only)",
        "gpu": cuda.status(),
        "build": {**native.build_info(), "cuda part": cuda.architectures() or "not built"},
    }
