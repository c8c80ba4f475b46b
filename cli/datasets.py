"""`tiering datasets`: the published datasets that the package knows, their sizes, files and defects."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tiering.units import format_bytes, format_count

from .options import Call, Common, Group, takes
from .output import print_fields, print_json, print_line, print_table

if TYPE_CHECKING:
    from tiering.datasets.specs import DatasetSpec


@takes(Group(Common, ("json",)))
def datasets_command(
    call: Call,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="One of them, or the TOML file of another.")
    ] = None,
) -> None:
    """List published datasets with what importing them takes; with NAME: its files, rules and known defects.

    `tiering import DIR --spec NAME` holds a download against it before work begins.
    """
    from tiering.datasets.specs import find_spec, known_specs

    if name is None:
        if call.json:
            print_json({source.name: _document(source) for source in known_specs().values()})
        else:
            rows = [_row(source) for source in known_specs().values()]
            columns = ("dataset", "format", "nodes", "edges", "files", "graph", "least memory")
            print_table("", columns, rows, left=2)
            print_line("tiering datasets NAME says more; tiering import --spec NAME --dry-run needs no data")
        return
    source = find_spec(name)
    if call.json:
        print_json(_document(source))
    else:
        _print(source)


def _row(source: DatasetSpec) -> tuple[str, ...]:
    from tiering.pipeline import estimate_spec

    files = format_bytes(source.bytes) if source.bytes else ""
    sizes = estimate_spec(source)
    if sizes is None:
        return source.name, source.format, "", "", files, "", ""
    graph, memory = sizes
    counts = format_count(graph.num_nodes()), format_count(graph.num_edges())
    return source.name, source.format, *counts, files, format_bytes(graph.graph_bytes()), format_bytes(memory)


def _document(source: DatasetSpec) -> dict[str, Any]:
    from tiering.pipeline import estimate_spec

    sizes, document = estimate_spec(source), asdict(source)
    for name in ("roots", "labels", "splits"):
        del document[name]
    shown = ("path", "holds", "of", "dtypes", "shape", "bytes", "optional")
    return {
        **document,
        "files": [{name: getattr(file, name) for name in shown} for file in source.files],
        "graph_bytes": sizes and sizes[0].graph_bytes(),
        "least_memory": sizes and sizes[1],
        "defects": [{"id": d.id, "text": d.text, "cure": d.cure} for d in source.defects],
    }


def _print(source: DatasetSpec) -> None:
    from tiering.datasets.specs import FLAGS, list_files

    row = _row(source)
    options = ", ".join(f"{key} = {value}" for key, value in source.options.items())
    print_fields(
        {
            source.name: source.title,
            "home": source.home,
            "licence": source.licence,
            "cite": source.citation,
            "format": source.format,
            "labels": source.labels,
            "splits": source.splits,
            "imported with": options or "no options",
            "graph": f"{row[5] or '?'} in addition to the features; least memory {row[6] or '?'}",
        }
    )
    print_line("")
    counts = [(name, format_count(n)) for name, n in (*source.nodes.items(), *source.edges.items())]
    counts += [(name, f"about {format_count(n)}") for name, n in source.about.items() if name not in FLAGS]
    if counts:
        print_table("Nodes and edges", ("type, relation", "number"), counts)
    print_table(f"Files, in {' or '.join(r or 'the directory itself' for r in source.roots)}",
                ("file", "holds", "size"), list_files(source), left=2)  # fmt: skip
    for defect in source.defects:
        print_line(f"- {defect.text} ({defect.id}) {defect.cure}")
    print_line(f"next: tiering import DIR --spec {source.name} --out GRAPH")
