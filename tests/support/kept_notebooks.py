"""Runs the notebooks and keeps what their cells show: ``python tests/support/kept_notebooks.py``.

Readers on the web see these outputs; ``TIERING_DATA`` says where the real graphs lie. They are the same on any machine
but for measured seconds: without the temporary folder that a notebook works in, and without time stamps. Pictures have
few colors, so that files stay small.
"""

from __future__ import annotations

import io
import os
import re
import sys
import tempfile
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import nbformat

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "notebooks").glob("*.ipynb"))
PNG = "image/png"
_DATA = os.environ.get("TIERING_DATA", "../../shared/data").rstrip("/") + "/"
_WORK = re.compile(rf"{re.escape(tempfile.gettempdir())}/tiering-[a-z]+-\w+/?|{re.escape(_DATA)}")
_COLORS = 160


def run_notebook(notebook: Any, folder: Path) -> None:
    """Run all cells in `folder`, with a kernel of its own; outputs are those of this run."""
    from nbclient import NotebookClient

    os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
    where = {"metadata": {"path": str(folder)}}
    options = {"record_timing": False, "coalesce_streams": True}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where, **options).execute()


def output_kinds(cell: Any) -> list[tuple[str, ...]]:
    """Return the streams of a cell, whose texts come when they come, then the MIME types of each other output."""
    outputs = cell.get("outputs", [])
    streams = sorted({(out.output_type, out.name) for out in outputs if "name" in out})
    return streams + [(out.output_type, "", *sorted(out.get("data", {}))) for out in outputs if "name" not in out]


def tidy(output: Any) -> None:
    """Take out of an output what another run would change, and make its pictures small."""
    if "text" in output:
        output.text = _WORK.sub("", output.text)
    for kind, content in output.get("data", {}).items():
        output.data[kind] = small_png(content) if kind == PNG else _WORK.sub("", content)


def small_png(content: str) -> str:
    """Return a picture, in base64, with a palette."""
    from PIL import Image

    file = io.BytesIO()
    picture = Image.open(io.BytesIO(b64decode(content))).convert("RGB")
    picture.quantize(_COLORS, dither=Image.Dither.NONE).save(file, "png", optimize=True)
    return b64encode(file.getvalue()).decode()


def main(paths: list[Path]) -> None:
    """Run notebooks and write them with their outputs."""
    for path in paths:
        notebook = nbformat.read(path, as_version=4)
        metadata = dict(notebook.metadata)
        with tempfile.TemporaryDirectory() as folder:
            run_notebook(notebook, Path(folder))
        notebook.metadata = metadata
        for output in (output for cell in notebook.cells for output in cell.get("outputs", [])):
            tidy(output)
        nbformat.write(notebook, path)
        print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]] or NOTEBOOKS)
