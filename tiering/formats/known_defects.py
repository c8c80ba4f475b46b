"""Defects of earlier versions: a note about each artifact that may be wrong by its record."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tiering.artifacts.artifact import Artifact
from tiering.text.progress import note

_PARQUET = (".parquet", ".pq")
_noted: set[Path] = set()  # artifacts that this process has printed a note about


def _of_import(graph: Artifact) -> dict[str, Any]:
    """Return the defects of an import by version 0.1, and whether its recorded options leave each open."""
    body, made = graph.manifest.body, graph.manifest.body["changes"]
    form, source, asked, text = made.get("format"), str(made.get("source")), made.get("options", {}), made.get("text")
    whole = {"edge_ids", "weight", "type", "feat", body.get("time", {}).get("name")}  # not cut where loops were added
    data = [{*r["edge_data"]} - whole for r in body["relations"] if r["src"] == r["dst"]]
    files = [file for table in made.get("tables", ()) for file in table["files"]]
    parquet = [file for file in files if file.lower().endswith(_PARQUET)]
    unnamed = [file for file in parquet if Path(file).name not in f"{asked} {source}"]  # of directories or patterns
    splits = [entry["splits"] for entry in body["node_types"].values() if "random_train" not in asked]
    return {
        "edge data lost its fractions": asked.get("self_loops") == "add" and any(data),
        "ids that differ in blanks around them, or in leading zeros, became one node": form == "tables"
        and ("names" in graph.manifest.parts or parquet != files),
        "deleted rows became edges, if the directory was a Delta Lake or Iceberg table": unnamed
        or (form == "parquet" and not source.lower().endswith(_PARQUET)),
        "splits have wrong nodes, if they used the ids of the edges": any(splits)
        and {*asked} & {"compact_ids", "first_id"} and asked.get("split", "official") == "official",
        "edges are reversed, if a comment named the columns like `# ToNodeId FromNodeId`": text
        and {**text, "delimiter": None} == {"delimiter": None, "header": False, "columns": {"src": 0, "dst": 1}},
    }  # fmt: skip


_MODELS = "embeddings of models that use degrees, norms or edge data, or of a run resumed with another model"
DEFECTS: dict[str, tuple[tuple[int, ...], Callable[[Artifact], dict[str, Any]], str]] = {
    "graph": ((0, 2), _of_import, "import the dataset again"),
    "embeddings": ((0, 2), lambda _: {_MODELS: True}, "run inference again"),
}
"""By kind of artifact: the first version without defects, the defects of earlier versions, and the remedy."""


def print_defects(artifact: Artifact) -> None:
    """Print one note in a process about an artifact, and about each nested one, that may be wrong."""
    for part in [one for one in (artifact, *artifact.parts().values()) if one.kind in DEFECTS]:
        (mended, defects, remedy), manifest = DEFECTS[part.kind], part.manifest
        package = manifest.body.get("changes", {}).get("package", manifest.provenance["package"])
        earlier = tuple(map(int, re.findall(r"\d+", package))) < mended and part.path.absolute() not in _noted
        if texts := [text for text, is_open in defects(part).items() if is_open] if earlier else []:
            _noted.add(part.path.absolute())
            note(f"note: {part.path}: {package} may have written errors: {'; '.join(texts)}; if so, {remedy}")
