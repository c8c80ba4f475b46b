"""Format ``wikikg``: the knowledge graphs of OGB-LSC, WikiKG90M and its second version; numpy files.

``train_hrt.npy`` (T, 3) of head, relation, tail: an edge goes from head to tail, with the relation as edge data
``type``. ``entity_feat.npy`` has a row for each entity. ``processed/`` may lie between. The triples of val and test
are not edges.
"""

from __future__ import annotations

from pathlib import Path

from tiering.artifacts.regular import entries, is_there
from tiering.datasets.edges import largest_of_type, require_room
from tiering.datasets.features import describe_features
from tiering.datasets.reader import Reader, Reading, Sign
from tiering.errors import InputError, MissingError
from tiering.formats.protocols import Dataset, EdgeData, NodeData

ENTITY = "entity"
RELATION = (ENTITY, "to", ENTITY)
TRIPLES, FEATURES = "train_hrt.npy", "entity_feat.npy"


def _folder(path: Path) -> Path | None:
    places = (path, path / "processed")
    return next((place for place in places if is_there(place / TRIPLES, "triples")), None)


def _open_wikikg(path: Path, reading: Reading) -> Dataset:
    folder = _folder(path)
    if folder is None:
        raise MissingError(f"{path}: expected {TRIPLES}, also in processed/, found none; check the path")
    edges = _edges(folder / TRIPLES, reading)
    features = None
    if is_there(folder / FEATURES, "features of entities"):
        features = describe_features(folder / FEATURES, ENTITY, reading, {}, None)
    count = _num_entities(edges, None if features is None else features.rows, folder, reading)
    reading.notes["node_types"] = [ENTITY]
    reading.ignored(entry for entry in entries(folder) if not entry.name.startswith("."))
    return reading.dataset(folder.parent.name if folder.name == "processed" else folder.name,
                           {ENTITY: NodeData(count, features)}, [edges])  # fmt: skip


def _edges(path: Path, reading: Reading) -> EdgeData:
    triples = reading.open_npy(path, "triples of shape (T, 3): head, relation, tail").array()
    if triples.ndim != 2 or triples.shape[1] != 3 or triples.dtype.str not in ("<i4", "<i8"):
        raise InputError(
            f"{path}: expected int32 or int64 triples of shape (T, 3), found {triples.dtype} {triples.shape}; get the "
            "file again"
        )
    return EdgeData(RELATION, triples[:, 0], triples[:, 2], str(path), {"type": triples[:, 1]})


def _num_entities(edges: EdgeData, rows: int | None, folder: Path, reading: Reading) -> int:
    """As many as have features, or as the option or the specification says; else the largest id + 1."""
    published = reading.published
    stated = [
        (number, origin)
        for number, origin in (
            (reading.options.num_nodes.get(ENTITY), "--num-nodes"),
            (rows, str(folder / FEATURES)),
            (None if published is None else published.nodes.get(ENTITY), "--spec"),
        )
        if number is not None
    ]
    for number, origin in stated[1:]:
        if number != stated[0][0]:
            raise InputError(
                f"{origin}: expected {stated[0][0]} entities as in {stated[0][1]}, found {number}; correct one"
            )
    if stated:
        count, origin = stated[0][0], f"{stated[0][1]}: says that there are {stated[0][0]}; correct it if not"
    else:
        largest = largest_of_type(ENTITY, [edges])
        count, origin = largest.id + 1, f"{largest.place} is the largest; correct it"
        reading.inferred(f"{ENTITY} num_nodes", {"value": count, "from": "largest id + 1"})
    require_room(ENTITY, count, origin, [edges], reading)
    return count


READER = Reader(
    _open_wikikg,
    takes=frozenset(),
    directory=Sign(f"{TRIPLES} (wikikg; also in processed/)", lambda path: _folder(path) is not None),
)
"""Takes no options of its own."""
