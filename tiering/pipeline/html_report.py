"""One HTML page about artifacts and about what commands have counted and measured: no network, no script."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from tiering.artifacts.artifact import Artifact
from tiering.artifacts.overlap import refuse_overlap
from tiering.artifacts.storage import file_exists, is_folder, require_file, storage_errors, write_durably
from tiering.errors import ExistsError, FormatError, InputError, MissingError, TieringError, quoted
from tiering.evaluation.predictions import drop_repeats
from tiering.formats.layout_tables import tier_tables
from tiering.formats.registry import TYPES, open_artifact
from tiering.loader.stats import LoaderStats
from tiering.pipeline.doctor import examine
from tiering.pipeline.headline import cached_unit, featured_layouts, headline, stored_dtype, tier_bytes, training_memory
from tiering.pipeline.stage import Pathlike
from tiering.text.description import Fields, Figure, Part, Table, to_html
from tiering.text.svg import Axis, Points, draw_bar, draw_lines
from tiering.text.units import format_bytes, format_fanouts, format_share, format_small_seconds
from tiering.version import __version__

Artifacts = Sequence[Artifact]
_DOCUMENTS = ("hit_rates", "evaluations", "knees", "findings", "epochs")  # keys, the first of which says what one is
_PLACES = {"import": 0, "score": 1, "reorder": 2}  # of stages on the page; those of others come last
_GENERATOR = b'<meta name="generator" content="tiering'  # by which a file is known to be a report
_MOST = 1 << 26  # bytes of a document
_BITS = 46  # low bits of float64 that a bin of values leaves out: 64 bins from a number to its double
_CHUNK, _POINTS = 1 << 22, 100  # values read at a time; points of a curve
_PERCENT = "{:.3g} %".format
_FOLDERS = re.compile(r"""(?<![^\s=(\[">;:,])(?<!&lt;)/(?!proc/|sys/|dev/|etc/)(?:[^\s<>&"'/:;,()=]+/)*(?=[^\s<>&/])""")
"""The folders of an absolute path in HTML."""
_STYLE = """
:root { color-scheme: light dark }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 68rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere }
h1 { font-size: 1.6rem; margin: 0 }
h2 { font-size: 1.2rem; margin: 1.5rem 0 .75rem; padding-top: 1rem; border-top: 1px solid #8886 }
div { display: flex; flex-wrap: wrap; gap: 1rem 2.5rem; align-items: flex-start; margin-bottom: 1.25rem }
p { flex: 1 1 100%; margin: 0 }
p + p { margin-top: -.75rem }
figure { flex: 1 1 20rem; max-width: 30rem; min-width: 0; margin: 0 }
figcaption, caption { display: block; font-weight: 600; padding-bottom: .4rem }
table { display: block; max-width: 100%; overflow-x: auto; border-collapse: collapse; font-size: .875rem;
  background: linear-gradient(to right, Canvas 1.5rem, transparent 3rem) local,
    linear-gradient(to left, Canvas 1.5rem, transparent 3rem) right / 3rem 100% no-repeat local,
    linear-gradient(to right, #888a, transparent) left / 1rem 100% no-repeat,
    linear-gradient(to left, #888a, transparent) right / 1rem 100% no-repeat }
th, td { padding: .2rem .9rem .2rem 0; vertical-align: top; border-bottom: 1px solid #8883 }
table:has(thead) :is(td, th), td:first-child { white-space: nowrap }
@media print { :root { font-size: 11px } figure, tr { break-inside: avoid } }
"""


def report(sources: Sequence[Artifact | Mapping[str, Any] | Pathlike], out: Pathlike, *, paths: bool = False) -> Path:
    """Write one HTML page about artifacts and about what was counted and measured of them; return its path.

    Parameters
    ----------
    sources
        Artifacts, opened or by path; JSON of `tiering evaluate`, `plan`, `trace` and `doctor`, loaded or by path.
    out
        The page, such as ``report.html``; an existing report is replaced.
    paths
        Show whole paths. By default the page names files and directories without the folders that they lie in.

    Raises
    ------
    InputError, FormatError, MissingError, ExistsError
        If there is no source; a source is neither an artifact nor such a document, is damaged or missing; `out` is a
        file of another kind.

    Notes
    -----
    Cost: scores, and offsets of adjacency lists, are read once; for a plan one batch of each layout is sampled.
    """
    path, given = Path(out).absolute(), [sources] if isinstance(sources, str | os.PathLike) else list(sources)
    if not given:
        raise InputError("sources: expected artifacts, or JSON printed by commands, found none; name at least one")
    if not is_folder(path.parent):
        raise MissingError(f"{path}: the directory {path.parent} does not exist; create it first")
    if file_exists(path, "a page to write"):
        with storage_errors(path), path.open("rb") as file:
            if _GENERATOR not in file.read(1024):
                raise ExistsError(
                    f"{path}: is a file that tiering did not write; choose another output, or move the file away"
                )
    things = [thing for source in given for thing in _open(source)]
    refuse_overlap(path, [one for _, _, one in things if isinstance(one, Artifact)])
    write_durably(path, _page(things, paths).encode())
    return path


def _open(source: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield the name of a source, its kind (a key of `_SECTIONS`) and itself, then the artifacts inside it."""
    name, opened = str(source) if isinstance(source, str | os.PathLike) else "", getattr(source, "artifact", source)
    if name:
        opened = open_artifact(name, outside=False) if is_folder(Path(name)) else _read(Path(name))
    if isinstance(opened, Artifact):
        yield str(opened.path), opened.kind, opened
        for part in filter(None, map(opened.part, opened.parts())):
            yield from _open(part)
        return
    kinds = [key for key in _DOCUMENTS if isinstance(opened, Mapping) and key in opened]
    if not kinds:
        expected = "an artifact, or the --json output of `tiering evaluate`, `plan`, `trace` or `doctor`"
        raise FormatError(f"{name or quoted(opened)}: expected {expected}, found neither; give one of these")
    yield name, kinds[0], opened


def _read(path: Path) -> Any:
    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is not a number in JSON")

    require_file(path, "an artifact, or JSON printed by a command")
    with storage_errors(path), path.open("rb") as file:
        text = file.read(_MOST)
    try:
        return json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: expected an artifact, or JSON printed by a command, found: {error}") from None


def _page(things: Sequence[tuple[str, str, Any]], paths: bool) -> str:
    artifacts = list({one.digest: one for _, _, one in things if isinstance(one, Artifact)}.values())
    artifacts.sort(key=lambda one: _PLACES.get(one.manifest.provenance.get("stage", ""), 3))
    things = [*((str(one.path), one.kind, one) for one in artifacts), *(one for one in things if one[1] in _DOCUMENTS)]
    if not any(kind == "findings" for _, kind, _ in things):
        things.append(("", "findings", {"findings": [vars(finding) for finding in examine()]}))
    body = []
    for title, makers, command in _SECTIONS:
        blocks: list[list[Part]] = []
        for name, kind, thing in things:
            with _refuse_wrong(name, command):
                parts = makers[kind](thing, artifacts) if kind in makers else ()
                # A graph and its reordered one have much in common: nothing is said twice.
                blocks.append([part for part in parts if not any(part in block for block in blocks)])
        absent = [[f"No data. Give the report {command}."]]
        body += [f"<h2>{title}</h2>", *map(to_html, list(filter(None, blocks)) or absent)]
    with _refuse_wrong("headline", "documents of one version of tiering"):
        top = headline(artifacts, [(kind, thing) for _, kind, thing in things if kind in _DOCUMENTS])
    text = "\n".join([*([to_html([top])] if top.values else []), *body])
    return "\n".join([
        f'<!DOCTYPE html>\n<html lang="en">\n<meta charset="utf-8">\n{_GENERATOR.decode()} {__version__}">',
        f'<meta name="viewport" content="width=device-width">\n<title>tiering report</title>\n<style>{_STYLE}</style>',
        f"<h1>tiering report</h1>\n<p>tiering {__version__}, {time.strftime('%Y-%m-%d %H:%M %Z')}</p>",
        text if paths else _FOLDERS.sub("", text), "</html>\n",
    ])  # fmt: skip


@contextmanager
def _refuse_wrong(name: str, expected: str) -> Iterator[None]:
    """Turn what a document of other content raises into a `FormatError`."""
    try:
        yield
    except TieringError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise FormatError(f"{name}: expected {expected}, found other content ({error!r}); create it again") from error


def _tiers(layout: Any, _: Artifacts) -> Iterator[Part]:
    sizes = tier_bytes(layout)
    if not sum(sizes.values()):
        yield f"{layout.path.name} contains only adjacency lists: its graph has no features."
        return
    bar = {
        t: (own, f"{format_bytes(own)}, {format_share(own, sum(sizes.values()))}") for t, own in sizes.items() if own
    }
    yield Figure(f"{layout.path.name}: bytes of feature rows by tier", draw_bar(bar))
    for part in tier_tables(layout.summary()):
        yield replace(part, title=f"{layout.path.name}: {part.title}") if isinstance(part, Table | Fields) else part


def _hit_rates(document: Mapping[str, Any], _: Artifacts) -> Iterator[Part]:
    for one in document.get("evaluations", [document]):
        shares = [100 * share for share in one["shares"]]
        lines: dict[str, Points] = {}
        for name, rates in one["hit_rates"].items():
            ends = one["intervals"].get(name) or [None] * len(rates)
            halves = [50 * (own[1] - own[0]) if own else 0 for own in ends]
            lines[name] = [*zip(shares, (100 * rate for rate in rates), halves, strict=True), (100, 100)]
        unit, hops = cached_unit(one), f"fanouts {format_fanouts(one['parameters']['fanouts'])}"
        x = Axis(f"{unit} in the fast tier, hottest first", min(shares), 100, _PERCENT, 10)
        yield Figure(f"Reads served, {hops}", draw_lines(x, Axis("reads served", 0, 100, _PERCENT), lines))
        rows = [(name, *(f"{rate:.1f}" for _, rate, *_ in points[:-1])) for name, points in lines.items()]
        yield Table(f"Feature reads served in %, {hops}", (f"{unit} cached", *map(_PERCENT, shares)), rows)


def _predictions(document: Mapping[str, Any], artifacts: Artifacts) -> Iterator[Part]:
    lines, rows = dict[str, list[tuple[float, float, float]]](), list[tuple[str, ...]]()
    groups = groupby(document["epochs"], lambda one: (one["disk"], one["dtype"]))
    for one in (one for _, line in groups for one in drop_repeats(line, itemgetter("all_fit", "epoch_seconds"))):
        memory, seconds, error = (one[name] for name in ("memory", "epoch_seconds", "error"))
        lines.setdefault(f"{one['disk']}, {one['dtype']}", []).append((memory, seconds, error))
        time = f"{format_small_seconds(seconds)} ±{format_small_seconds(error)}" if seconds else "no I/O"
        rows.append((one["disk"], one["dtype"], format_bytes(memory), time, f"{100 * one['hit_rate']:.1f} %"))
    today, dtypes = {}, {one["dtype"] for one in document["epochs"]}
    for layout in featured_layouts(artifacts):
        if (size := training_memory(layout, document)) is not None:
            dtype = stored_dtype(layout)
            today[f"{layout.path.name} today: {format_bytes(size)}"] = size
            if dtype not in dtypes:
                yield f"{layout.path.name} stores {dtype}, missing in the plan: run `tiering plan --dtype {dtype}`."
    memories, times = ([point[at] for points in lines.values() for point in points] for at in (0, 1))
    shown = [*memories, *today.values()]
    x = Axis("memory of the training process", min(shown), max(shown), format_bytes, 2)
    y = Axis("time per epoch", 0, max(times), lambda seconds: format_small_seconds(seconds) if seconds else "0")
    if any(times):
        yield Figure("Predicted epoch by memory", draw_lines(x, y, lines, today))
    else:
        yield "All rows fit in memory at every size that the plan compared: epochs read nothing, so there is no curve."
    columns = ("disk", "rows stored as", "memory", "time per epoch", "rows from memory")
    yield Table("Predicted epochs", columns, rows, left=2)


def _epochs(document: Mapping[str, Any], _: Artifacts) -> Iterator[Part]:
    for epoch in document["epochs"]:
        stats = LoaderStats(**{field.name: epoch[field.name] for field in fields(LoaderStats) if field.name in epoch})
        spent = {stage: stats.seconds[stage] for stage in ("training", "setup")}
        spent |= {f"waiting for {stage}": seconds for stage, seconds in stats.waited.items() if seconds}
        words = {stage: f"{format_small_seconds(own)}, {format_share(own, stats.wall)}" for stage, own in spent.items()}
        title = f"Epoch {epoch['epoch']}: {format_small_seconds(stats.wall)}, bound by {stats.bound_by}"
        yield Figure(title, draw_bar({stage: (own, words[stage]) for stage, own in spent.items()}))
        for part in stats.describe():
            yield replace(part, title=f"Epoch {epoch['epoch']}: {part.title}") if isinstance(part, Table) else part


def _graph(graph: Any, _: Artifacts) -> Iterator[Part]:
    lines = {":".join(relation): _skew(graph.csc(relation)[0], differences=True) for relation in graph.relations}
    yield from _draw_skew("In-degree: edges of the nodes with the highest in-degree", "edges", lines)
    yield from graph.describe()[1:]


def _scores(scores: Any, _: Artifacts) -> Iterator[Part]:
    read = scores.score if scores.kind == "order" else scores.values
    lines = {t: _skew(read(t)) for t in scores.node_types}
    yield from _draw_skew("Scores: expected reads of the hottest nodes", "expected reads", lines)
    yield from scores.describe()[1:]


def _skew(values: Any, *, differences: bool = False) -> Points:
    """Return percent of the values, the largest first, and the percent of their sum that these have; none if it is 0.

    The values are not negative; or the `differences` of ascending ones. Cost: reads each once, memory for few.
    """
    counts, sums = np.zeros(1 << (63 - _BITS), np.int64), np.zeros(1 << (63 - _BITS))
    count = len(values) - differences
    for begin in range(0, count, _CHUNK):
        chunk = values[begin : begin + _CHUNK + differences]
        numbers = np.abs(np.asarray(np.diff(chunk) if differences else chunk, np.float64))
        bins = numbers.view(np.int64) >> _BITS  # floats that are not negative ascend as their bits do
        counts += np.bincount(bins, minlength=len(counts))
        sums += np.bincount(bins, weights=numbers, minlength=len(sums))
    filled = counts.nonzero()[0][::-1]
    ranks, held = (np.cumsum([0, *own[filled]]) for own in (counts, sums))
    at = np.geomspace(1, max(1, count), _POINTS)
    return [*zip(100 * at / count, 100 * np.interp(at, ranks, held) / held[-1], strict=True)] if held[-1] else []


def _draw_skew(title: str, share: str, lines: Mapping[str, Points]) -> Iterator[Part]:
    if lines := {name: points for name, points in lines.items() if points}:
        x = Axis("nodes, highest values first", min(own[0][0] for own in lines.values()), 100, _PERCENT, 10)
        yield Figure(title, draw_lines(x, Axis(share, 0, 100, _PERCENT), lines))


def _origin(artifact: Any, artifacts: Artifacts) -> Iterator[Part]:
    """Yield how an artifact was made and of what."""
    places, made = {one.digest: str(one.path) for one in artifacts}, artifact.manifest.provenance
    inputs = [f"{name}: {places.get(digest, digest)}" for name, digest in made.get("inputs", {}).items()]
    options = [f"{name} = {json.dumps(value)}" for name, value in made.get("options", {}).items() if value is not None]
    more = {"made from": ", ".join(inputs[:20]), "options": ", ".join(options)}
    about = {**artifact.describe()[0].values, **{name: text for name, text in more.items() if text}}
    yield Fields(about, f"{artifact.kind}: {artifact.path.name}")


def _findings(document: Mapping[str, Any], _: Artifacts) -> Iterator[Part]:
    yield Fields({finding["name"]: finding["text"] for finding in document["findings"]})


_SECTIONS: tuple[tuple[str, Mapping[str, Callable[[Any, Artifacts], Iterable[Part]]], str], ...] = (
    ("Tiers", {"layout": _tiers}, "a layout"),
    ("Hit rates", dict.fromkeys(_DOCUMENTS[:2], _hit_rates), "the output of `tiering evaluate G -s S --json`"),
    ("Predicted epochs", {"knees": _predictions}, "the output of `tiering plan G --json`"),
    ("Measured epochs", {"epochs": _epochs}, "the output of `tiering trace L --json`"),
    ("Graph", {"graph": _graph}, "a graph written by `tiering import`"),
    ("Scores", {"scores": _scores, "order": _scores}, "the output of `tiering score G`"),
    ("Artifacts", dict.fromkeys(TYPES, _origin), "the output of `tiering layout`"),
    ("Machine", {"findings": _findings}, "the output of `tiering doctor --json`"),
)
"""Titles, what makes the parts of artifacts by kind and of documents by key, and where these come from."""
