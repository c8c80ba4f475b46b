"""``python3 report.py STEPS JSON SOURCES``: the table of a script's steps, printed, and as JSON with what made it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

COLUMNS = ("step", "result", "seconds", "last line")


def main(steps: str, out: str, sources: str) -> None:
    """Write the report.

    `steps`: a line for each, with tabs between step, result, seconds and text; `sources`: their version.
    """
    rows = [line.split("\t") for line in Path(steps).read_text(errors="replace").splitlines()]
    script = Path(out).stem
    done = [{**dict(zip(COLUMNS, row, strict=True)), "seconds": int(row[2])} for row in rows]
    Path(out).write_text(json.dumps({"script": script, "sources": sources, "steps": done}, indent=1) + "\n")
    widths = [max(len(row[column]) for row in [COLUMNS, *rows]) for column in range(3)]
    for row in [COLUMNS, *rows]:
        print("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]).rstrip())


if __name__ == "__main__":
    main(*sys.argv[1:4])
