"""`tiering doctor`: what this machine gives, what is missing, and how to get it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from .options import Call, Common, Group, flag, takes
from .output import print_fields, print_json, print_line


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
    from tiering.units import parse_bytes

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
