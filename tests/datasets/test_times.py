"""Times at import: wherever they lie, each list is in their order; what is no time is refused with its place."""

from __future__ import annotations

import gzip
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

import tiering
from tiering.errors import FormatError, InputError, MissingError, TieringError
from tiering.formats.graph import Graph
from tiering.formats.times import require_time
from tiering.graph.time_order import TimeOrder

SRC, DST = np.array([1, 2, 3, 4, 0, 5, 3, 3, 2, 5, 0]), np.array([0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4])
TIME, NODE_TIME = np.array([3, 1, 3, 5, 2, 4, 1, 2, 2, 6, 0]), np.array([0, 3, 1, 3, 5, 6])
DATES = (TIME * 1_000_003).astype("M8[us]")


def check(graph: Graph, times: Any, src: Any = SRC, dst: Any = DST, relation: Any = None) -> None:
    order = np.lexsort((times, dst))  # stable
    np.testing.assert_array_equal(graph.csc(relation)[1], src[order])
    np.testing.assert_array_equal(graph.times(relation), times[order])
    np.testing.assert_array_equal(graph.edge_data(relation)["edge_ids"], order)
    assert tiering.check(graph.path, "full") == []


def write_npy(folder: Path, **arrays: Any) -> Path:
    folder.mkdir()
    for name, array in {"edge_index": np.stack([SRC, DST]), **arrays}.items():
        np.save(folder / f"{name}.npy", array)
    return folder


def write_csv(path: Path, times: Any, header: str = "src,dst,t") -> Path:
    rows = [header, *(f"{s},{d},{t}" for s, d, t in zip(SRC, DST, times, strict=True))]
    path.write_text("\n".join(rows) + "\n")
    return path


def in_text(path: Path) -> Any:
    return write_csv(path / "t.csv", TIME)


def in_text_of_dates(path: Path) -> Any:
    return write_csv(path / "t.csv", DATES)


def in_snaps_text(path: Path) -> Any:
    rows = [" ".join(map(str, row)) for row in zip(SRC, DST, TIME, strict=True)]
    (path / "t.txt").write_text("\n".join(["# source destination t", *rows]) + "\n")
    return path / "t.txt"


def in_parquet(path: Path) -> Any:
    pa_parquet.write_table(pa.table({"src": SRC, "dst": DST, "t": DATES}), path / "t.parquet")
    return path / "t.parquet"


def in_numpy_files(path: Path) -> Any:
    return write_npy(path / "d", edge_t=DATES)


def in_lists(path: Path) -> Any:
    indptr = np.append(0, np.cumsum(np.bincount(DST, minlength=6)))
    folder = write_npy(path / "d", indptr=indptr, indices=SRC, edge_t=TIME.astype(np.uint16))
    (folder / "edge_index.npy").unlink()
    return folder


NUMBERS, WITH_UNIT = (in_text, in_lists, in_snaps_text), (in_text_of_dates, in_parquet, in_numpy_files)


@pytest.mark.parametrize(("write", "unit"), [*((w, None) for w in NUMBERS), *((w, "us") for w in WITH_UNIT)])
def test_times_of_edges(tmp_path, write, unit):
    source, form, name = write(tmp_path), "csc" if write is in_lists else "auto", "2" if write is in_snaps_text else "t"
    graph = tiering.import_graph(source, tmp_path / "g", form, time=name, edge_ids=True, num_nodes=6)
    check(graph, DATES.view(np.int64) if unit else TIME)
    assert graph.time == ("time" if name == "2" else "t", "edges", "int64", unit)
    assert graph.node_times() is None
    assert graph.summary()["time"]["unit"] == unit


def test_times_of_nodes_are_those_of_entries(tmp_path):
    """Also of reversed edges and added self loops; through a reorder, a layout and an export."""
    source = write_npy(tmp_path / "d", node_year=NODE_TIME.astype(np.float32), node_feat=np.zeros((6, 1), np.float32))
    graph = tiering.import_graph(source, tmp_path / "g", time="year", edge_ids=True)
    check(graph, NODE_TIME[SRC].astype(np.float64))
    np.testing.assert_array_equal(graph.node_times(), NODE_TIME)
    assert graph.time == ("year", "nodes", "float64", None)
    changed = tiering.import_graph(source, tmp_path / "c", time="year", reverse_edges=True, self_loops="add")
    np.testing.assert_array_equal(changed.times(), NODE_TIME[changed.csc()[1]])
    assert tiering.check(changed.path, "full") == []
    ranked = tiering.reorder_graph(graph, tiering.score_graph(graph, tmp_path / "s", "degree"), tmp_path / "r")
    layout = tiering.write_layout(ranked, tmp_path / "l")
    new = layout.artifact.graph
    assert new.time == graph.time
    indptr, indices = new.csc()
    np.testing.assert_array_equal(new.times(), new.node_times()[indices])
    for old in range(6):
        rank, old_indptr = new.old_to_new()[old], graph.csc()[0]
        np.testing.assert_array_equal(
            new.times()[indptr[rank] : indptr[rank + 1]], graph.times()[old_indptr[old] : old_indptr[old + 1]]
        )
    assert tiering.check(layout.path, "full") == []
    tiering.export_layout(layout, tmp_path / "e", original_order=True)
    exported = np.load(tmp_path / "e/relations/node__to__node/data/year.npy")
    np.testing.assert_array_equal(exported, graph.times())


def test_tables(tmp_path):
    """Events have times, users have none: only lists of events are in order of time."""
    events = "id,at\n10,2020-01-05\n11,2020-01-03\n12,2020-01-04\n"
    (tmp_path / "events.csv").write_text(events)
    (tmp_path / "by.csv").write_text("event,user\n10,1\n11,1\n12,1\n12,2\n")
    relations = {("event", "by", "user"): str(tmp_path / "by.csv"), ("user", "made", "event"): {
        "file": str(tmp_path / "by.csv"), "src": "user", "dst": "event"}}  # fmt: skip
    nodes = {"event": str(tmp_path / "events.csv")}
    graph = tiering.import_graph(out=tmp_path / "g", relation=relations, nodes=nodes, time="at", edge_ids=True)
    days = np.array(["2020-01-05", "2020-01-03", "2020-01-04"], "M8[us]").view(np.int64)
    np.testing.assert_array_equal(graph.node_times("event"), days)
    check(graph, days[[0, 1, 2, 2]], np.array([0, 1, 2, 2]), np.array([0, 0, 0, 1]), "by")
    assert graph.times("made") is None
    assert graph.node_times("user") is None
    own = {"event": {"file": str(tmp_path / "events.csv"), "id": "id", "time": "at"}}  # a column of this table alone
    again = tiering.import_graph(out=tmp_path / "own", relation=relations, nodes=own)
    assert again.time.name == "time"
    (tmp_path / "by.csv").write_text("event,user\n10,1\n13,1\n")
    with pytest.raises(InputError, match="a time of each event, found none for the 1 nodes that only edges name"):
        tiering.import_graph(out=tmp_path / "h", relation=relations, nodes=nodes, time="at", unknown_ids="add")


def test_times_in_a_table_with_foreign_keys_are_the_nodes(tmp_path):
    path = tmp_path / "reviews.csv"
    path.write_text("id,user,at\n7,1,30\n3,2,10\n5,1,20\n")
    relations = {("review", "by", "user"): f"{path}:id,user", ("user", "wrote", "review"): f"{path}:user,id"}
    graph = tiering.import_graph(out=tmp_path / "g", relation=relations, nodes={"review": f"{path}:id"}, time="at")
    assert graph.time.along == "nodes" and graph.node_times("review").tolist() == [30, 10, 20]
    assert graph.times(("review", "by", "user")).tolist() == [20, 30, 10], "of the sources, sorted in each list"
    assert graph.times(("user", "wrote", "review")) is None


def test_dates_keep_their_unit(tmp_path):
    for number, (kind, unit) in enumerate([(pa.date32(), "D"), (pa.timestamp("ns", "UTC"), "ns")]):
        column = pa.array((TIME * 86_400).astype("M8[s]")).cast(pa.timestamp("ns")).cast(kind)
        path = tmp_path / f"{number}.parquet"
        pa_parquet.write_table(pa.table({"src": SRC, "dst": DST, "t": column}), path)
        graph = tiering.import_graph(path, tmp_path / f"g{number}", time="t")
        assert graph.time.unit == unit
        assert graph.times().max() == np.timedelta64(6, "D") / np.timedelta64(1, unit)


def test_trees_and_ogbs_texts(tmp_path, igb_dir):
    times = np.array([5, 5, 2], np.int64)
    np.save(igb_dir / "paper__cites__paper/edge_t.npy", times)
    graph = tiering.import_graph(igb_dir, tmp_path / "g", time="t", edge_ids=True)
    check(graph, times, np.array([0, 1, 2]), np.array([1, 2, 3]), "cites")
    assert graph.times("topic") is None
    raw = tmp_path / "ogbn" / "raw"
    raw.mkdir(parents=True)
    texts = {
        "edge": zip(SRC, DST, strict=True),
        "num-node-list": [[6]],
        "num-edge-list": [[11]],
        "node_year": zip(NODE_TIME),
    }
    for name, rows in texts.items():
        (raw / f"{name}.csv.gz").write_bytes(
            gzip.compress("".join(f"{','.join(map(str, r))}\n" for r in rows).encode())
        )
    graph = tiering.import_graph(raw.parent, tmp_path / "o", time="node_year", edge_ids=True)
    check(graph, NODE_TIME[SRC])
    assert graph.time.name == "node_year"


def test_changes_of_edges_keep_their_times(tmp_path):
    source = write_npy(tmp_path / "d", edge_t=TIME)
    both = tiering.import_graph(source, tmp_path / "g", time="t", reverse_edges=True, edge_ids=True)
    ids = both.edge_data()["edge_ids"]
    np.testing.assert_array_equal(both.times(), TIME[ids])
    first = tiering.import_graph(source, tmp_path / "f", time="t", deduplicate=True)
    assert first.times().tolist() == [1, 3, 3, 5, 2, 4, 1, 2, 6, 0]  # of 3 -> 2 the first in the input, @1
    with pytest.raises(InputError, match="the new edges have no t; omit it"):
        tiering.import_graph(source, tmp_path / "h", time="t", self_loops="add")


def test_a_claim_is_checked(tmp_path):
    source = write_npy(tmp_path / "d", edge_t=TIME)
    with pytest.raises(InputError, match=r"entry 1 of the list of node 0 has time 1 after 3; omit"):
        tiering.import_graph(source, tmp_path / "g", time="t", time_sorted=True)
    np.save(source / "edge_t.npy", np.arange(11))
    claimed = tiering.import_graph(source, tmp_path / "c", time="t", time_sorted=True)
    plain = tiering.import_graph(source, tmp_path / "p")
    np.testing.assert_array_equal(claimed.csc()[1], plain.csc()[1])


@pytest.mark.parametrize(("arrays", "message"), [
    ({"edge_t": np.append(TIME[1:], 0) > 2}, "expected times as numbers or dates, found bool"),
    ({"edge_t": np.append(TIME[:10], 2**63).astype(np.uint64)}, r"found 9223372036854775808 at position 10"),
    ({"edge_t": np.append(np.nan, TIME[1:])}, r"found nan at position 0"),
    ({"edge_t": np.append(DATES[:10], np.datetime64("NaT"))}, r"found NaT at position 10"),
    ({"edge_t": TIME[1:]}, r"expected one value for each of 11 edges, found int64 \(10,\)"),
    ({"node_t": NODE_TIME[1:]}, r"expected one time for each of 6 nodes.*, found 5"),
    ({"edge_t": TIME, "node_t": NODE_TIME}, "expected times of edges or of nodes, found both"),
    ({"edge_x": TIME}, r"no array of that name along its edges or nodes .*edge_x\.npy"),
    ({"edge_t": np.stack([TIME, TIME])}, "expected one time each, one column, found"),
])  # fmt: skip
def test_refused(tmp_path, arrays, message):
    with pytest.raises(TieringError, match=message):
        tiering.import_graph(write_npy(tmp_path / "d", **arrays), tmp_path / "g", time="t", num_nodes=6)


@pytest.mark.parametrize(("times", "message"), [
    (["", *TIME[1:]], "expected a number or a date, found none at row 0"),
    ([*TIME[:10], "soon"], "expected a number or a date, found 'soon' at row 10"),
    ([*TIME[:10], 2**63], "found '9223372036854775808' at row"),
    (["nan", *TIME[1:]], "found nan at position 0"),
])  # fmt: skip
def test_refused_in_text(tmp_path, times, message):
    with pytest.raises(InputError, match=message):
        tiering.import_graph(write_csv(tmp_path / "t.csv", times), tmp_path / "g", time="t")


def test_units_and_dtypes_agree(tmp_path, igb_dir):
    np.save(igb_dir / "paper__cites__paper/edge_t.npy", np.array([1, 2, 3], "M8[s]"))
    np.save(igb_dir / "paper__topic__fos/edge_t.npy", other := np.array([1, 2, 3], "M8[ms]"))
    with pytest.raises(InputError, match=r"in one unit, all with a zone or none, found s in .*, ms here at"):
        tiering.import_graph(igb_dir, tmp_path / "g", time="t")
    for folder, dtype in (("paper__cites__paper", np.int8), ("paper__topic__fos", np.float32)):
        np.save(igb_dir / folder / "edge_t.npy", other.view(np.int64).astype(dtype))
    with pytest.raises(InputError, match=r"expected times of one dtype, found int64 of .*, float64 of"):
        tiering.import_graph(igb_dir, tmp_path / "g", time="t")


def test_names(tmp_path):
    source = write_csv(tmp_path / "t.csv", TIME)
    for name in ("weight", "label"):
        with pytest.raises(InputError, match="not a valid name for times"):
            tiering.import_graph(write_npy(tmp_path / name, edge_t=TIME), tmp_path / "g", time=name)
    with pytest.raises(InputError, match="no table has this column"):
        tiering.import_graph(source, tmp_path / "g", time="when")
    with pytest.raises(InputError, match=r"no times are named; add"):
        tiering.import_graph(source, tmp_path / "g", time_sorted=True)
    by_place = tiering.import_graph(source, tmp_path / "g", time="2", edge_data=["t"], edge_ids=True)
    assert list(by_place.edge_data()) == ["edge_ids", "time"]
    check(by_place, TIME)


@pytest.mark.parametrize(
    ("along", "message"), [("edge", "3 or later, .* found 1 at entry 1"), ("node", "3, as its source has")]
)
def test_check_notices_what_is_wrong(tmp_path, monkeypatch, along, message):
    source = write_npy(tmp_path / "d", **{f"{along}_t": TIME if along == "edge" else NODE_TIME})
    monkeypatch.setattr(
        TimeOrder, "apply", lambda self, starts, outs, column, threads: outs[1][: 8 * (along == "node")].fill(0)
    )
    graph = tiering.import_graph(source, tmp_path / "g", time="t")
    with pytest.raises(FormatError, match=message):
        raise FormatError("; ".join(map(str, tiering.check(graph.path, "full"))))


def test_a_graph_without_times_says_how_it_gets_them(tmp_path):
    graph = tiering.import_graph(write_npy(tmp_path / "d", edge_t=TIME), tmp_path / "g")
    with pytest.raises(MissingError, match=r"no times named .*; import it again with"):
        require_time(graph, "t")


BIG = 2**53 + 1
LONG = (1 << 16) + 5  # rows of more than one piece


def write_long(path: Path, times: list[Any]) -> Path:
    path.write_text("src,dst,t\n" + "".join(f"{k % 7},{k % 5},{t}\n" for k, t in enumerate(times)))
    return path


@pytest.mark.parametrize("option", ["time", "edge_data"])
@pytest.mark.parametrize(
    ("times", "place"),
    [
        ([1, BIG, 0.5], f"found {BIG} at row 1"),
        ([*[BIG] * LONG, 0.5], f"found {BIG} at row 65536"),
        ([*[BIG] * (1 << 16), 0.5], f"found {BIG} in t"),  # pieces of whole numbers, then of fractions
        ([*[0.5] * (1 << 16), BIG], f"found {BIG} in t"),
    ],
)
def test_whole_numbers_are_not_rounded_next_to_fractions(tmp_path, option, times, place):
    source = write_long(tmp_path / "t.csv", times)
    with pytest.raises(InputError, match=rf"expected whole numbers up to 2\^53 next to fractions, {place}; round it"):
        tiering.import_graph(source, tmp_path / "g", **{option: "t"})


def test_numbers_that_float64_holds_are_taken(tmp_path):
    source = write_long(tmp_path / "t.csv", [2**53 + 2, -(2**60), 0.5, "1e300", "inf", "-inf"])
    graph = tiering.import_graph(source, tmp_path / "g", time="t", edge_ids=True)
    values = [2.0**53 + 2, -(2.0**60), 0.5, 1e300, np.inf, -np.inf]
    assert graph.times().tolist() == [values[k] for k in graph.edge_data()["edge_ids"]]


def test_a_column_with_nulls_does_not_round(tmp_path):
    """It raised pyarrow's own error; features, which are float32, are rounded as ever."""
    values = pa.array([BIG, None, 3])
    pa_parquet.write_table(pa.table({"src": [0, 1, 2], "dst": [1, 2, 0], "t": values}), tmp_path / "t.parquet")
    with pytest.raises(InputError, match=f"next to fractions, found {BIG} at row 0"):
        tiering.import_graph(tmp_path / "t.parquet", tmp_path / "g", edge_data="t")
    pa_parquet.write_table(pa.table({"id": [0, 1, 2], "x": values}), tmp_path / "n.parquet")
    relations, nodes = {("n", "to", "n"): str(tmp_path / "t.parquet")}, {"n": str(tmp_path / "n.parquet")}
    graph = tiering.import_graph(out=tmp_path / "f", relations=relations, nodes=nodes, features={"n": ["x"]})
    assert graph.feature_table("n").open()[0] == 2.0**53


def test_decimals(tmp_path):
    for number, (value, scale) in enumerate([(BIG, 0), (f"{BIG}.00", 2), ("1.50", 2)]):
        times = pa.array([Decimal(value), Decimal(1), Decimal(2)], pa.decimal128(38, scale))
        path = tmp_path / f"{number}.parquet"
        pa_parquet.write_table(pa.table({"src": [0, 1, 2], "dst": [0, 0, 0], "t": times}), path)
        if number < 2:
            with pytest.raises(InputError, match=f"next to fractions, found {BIG}"):
                tiering.import_graph(path, tmp_path / "g", time="t")
        else:
            assert tiering.import_graph(path, tmp_path / "g", time="t").times().tolist() == [1, 1.5, 2]


@pytest.mark.parametrize("zones", [("us", "us UTC"), ("us Asia/Tokyo", "us"), ("us UTC", "us Asia/Tokyo")])
def test_dates_with_a_zone_and_without_are_two_clocks(tmp_path, zones):
    for name, zone in zip("ab", zones, strict=True):
        column = pa.array(DATES).cast(pa.timestamp(*zone.split()))
        (tmp_path / "d").mkdir(exist_ok=True)
        pa_parquet.write_table(pa.table({"src": SRC, "dst": DST, "t": column}), tmp_path / "d" / f"{name}.parquet")
    relations = {("n", "to", "n"): str(tmp_path / "d")}
    if all(" " in zone for zone in zones):  # each is an instant
        graph = tiering.import_graph(out=tmp_path / "g", relations=relations, time="t")
        assert sorted(graph.times()) == sorted([*DATES.view(np.int64)] * 2) and graph.time.unit == "us"
        return
    with pytest.raises(InputError, match=r"all with a zone or none, found us.* in .*a\.parquet.*, us.* here at pos"):
        tiering.import_graph(out=tmp_path / "g", relations=relations, time="t")


def test_text_of_several_clocks(tmp_path):
    source = write_csv(tmp_path / "t.csv", [*DATES[:10], f"{DATES[10]}Z"])
    with pytest.raises(InputError, match=r"found values of several kinds .*zone offset"):
        tiering.import_graph(source, tmp_path / "g", time="t")
    source = write_long(tmp_path / "l.csv", ["2020-01-01 00:00:00"] * (1 << 16) + ["2020-01-01 00:00:00Z"])
    with pytest.raises(InputError, match=r"found us in .*, us with a zone here at position 65536"):
        tiering.import_graph(source, tmp_path / "g", time="t")


def test_dates_in_numpy_files(tmp_path):
    """Big-endian dates and those of several units at once were taken for others."""
    for number, (dtype, message) in enumerate([(">M8[s]", "big-endian >M8.s.; convert with array.astype.'<M8.s.'"), (
        "M8[10us]", "expected dates in one of numpy's units, found datetime64.10us.")]):  # fmt: skip
        source = write_npy(tmp_path / str(number), edge_t=TIME.astype(dtype))
        with pytest.raises(InputError, match=message):
            tiering.import_graph(source, tmp_path / "g", time="t")
