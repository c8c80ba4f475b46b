"""``python -m benchmarks papers [NAME ...]``: figures of the papers behind the toolkit, their numbers next to ours.

A name is a paper or a figure. Pictures go to ``--pictures``; ``--docs DIR`` writes pictures, tables and figures of
``papers.md`` and keeps what is not made again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.pages import describe_machine, existing_directory, put, show_machine
from benchmarks.papers.figures import Figure, FigureMaker, save
from benchmarks.papers.inputs import Inputs
from tiering.errors import MissingError, TieringError
from tiering.text.units import format_bytes

REPOSITORY = Path(__file__).resolve().parents[2]
PAPERS = ("data_tiering", "gids", "helios", "gnnlab", "uva", "ducati", "gnndrive")
"""Modules, each with a table ``FIGURES``."""
PAGE, BEGIN, END = "papers.md", "<!-- papers: {} -->", "<!-- papers: end -->"


def makers() -> dict[str, FigureMaker]:
    """Return all figures by name."""
    return {
        name: make
        for paper in PAPERS
        for name, make in import_module(f"benchmarks.papers.{paper}").FIGURES.items()
    }  # fmt: skip


def chosen(names: Sequence[str]) -> dict[str, FigureMaker]:
    """Return the figures of papers and figures by these names, all if none; `MissingError` for an unknown name."""
    known, found = makers(), dict[str, FigureMaker]()
    for name in names or PAPERS:
        stem = name.replace("_", "-")
        some = {key: make for key, make in known.items() if key == stem or key.startswith(f"{stem}-")}
        if not some:
            raise MissingError(f"no paper or figure {name!r}; there are: {', '.join(known)}")
        found |= some
    return found


def make(names: Sequence[str], inputs: Inputs, machine: str) -> dict[str, dict[str, Any]]:
    """Return figures as JSON holds them, each with the seconds that it took on a machine."""
    done = {}
    for name, maker in chosen(names).items():
        print(f"{name} ...", file=sys.stderr, flush=True)
        start = time.perf_counter()
        figure = maker(inputs).to_json()
        done[name] = {**figure, "seconds": round(time.perf_counter() - start, 1), "machine": machine}
    return done


def section(name: str, document: dict[str, Any]) -> str:
    """Return the part of the page that a figure writes: picture, setting with the seconds that it took, table."""
    figure = Figure.from_json(document)
    picture = f"![{name}](images/papers/{name}.png)"
    return f"### {figure.title}\n\n{picture}\n\n{figure.setting} Time: {document['seconds']} s.\n\n{figure.table()}"


def write_docs(docs: Path, done: dict[str, dict[str, Any]]) -> None:
    """Write pictures, parts of the page, and the figures in ``benchmarks/papers.json``, keeping others there."""
    path, pictures = docs / "benchmarks" / "papers.json", docs / "images" / "papers"
    kept = json.loads(path.read_text())["figures"] if path.exists() else {}
    for folder in (path.parent, pictures):
        folder.mkdir(parents=True, exist_ok=True)
    for name, document in done.items():
        save(Figure.from_json(document), pictures / f"{name}.png")
        put(docs / PAGE, BEGIN.format(name), END, section(name, document))
        kept[name] = document
    lines = [f"  {json.dumps(name)}: {json.dumps(kept[name])}" for name in makers() if name in kept]
    path.write_text('{"figures": {\n' + ",\n".join(lines) + "\n}}\n")


def main(argv: Sequence[str]) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks papers", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"papers or figures: {', '.join(PAPERS)}")
    parser.add_argument("--data", type=Path, default=REPOSITORY.parent / "shared" / "data", help="where graphs lie")
    place = "on the disk to measure; graphs are made there, too"
    parser.add_argument("--dir", type=existing_directory, default=Path(), help=place)
    parser.add_argument("--pictures", type=Path, default=REPOSITORY / "build" / "papers", help="default: build/papers")
    parser.add_argument(
        "--docs", type=existing_directory, help="write papers.md, its pictures and benchmarks/papers.json there"
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a measurement")
    parser.add_argument("--small", action="store_true", help="a generated graph of 4,096 nodes")
    asked = parser.parse_args(argv)
    machine = describe_machine()
    print(show_machine(machine))
    short = f"{machine['processor']}, {machine['cores']} cores, {format_bytes(machine['memory_bytes'])}"
    try:
        with tempfile.TemporaryDirectory(prefix="tiering-bench-", dir=asked.dir) as work:
            done = make(asked.names, Inputs(asked.data, Path(work), asked.small, asked.seconds), short)
    except TieringError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    asked.pictures.mkdir(parents=True, exist_ok=True)
    for name, document in done.items():
        figure = Figure.from_json(document)
        if not asked.docs:
            save(figure, asked.pictures / f"{name}.png")
        print(f"\n{name}: {figure.title}, {document['seconds']} s\n{figure.setting}\n\n{figure.table()}")
    if asked.docs:
        write_docs(asked.docs, done)
    print(f"\npictures: {asked.docs / 'images' / 'papers' if asked.docs else asked.pictures}")
    return 0
