"""Format ldbc: networks written by the csv module in every layout, damaged ones, and the replica."""

from __future__ import annotations

import csv
import gzip
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiering
import tiering.datasets.text as text_blocks
from tiering.datasets import detect, open_dataset
from tiering.datasets.dense_ids import SparseIds, places_of
from tiering.datasets.scratch import Scratch
from tiering.datasets.sources import dataset_of_sizes, find_source
from tiering.errors import InputError, MissingError
from tiering.formats.protocols import Dataset
from tiering.memory import parse_memory

NODES = {
    "Organisation": "id type name url LocationPlaceId",
    "Place": "id name url type PartOfPlaceId",
    "Tag": "id name url TypeTagClassId",
    "TagClass": "id name url SubclassOfTagClassId",
    "Comment": "creationDate id locationIP browserUsed content length CreatorPersonId LocationCountryId ParentPostId "
    "ParentCommentId",
    "Forum": "creationDate id title ModeratorPersonId",
    "Person": "creationDate id firstName lastName gender birthday locationIP browserUsed LocationCityId language email",
    "Post": "creationDate id imageFile locationIP browserUsed language content length CreatorPersonId ContainerForumId "
    "LocationCountryId",
}
"""Written from the tables of LDBC's specification, as the rest of this page, not from the package."""
KEYS = {
    "LocationPlaceId": ("Organisation_isLocatedIn_Place", "Place", "place"),
    "PartOfPlaceId": ("Place_isPartOf_Place", "Place", "isPartOf"),
    "TypeTagClassId": ("Tag_hasType_TagClass", "TagClass", "hasType"),
    "SubclassOfTagClassId": ("TagClass_isSubclassOf_TagClass", "TagClass", "isSubclassOf"),
    "CreatorPersonId": ("{}_hasCreator_Person", "Person", "creator"),
    "LocationCountryId": ("{}_isLocatedIn_Country", "Place", "place"),
    "ParentPostId": ("Comment_replyOf_Post", "Post", "replyOfPost"),
    "ParentCommentId": ("Comment_replyOf_Comment", "Comment", "replyOfComment"),
    "ModeratorPersonId": ("Forum_hasModerator_Person", "Person", "moderator"),
    "LocationCityId": ("Person_isLocatedIn_City", "Place", "place"),
    "ContainerForumId": ("Forum_containerOf_Post", "Forum", "Forum.id"),
}
"""Column -> table of its edges, type of the other end, name in the older generator."""
EDGES = {
    "Comment_hasTag_Tag": "CommentId TagId",
    "Forum_hasMember_Person": "ForumId PersonId",
    "Forum_hasTag_Tag": "ForumId TagId",
    "Person_hasInterest_Tag": "personId interestId",
    "Person_knows_Person": "Person1Id Person2Id",
    "Person_likes_Comment": "PersonId CommentId",
    "Person_likes_Post": "PersonId PostId",
    "Person_studyAt_University": "PersonId UniversityId classYear",
    "Person_workAt_Company": "PersonId CompanyId workFrom",
    "Post_hasTag_Tag": "PostId TagId",
}
OTHER_TYPES = {"City": "Place", "Country": "Place", "University": "Organisation", "Company": "Organisation"}
STATIC = ("Organisation", "Place", "Tag", "TagClass")
Rows = list[list[str]]


def relation_of(table: str) -> tuple[str, str, str]:
    source, name, target = table.split("_")
    return source, name, OTHER_TYPES.get(target, target)


class Network:
    """A random network: ids of nodes by type, and edges by relation, in the order in which files have them."""

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.ids = {t: rng.permutation(rng.choice(2**62, rng.integers(5, 30), replace=False)).tolist() for t in NODES}
        self.tables: dict[str, tuple[list[str], Rows]] = {}
        self.edges: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
        for node_type, columns in NODES.items():
            names = columns.split()
            rows = [[self._cell(name, rng) for name in names] for _ in self.ids[node_type]]
            for row, own in zip(rows, self.ids[node_type], strict=True):
                row[names.index("id")] = str(own)
            self.tables[node_type] = names, rows
            for place, name in enumerate(names):
                if name in KEYS:
                    table = KEYS[name][0].format(node_type)
                    pairs = [(own, int(r[place])) for own, r in zip(self.ids[node_type], rows, strict=True) if r[place]]
                    self.edges[relation_of(table)] = [p[::-1] for p in pairs] if "containerOf" in table else pairs
        for table, columns in EDGES.items():
            source, _, target = relation = relation_of(table)
            pairs = [(int(rng.choice(self.ids[source])), int(rng.choice(self.ids[target]))) for _ in range(20)]
            rest = ["2008"] * (len(columns.split()) - 2)
            self.edges[relation] = pairs
            names = ["creationDate", *columns.split()]
            self.tables[table] = names, [["2010-10-10T11:08:01.000+00:00", *map(str, pair), *rest] for pair in pairs]

    def _cell(self, name: str, rng: np.random.Generator) -> str:
        if name in KEYS:
            return "" if rng.random() < 0.3 else str(rng.choice(self.ids[KEYS[name][1]]))
        words = {"creationDate": ["1286708881000", "2010-10-10T11:08:01.000+00:00"], "language": ["id", "en;fr"],
                 "content": ["", "Yes", 'She said "yes"', "0x1F", "a, b; c"]}  # fmt: skip
        return str(rng.choice(words.get(name, ["some", "other"])))

    def projected(self) -> dict[str, tuple[list[str], Rows]]:
        """Tables of the layout in which keys have tables of their own."""
        tables = dict(self.tables)
        for node_type in NODES:
            names, rows = self.tables[node_type]
            keep = [k for k, name in enumerate(names) if name not in KEYS]
            tables[node_type] = [names[k] for k in keep], [[row[k] for k in keep] for row in rows]
            for name in names:
                if name in KEYS:
                    table = KEYS[name][0].format(node_type)
                    source, _, target = table.split("_")
                    ends = [f"{source}1Id", f"{target}2Id"] if source == target else [f"{source}Id", f"{target}Id"]
                    pairs = [list(map(str, pair)) for pair in self.edges[relation_of(table)]]
                    if node_type not in STATIC:
                        ends, pairs = ["creationDate", *ends], [["2010", *pair] for pair in pairs]
                    tables[table] = ends, pairs
        return tables

    def check(self, data: Dataset, relations: int = 23) -> None:
        """The dataset has these nodes and edges."""
        original = {t: node.extra["original_id"] for t, node in data.nodes.items()}
        assert {t: ids.tolist() for t, ids in original.items()} == {t: sorted(self.ids[t]) for t in original}
        assert len(data.edges) == relations
        for edge in data.edges:
            pairs = zip(original[edge.relation[0]][edge.src], original[edge.relation[2]][edge.dst], strict=True)
            assert [(int(a), int(b)) for a, b in pairs] == self.edges[edge.relation], edge.relation


def write_rows(path: Path, names: list[str] | None, rows: Rows, **dialect: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", newline="") if path.suffix == ".gz" else path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter="|", lineterminator="\n", escapechar="\\", **dialect)
        writer.writerows([names] if names is not None else [])
        writer.writerows(rows)


def write(
    root: Path, tables: dict[str, tuple[list[str], Rows]], raw: bool = False, header: bool = True, suffix: str = ".csv"
) -> Path:
    """The Spark generator's tree: three parts of each table, one of them without rows."""
    for table, (names, rows) in tables.items():
        static = table.split("_")[0] in STATIC
        if raw and not static:
            more = ["deletionDate"] if table.endswith("_Tag") else ["deletionDate", "explicitlyDeleted"]
            cells = ["2015-01-01T00:00:00.000+00:00", "true"][: len(more)]
            names, rows = [names[0], *more, *names[1:]], [[row[0], *cells, *row[1:]] for row in rows]
        folder = root / ("static" if static else "dynamic") / table
        cut = len(rows) // 3
        for part, some in enumerate((rows[:cut], rows[cut:], [])):
            write_rows(folder / f"part-0000{part}-c000{suffix}", names if header else None, some, doublequote=False)
        (folder / "_SUCCESS").touch()
    return root


@pytest.mark.parametrize("merged", [True, False], ids=["merged", "projected"])
@pytest.mark.parametrize("raw", [False, True], ids=["bi", "raw"])
@pytest.mark.parametrize(("header", "suffix"), [(True, ".csv"), (False, ".csv.gz")])
def test_every_layout_of_the_spark_generator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, merged: bool, raw: bool, header: bool, suffix: str
) -> None:
    network = Network()
    kind = "composite-merged-fk" if merged else "composite-projected-fk"
    tree = tmp_path / "graphs" / "csv" / ("raw" if raw else "bi") / kind / ("" if raw else "initial_snapshot")
    write(tree, network.tables if merged else network.projected(), raw, header, suffix)
    monkeypatch.setattr(text_blocks, "BLOCK_BYTES", 300)
    assert detect(tmp_path) == "ldbc"
    with open_dataset(tmp_path) as data:
        network.check(data)
        assert len(data.notes["ldbc"]["merged_keys"]) == (13 if merged else 0)
        assert "warnings" not in data.notes


@pytest.mark.parametrize("merged", [True, False])
def test_files_of_the_hadoop_generator(tmp_path: Path, merged: bool) -> None:
    network = Network(1)
    for table, (names, rows) in (network.tables if merged else network.projected()).items():
        source, *rest = table.split("_")
        ends = [OTHER_TYPES.get(rest[1], rest[1])] if rest else []
        name = "_".join([source.lower(), *rest[:1], *(end.lower() for end in ends)])
        names = [KEYS[n][2] if n in KEYS else n for n in names]
        if rest:  # ids, then what the edge has
            k = 0 if len(names) == 2 else 1
            names = [f"{source}.id", f"{ends[0]}.id", *names[k + 2 :], "creationDate"]
            rows = [[*row[k:], "2010"] for row in rows]
        folder = tmp_path / "social_network" / ("static" if source in STATIC else "dynamic")
        write_rows(folder / f"{name}_0_0.csv", names, rows[:7])
        write_rows(folder / f"{name}_1_0.csv", names, rows[7:])
    (tmp_path / "social_network/updateStream_0_0_person.csv").write_text("1|2|3\n")
    with open_dataset(tmp_path) as data:
        network.check(data)
        assert [Path(name).name for name in data.notes["ignored_files"]] == ["updateStream_0_0_person.csv"]


@pytest.mark.parametrize("quoting", [csv.QUOTE_ALL, csv.QUOTE_NONE], ids=["all", "none"])
def test_quotes_around_fields_and_in_them(tmp_path: Path, quoting: int) -> None:
    network = Network(2)
    names, rows = network.tables["Comment"]
    for k, row in enumerate(rows):
        row[names.index("content")] = ['"Ah" she said', 'a "b" c', '"', "\\"][
            k % (4 if quoting == csv.QUOTE_ALL else 3)
        ]
    write(tmp_path, network.tables)
    for file in (tmp_path / "dynamic/Comment").glob("part*"):
        file.unlink()
    plain = "\n".join("|".join(row) for row in [names, *rows]) + "\n"
    (tmp_path / "dynamic/Comment/part-0.csv").write_text(plain)
    if quoting == csv.QUOTE_ALL:
        write_rows(tmp_path / "dynamic/Comment/part-0.csv", names, rows, quoting=csv.QUOTE_ALL, doublequote=False)
    with open_dataset(tmp_path) as data:
        network.check(data)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write(tmp_path / "sf", Network().tables)


def table(tree: Path, name: str, part: int = 1) -> Path:
    folder = "static" if name.split("_")[0] in STATIC else "dynamic"
    return tree / folder / name / f"part-0000{part}-c000.csv"


def change(tree: Path, name: str, old: str, new: str) -> None:
    path = table(tree, name)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def line_of(tree: Path, name: str, line: int) -> list[str]:
    return table(tree, name).read_text().splitlines()[line].split("|")


def dangling_key(tree: Path) -> None:
    place = NODES["Post"].split().index("CreatorPersonId")
    row = next(r for r in (line_of(tree, "Post", k) for k in range(1, 9)) if r[place])
    change(tree, "Post", f"|{row[place]}|", "|77|")


def dangling_end(tree: Path) -> None:
    change(tree, "Person_likes_Comment", "|".join(line_of(tree, "Person_likes_Comment", 3)), "2010|78|1")


def word_as_id(tree: Path) -> None:
    own = line_of(tree, "Forum", 2)[1]
    change(tree, "Forum", own, "forum-7")


def hexadecimal(tree: Path) -> None:
    change(tree, "Forum", line_of(tree, "Forum", 1)[1], "0x1F")


def word_as_key(tree: Path) -> None:
    row = line_of(tree, "Forum", 1)
    change(tree, "Forum", "|".join(row), "|".join([*row[:3], "nobody"]))


def too_large(tree: Path) -> None:
    change(tree, "Tag", line_of(tree, "Tag", 1)[0], str(2**63))


def empty_id(tree: Path) -> None:
    change(tree, "Tag", line_of(tree, "Tag", 2)[0] + "|", "|")


def empty_end(tree: Path) -> None:
    row = line_of(tree, "Person_knows_Person", 1)
    change(tree, "Person_knows_Person", "|".join(row), f"{row[0]}||{row[2]}")


def short_line(tree: Path) -> None:
    change(tree, "Forum", "|".join(line_of(tree, "Forum", 2)), "2010|5")


def twice(tree: Path) -> None:
    text = table(tree, "Comment").read_text().splitlines()
    table(tree, "Comment", 2).write_text(f"{text[0]}\n{text[1]}\n")


def no_column(tree: Path) -> None:
    change(tree, "Forum", "ModeratorPersonId", "moderated")


def no_id(tree: Path) -> None:
    change(tree, "Place", "id|name", "identifier|name")


def other_ends(tree: Path) -> None:
    change(tree, "Post_hasTag_Tag", "PostId|TagId", "TagId|PostId")


def no_table(tree: Path) -> None:
    (tree / "dynamic/Post_hasTag_Tag").rename(tree / "dynamic/post_tags")


def no_parts(tree: Path) -> None:
    for path in (tree / "static/TagClass").glob("part*"):
        path.rename(path.with_suffix(".parquet"))


def no_rows(tree: Path) -> None:
    for part in range(3):
        table(tree, "TagClass", part).write_text("id|name|url|SubclassOfTagClassId\n")


def cut_gzip(tree: Path) -> None:
    path = table(tree, "Tag")
    path.with_suffix(".csv.gz").write_bytes(gzip.compress(path.read_bytes())[:-20])
    path.unlink()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            dangling_key,
            r"dynamic/Post/part-00001.*: column CreatorPersonId: expected the id of a Person, found 77, which",
        ),
        (dangling_end, r"likes_Comment/part-00001.*: column PersonId: expected the id of a Person, found 78, which"),
        (word_as_id, r"Forum/part-00001-c000.csv: line 3: expected a whole number below 2\^63 as id, found 'forum-7'"),
        (hexadecimal, "Forum/part-00001-c000.csv: line 2: expected a whole number .* found '0x1F'"),
        (word_as_key, "line 2: expected a whole number below .* as ModeratorPersonId, found 'nobody'"),
        (too_large, "line 2: expected a whole number .* found '9223372036854775808'"),
        (empty_id, "Tag/part-00001-c000.csv: line 3: expected a whole number as id, found nothing"),
        (empty_end, "line 2: expected a whole number as source id, found nothing"),
        (short_line, r"line 3: expected 4 fields separated by \|, found 2: '2010\|5'"),
        (twice, r"dynamic/Comment: expected each id once, found \d+ twice"),
        (
            no_column,
            "expected a column ModeratorPersonId, or the table dynamic/Forum_hasModerator_Person, found columns",
        ),
        (no_id, "static/Place/part-00001-c000.csv: expected a column id, found columns identifier, name"),
        (other_ends, r"expected two columns of ids, of Post and Tag in this order, found columns creationDate, TagId"),
        (no_table, "Post_hasTag_Tag: expected the table Post_hasTag_Tag, found nothing; .*--relations"),
        (no_parts, r"static/TagClass: expected part-\*.csv or part-\*.csv.gz, found none"),
        (no_rows, "static/TagClass: expected nodes, found none"),
        (cut_gzip, "damaged or cut gzip data"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_damage_is_one_error_that_names_the_place(tree: Path, spoil: Callable[[Path], None], message: str) -> None:
    spoil(tree)
    with pytest.raises((InputError, MissingError), match=message):
        open_dataset(tree)


def test_what_cannot_be_told_is_refused(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="no table of persons there or below"):
        open_dataset(tmp_path / "sf" / "static", format="ldbc")
    with pytest.raises(InputError, match="no dataset recognised"):
        open_dataset(tmp_path / "sf" / "static")
    write(tmp_path / "two/raw/a-fk", Network().tables, raw=True)
    write(tmp_path / "two/bi/a-fk", Network().tables)
    with pytest.raises(InputError, match=r"expected one dataset, found .*two/bi/a-fk, .*two/raw/a-fk"):
        open_dataset(tmp_path / "two")
    with pytest.raises(InputError, match="expected 3 nodes of type Tag as in --num-nodes"):
        open_dataset(tree, num_nodes={"Tag": 3})
    with pytest.raises(MissingError, match="no relation Person:hates:Person; there are: Comment:hasCreator:Person"):
        open_dataset(tree, relations="Person:hates:Person")
    headless = write(tmp_path / "none", Network().tables, header=False)
    (headless / "dynamic/Person_email_EmailAddress").mkdir()
    write_rows(headless / "dynamic/Person_email_EmailAddress/part-0.csv", None, [["2010", "1", "a@b"]])
    with pytest.raises(InputError, match="expected a header, because attributes have tables of their own"):
        open_dataset(headless)
    write_rows(table(tree, "Tag"), None, [["1", "2", "3", "4", "5"]])
    with pytest.raises(InputError, match="expected 4 or 3 columns where there is no header, found 5"):
        open_dataset(tree)


def test_relations_and_what_lies_beside(tree: Path) -> None:
    (tree / "inserts").mkdir()
    (tree / "dynamic/Person_speaks_Language").mkdir()
    no_table(tree)  # not asked for
    with open_dataset(tree, relations="Person:knows:Person,Forum__containerOf__Post", reverse_edges=True) as data:
        assert sorted(data.nodes) == ["Forum", "Person", "Post"]
        knows = Network().edges["Person", "knows", "Person"]
        found = data.edge(("Person", "knows", "Person"))
        original = data.nodes["Person"].extra["original_id"]
        both = Counter([*knows, *((b, a) for a, b in knows if a != b)])
        pairs = zip(original[found.src].tolist(), original[found.dst].tolist(), strict=True)
        assert Counter(pairs) == both
        assert data.edge(("Post", "rev_containerOf", "Forum")).num_edges == data.edges[0].num_edges
        ignored = {Path(name).name for name in data.notes["ignored_files"]}
        assert {"inserts", "post_tags", "Person_speaks_Language"} <= ignored
        assert "Person" not in ignored


def test_original_ids_stay_with_the_graph(tree: Path, tmp_path: Path) -> None:
    network = Network()
    graph = tiering.import_graph(tree, tmp_path / "graph")
    assert graph.feature_table("Person") is None
    assert tiering.check(graph.path, "full") == []
    ids = graph.manifest.array("nodes/Person/original_id")
    assert ids.tolist() == sorted(network.ids["Person"])
    indptr, indices = graph.csc(("Person", "likes", "Post"))
    posts = graph.manifest.array("nodes/Post/original_id")
    found = [(int(ids[s]), int(posts[d])) for d in range(len(posts)) for s in indices[indptr[d] : indptr[d + 1]]]
    assert sorted(found) == sorted(network.edges["Person", "likes", "Post"])


@settings(max_examples=80)
@given(
    ids=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=60, unique=True),
    run=st.integers(1, 70),
    block=st.integers(1, 20),
    others=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=10),
)
def test_ids_are_sorted_in_runs_and_found_again(ids: list[int], run: int, block: int, others: list[int]) -> None:
    sink = SparseIds(Scratch(None, parse_memory("64MiB")), run=run)
    for first in range(0, len(ids), block):
        sink.append(np.array(ids[first : first + block], np.int64))
    made = sink.finish("here")
    assert made.tolist() == sorted(ids)
    numbers = {one: k for k, one in enumerate(sorted(ids))}
    asked = [*ids, *others]
    assert places_of(made, np.array(asked, np.int64)).tolist() == [numbers.get(one, -1) for one in asked]


def test_ids_in_ascending_order_of_search_and_dense_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiering.datasets.dense_ids.FITS_CACHE", 0)
    ids, values = np.array([3, 5, 9, 2**62], np.int64), np.array([9, 4, 2**62, 3, -1, 10], np.int64)
    assert places_of(ids, values).tolist() == [2, -1, 3, 0, -1, -1]
    assert places_of(np.arange(5, 9), np.array([8, 4, 5, 9, -(2**63)])).tolist() == [3, -1, 0, -1, -1]
    scratch = Scratch(None, parse_memory("64MiB"))
    sink = SparseIds(scratch, run=2)
    for one in (7, 8, 1, 7):
        sink.append(np.array([one], np.int64))
    with pytest.raises(InputError, match="here: expected each id once, found 7 twice"):
        sink.finish("here")
    scratch.close()


def read_back(folder: Path) -> list[dict[str, str]]:
    rows = []
    for path in sorted(folder.glob("part-*.csv")):
        with path.open(newline="") as file:
            rows += list(csv.DictReader(file, delimiter="|", escapechar="\\", doublequote=False))
    return rows


def test_the_replica_has_the_tree_and_is_imported_by_its_specification(tmp_path: Path) -> None:
    made = tiering.replicate_dataset("ldbc-sf1", tmp_path / "small", scale=0.0005, seed=3)
    root = tmp_path / "small/graphs/csv/bi/composite-merged-fk/initial_snapshot"
    comments, posts, persons = (read_back(root / "dynamic" / name) for name in ("Comment", "Post", "Person"))
    assert len(list((root / "dynamic/Comment").glob("part-*.csv"))) == 3
    assert len(comments) == round(1_739_438 * 0.0005)
    assert min(int(row["id"]) for row in persons) > 2**40
    answers = Counter((row["ParentPostId"] != "", row["ParentCommentId"] != "") for row in comments)
    assert answers[True, False] == round(950_418 * 0.0005)
    assert answers[False, True] == round(789_020 * 0.0005)
    assert {row["language"] for row in posts} >= {"id"}
    assert any("|" in row["content"] for row in posts)
    graph = tiering.import_graph(tmp_path / "small", tmp_path / "graph", spec="ldbc-sf1")
    assert {t: graph.num_nodes(t) for t in graph.node_types} == made["num_nodes"]
    assert {"__".join(r): graph.num_edges(r) for r in graph.relations} == made["num_edges"]
    ids = {t: graph.manifest.array(f"nodes/{t}/original_id").tolist() for t in graph.node_types}
    assert ids["Comment"] == sorted(int(row["id"]) for row in comments)
    indptr, indices = graph.csc(("Comment", "replyOf", "Post"))
    dst = np.repeat(np.arange(graph.num_nodes("Post")), np.diff(indptr))
    found = {(ids["Comment"][s], ids["Post"][d]) for s, d in zip(indices.tolist(), dst.tolist(), strict=True)}
    assert found == {(int(row["id"]), int(row["ParentPostId"])) for row in comments if row["ParentPostId"]}
    again = tiering.replicate_dataset("ldbc-sf1", tmp_path / "again", scale=0.0005, seed=3)
    for path in root.rglob("*.csv"):
        assert path.read_bytes() == (Path(again["path"]) / path.relative_to(tmp_path / "small")).read_bytes()


def test_numbers_of_another_version_are_told_and_a_missing_table_refused(tmp_path: Path) -> None:
    root = write(tmp_path / "graphs/csv/bi/composite-merged-fk/initial_snapshot", Network().tables)
    with open_dataset(tmp_path, spec="ldbc-sf1") as data:
        count = len(Network().ids["Person"])
        warnings = [line for line in data.notes["warnings"] if line.startswith(str(root / "dynamic/Person"))]
        assert warnings[0].startswith(f"{root}/dynamic/Person: has {count} nodes, 10295 are published for it")
    no_table(root)
    with pytest.raises(MissingError, match=r"Post_hasTag_Tag.*: expected edges of ldbc-sf1, found nothing"):
        open_dataset(tmp_path, spec="ldbc-sf1")


@pytest.mark.parametrize(
    ("name", "nodes", "edges"),
    [
        ("ldbc-sf1", 2_997_352, 17_196_776),
        ("ldbc-sf300", 738_162_716, 5_078_844_191),
        ("ldbc-sf30000", 72_618_599_705, 539_565_683_952),
    ],
)
def test_numbers_add_up_to_the_totals_of_the_specification(name: str, nodes: int, edges: int) -> None:
    source = find_source(name)
    assert sum(source.nodes.values()) == nodes
    assert sum(source.edges.values()) == edges
    assert source.edges["Forum__containerOf__Post"] == source.nodes["Post"]
    with dataset_of_sizes(source) as data:
        assert sum(edge.num_edges for edge in data.edges) == edges
