"""The commands that only look: `tiering check`, `info` and `doctor`."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Annotated, Any

import typer

from tiering import __version__
from tiering.errors import InputError
from tiering.units import parse_bytes, parse_size

from .options import Call, Common, Group, flag, takes
from .output import print_artifact, print_fields, print_json, print_line

_LOOKED_AT = {
    "structure": "manifest, sizes, index arrays; --full reads every byte",
    "sample": "manifest, sizes, index arrays, a sample of the checksums",
    "full": "manifest, sizes, index arrays, every edge, every checksum",
}


@takes(Group(Common, ("threads", "json")))
def check_command(
    call: Call,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="Any artifact.", show_default=False)],
    full: Annotated[
        bool, flag("Read everything: checksums, every edge, files referred to.", "--full", default=True)
    ] = False,
    sample: Annotated[
        str, flag("With --full: blocks of 64 MiB to compare, such as 1%.", metavar="SHARE", default=True)
    ] = "100%",
) -> None:
    """Print every problem of an artifact and of those inside it. Exit code 1 if there is any."""
    from tiering.artifacts.artifact import VerifyReport
    from tiering.formats.registry import check_artifact

    level, share = "full" if full else "structure", parse_size(sample, "sample").fraction
    if not share:
        raise InputError(f"sample: expected a share of the blocks such as 1%, found {sample!r}")
    if share < 1 and not full:
        raise InputError("sample: only --full compares blocks with checksums; give both, or neither")
    report = VerifyReport(int(call.threads), share)
    problems = check_artifact(path, level, report)
    if call.json:
        listed = [{"where": p.where, "message": p.message, "kind": p.kind} for p in problems]
        document = {"path": str(path), "level": level, "sound": not problems, "problems": listed}
        print_json({**document, "coverage": report.to_json()} if full else document)
    else:
        for problem in problems:
            print_line(str(problem))
        verdict = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}" if problems else "sound"
        if full:
            print_line(str(report))
        print_line(f"{path}: {verdict} ({_LOOKED_AT['sample' if share < 1 else level]})")
    if problems:
        raise typer.Exit(1)


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
    document = _installation()
    if call.json:
        print_json(document)
    else:
        print_fields({**document, **document.pop("build")})


def _installation() -> dict[str, Any]:
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


@takes(Group(Common, ("json",)))
def doctor_command(
    call: Call,
    ssd: Annotated[
        list[Path] | None, flag("Measure the disk of this directory; repeatable.", "--ssd", metavar="DIR")
    ] = None,
    size: Annotated[
        str, flag("File written to each --ssd for a while; a fourth of what is free.", metavar="SIZE", default=True)
    ] = "1GiB",
    seconds: Annotated[float, flag("How long each --ssd is read at random.", min=0.01, default=True)] = 2.0,
) -> None:
    """Say what this machine gives: memory, io_uring, locked memory, GPUs, speed of SSDs; and what is missing.

    Nothing is written unless --ssd names a directory; what is written there is gone when the command ends.
    """
    from tiering.doctor import examine

    findings = examine(ssd or [], size=parse_bytes(size, "--size"), seconds=seconds)
    if call.json:
        print_json({"findings": [finding.to_json() for finding in findings]})
    else:
        print_fields({finding.name: finding.text for finding in findings})
        for finding in findings:
            if finding.advice:
                print_line(f"{finding.name}: {finding.advice}")
    if error := next((finding.error for finding in findings if finding.error), None):
        raise error
