"""Tables and columns of the LDBC Social Network Benchmark, as its specification and its generators name them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tiering.artifacts.manifest import Relation

DELIMITER = "|"
STATIC = frozenset({"Organisation", "Place", "Tag", "TagClass"})
"""Types whose tables lie in ``static``; those of the others, and of their edges, in ``dynamic``."""
COLUMNS: Final = {
    "Organisation": "id type name url LocationPlaceId",
    "Place": "id name url type PartOfPlaceId",
    "Tag": "id name url TypeTagClassId",
    "TagClass": "id name url SubclassOfTagClassId",
    "Comment": "creationDate id locationIP browserUsed content length "
    "CreatorPersonId LocationCountryId ParentPostId ParentCommentId",
    "Forum": "creationDate id title ModeratorPersonId",
    "Person": "creationDate id firstName lastName gender birthday locationIP browserUsed LocationCityId language email",
    "Post": "creationDate id imageFile locationIP browserUsed language content length "
    "CreatorPersonId ContainerForumId LocationCountryId",
}
"""Node type -> columns of its table in composite-merged-fk, mode bi."""
RAW = ("deletionDate", "explicitlyDeleted")
"""Columns that mode raw has after ``creationDate``; tables of some edges have only the first."""


@dataclass(frozen=True)
class ForeignKey:
    """A column of a node table that holds the other end of an edge."""

    columns: tuple[str, ...]
    """Its names: the Spark generator's, then those of older ones."""
    relation: Relation
    table: str
    """Where the edges lie in layouts with projected keys."""
    owner_end: int = 0
    """Position in the relation of the type that has the column: 0 source, 2 destination."""


def _key(columns: str, table: str, owner_end: int = 0) -> ForeignKey:
    relation = relation_of_table(table)
    if relation is None:
        raise ValueError(table)
    return ForeignKey(tuple(columns.split()), relation, table, owner_end)


_ENDS = {
    **{name.lower(): name for name in COLUMNS},
    **dict.fromkeys(("city", "country"), "Place"),
    **dict.fromkeys(("university", "company"), "Organisation"),
}
"""Ends of relations in names of tables, in lower case -> node type."""
_MANY_TO_MANY = (
    "Comment_hasTag_Tag", "Forum_hasMember_Person", "Forum_hasTag_Tag", "Person_hasInterest_Tag", "Person_knows_Person",
    "Person_likes_Comment", "Person_likes_Post", "Person_studyAt_University", "Person_workAt_Company",
    "Post_hasTag_Tag",
)  # fmt: skip
ATTRIBUTES: Final = {"Person_studyAt_University": ("classYear",), "Person_workAt_Company": ("workFrom",)}
"""Columns after the ends of an edge."""
EXPLODED = ("Person_email_EmailAddress", "Person_speaks_Language")
"""Tables of layouts called singular, whose table of persons lacks columns; in lower case with the older generator."""


def relation_of_table(name: str) -> Relation | None:
    """The relation of a table of edges, in the spelling of any generator; ``None`` if it is not one."""
    parts = name.split("_")
    if len(parts) != 3 or parts[0].lower() not in _ENDS or parts[2].lower() not in _ENDS:
        return None
    return _ENDS[parts[0].lower()], parts[1], _ENDS[parts[2].lower()]


def node_type_of_table(name: str) -> str | None:
    """The node type of a table, in the spelling of any generator; ``None`` if it is not one."""
    node_type = _ENDS.get(name.lower())
    return node_type if node_type is not None and node_type.lower() == name.lower() else None


FOREIGN_KEYS: Final = {
    "Organisation": (_key("LocationPlaceId place", "Organisation_isLocatedIn_Place"),),
    "Place": (_key("PartOfPlaceId isPartOf", "Place_isPartOf_Place"),),
    "Tag": (_key("TypeTagClassId hasType", "Tag_hasType_TagClass"),),
    "TagClass": (_key("SubclassOfTagClassId isSubclassOf", "TagClass_isSubclassOf_TagClass"),),
    "Comment": (
        _key("CreatorPersonId creator", "Comment_hasCreator_Person"),
        _key("LocationCountryId place country", "Comment_isLocatedIn_Country"),
        _key("ParentPostId replyOfPost", "Comment_replyOf_Post"),
        _key("ParentCommentId replyOfComment", "Comment_replyOf_Comment"),
    ),
    "Forum": (_key("ModeratorPersonId moderator", "Forum_hasModerator_Person"),),
    "Person": (_key("LocationCityId place city", "Person_isLocatedIn_City"),),
    "Post": (
        _key("CreatorPersonId creator", "Post_hasCreator_Person"),
        _key("ContainerForumId Forum.id", "Forum_containerOf_Post", owner_end=2),
        _key("LocationCountryId place country", "Post_isLocatedIn_Country"),
    ),
}
TABLES: Final = {
    relation: name
    for name in (*(key.table for keys in FOREIGN_KEYS.values() for key in keys), *_MANY_TO_MANY)
    if (relation := relation_of_table(name)) is not None
}
"""Relation -> table of its edges, where they have one, as the Spark generator names it."""
MANY_TO_MANY: Final = {relation: name for relation, name in TABLES.items() if name in _MANY_TO_MANY}
"""Those whose edges have a table in every layout."""


def node_layouts(node_type: str) -> list[tuple[str, ...]]:
    """Columns that a node table without header may have; no two are equally many."""
    merged = tuple(COLUMNS[node_type].split())
    keys = {key.columns[0] for key in FOREIGN_KEYS[node_type]}
    layouts = [merged, tuple(name for name in merged if name not in keys)]
    return layouts if node_type in STATIC else layouts + [(names[0], *RAW, *names[1:]) for names in layouts]


def edge_layouts(relation: Relation) -> list[tuple[str, ...]]:
    """Columns that a table of edges without header may have; no two are equally many."""
    table = TABLES[relation]
    ends = ("source id", "destination id", *ATTRIBUTES.get(table, ()))
    if relation[0] in STATIC:
        return [ends]
    return [("creationDate", *RAW[:more], *ends) for more in range(3)]


def folder_of(name: str) -> str:
    """``static/Tag`` of ``Tag``: where a table of the Spark generator lies."""
    return f"{'static' if name.split('_')[0] in STATIC else 'dynamic'}/{name}"
