"""Options of a layout and costs of accesses, parsed once; plans of tiers against a slow, obvious judge."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from toy_datasets import chain, toy_dataset

from tiering import pipeline
from tiering.errors import InputError, MissingError
from tiering.formats.layout import TIERS
from tiering.layout.cost_model import AccessCosts, read_access_costs
from tiering.layout.options import LayoutOptions
from tiering.layout.tiers import RankedTable, parse_capacities, parse_page, parse_peer, plan_tiers
from tiering.text.units import Size

Ranges = dict[str, dict[str, tuple[int, int]]]


def table(name, scores, row_bytes=100, first=0):
    return RankedTable(name, len(scores), row_bytes, np.array(scores, np.float64), first)


def judge(tables, sizes):
    """Walk the common line row by row. `sizes`: (tier, bytes, parts) in the order of the tiers."""
    line = sorted(
        (rank >= t.first, rank >= t.first and -t.scores[rank] / t.row_bytes, index, rank)
        for index, t in enumerate(tables) for rank in range(t.rows)
    )  # fmt: skip
    result = {t.node_type: dict.fromkeys(TIERS, (0, 0)) for t in tables}
    position, begins = 0, [0] * len(tables)
    for tier, nbytes, parts in sizes:
        ends = list(begins)
        while position < len(line):
            ends[line[position][2]] += 1
            used = sum(
                -(-(end - begin) // parts) * t.row_bytes for end, begin, t in zip(ends, begins, tables, strict=True)
            )
            if used > nbytes:
                ends[line[position][2]] -= 1
                break
            position += 1
        for t, begin, end in zip(tables, begins, ends, strict=True):
            result[t.node_type][tier] = (begin, end)
        begins = ends
    for t, begin in zip(tables, begins, strict=True):
        result[t.node_type]["ssd"] = (begin, t.rows)
    return result


@st.composite
def tables(draw):
    """Up to four types; few distinct scores, so that many rows tie; some come first, whatever theirs are."""
    drawn = []
    for k in range(draw(st.integers(1, 4))):
        value = st.sampled_from([0.0, 0.0, 1.0, 2.0, 3.0]) | st.floats(0, 1e300)
        first = draw(st.lists(value, max_size=4))
        scores = [*first, *sorted(draw(st.lists(value, max_size=12)), reverse=True)]
        drawn.append(table(f"t{k}", scores, draw(st.sampled_from([1, 2, 100, 150])), len(first)))
    return drawn


@pytest.mark.slow
@settings(max_examples=120)
@given(tables=tables(), gpu=st.floats(0, 60), peer=st.floats(0, 30), peers=st.integers(1, 4), cpu=st.floats(0, 60))
def test_equals_the_judge(tables, gpu, peer, peers, cpu):
    total = sum(t.rows * t.row_bytes for t in tables)
    capacities = parse_capacities(f"{gpu:.4f}%", f"{peers}x{peer:.4f}%", f"{cpu:.4f}%", ssd=True)
    sizes = [("gpu", capacities.gpu, 1), ("peer", capacities.peer, peers), ("cpu", capacities.cpu, 1)]
    try:
        found = plan_tiers(tables, capacities)
    except InputError:
        assume(False)
    expected = judge(tables, [(tier, size.of(total) if size else 0, parts) for tier, size, parts in sizes])
    assert found == expected


def test_types_compete_by_score_per_byte():
    hot_and_large = table("large", [8.0, 1.0], 400)  # 0.02 and 0.0025 per byte
    small = table("small", [1.5, 0.9, 0.1], 50)  # 0.03, 0.018, 0.002
    found = plan_tiers([hot_and_large, small], parse_capacities(gpu=500))
    assert found["small"]["gpu"] == (0, 2)
    assert found["large"]["gpu"] == (0, 1)
    assert found["large"]["cpu"] == (1, 2)
    assert found["small"]["cpu"] == (2, 3)


def test_defaults():
    one = table("node", [3, 2, 1, 0])
    assert plan_tiers([one], parse_capacities())["node"]["cpu"] == (0, 4)
    assert plan_tiers([one], parse_capacities(gpu="50%"))["node"]["cpu"] == (2, 4)
    assert plan_tiers([one], parse_capacities(gpu="50%", ssd=True))["node"]["ssd"] == (2, 4)
    assert plan_tiers([one], parse_capacities(gpu="auto"))["node"]["gpu"] == (0, 4)
    assert plan_tiers([one], parse_capacities(gpu="100%"))["node"]["gpu"] == (0, 4)
    assert plan_tiers([one], parse_capacities(peer="2xauto"))["node"]["peer"] == (0, 4)
    assert plan_tiers([], parse_capacities(gpu="1GiB", ssd=True)) == {}
    assert parse_capacities("0", "2x0", "0%", ssd=True) == parse_capacities(cpu=0, ssd=True)  # a size of 0 is none


def test_a_peer_never_gets_more_than_its_size():
    one = table("node", [0.0] * 9)
    found = plan_tiers([one], parse_capacities(peer="2x250", cpu="auto"))
    assert found["node"]["peer"] == (0, 4)  # 5 rows would put 3 on the first


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gpu": "1TiB"}, r"gpu: 1TiB is larger than all feature data \(400 B\); use `gpu=\"100%\"`"),
        ({"peer": "4x101"}, r"peer: 4 x 101 is larger than all .*`peer=\"4xauto\"`"),
        ({"gpu": "200", "cpu": "100"}, r"400 B feature data have no tier; give ssd=DIR, .*did you mean 100%\?"),
        ({"gpu": "100%", "cpu": "100"}, "cpu: the tiers before it have room for all rows; omit `cpu`"),
        ({"gpu": "auto", "ssd": True}, "the other tiers have room for all feature data; omit `ssd`"),
        ({"gpu": "99"}, r"gpu: 99 \(99 B\) is less than one row.*; give a larger size \(did you mean 99%\?\) or omit"),
        ({"gpu": "99B"}, r"gpu: 99B \(99 B\) is less than one row.*; give a larger size or omit it"),
        ({"gpu": "-1"}, "gpu: expected a size"),
        ({"gpu": "101%"}, "fraction between 0% and 100%"),
        ({"peer": "8GiB"}, "expected PxSIZE such as 4x8GiB"),
        ({"peer": "0x8GiB"}, "1 to 16 GPUs"),
        ({"peer": "17x1GiB"}, "1 to 16 GPUs of one machine, found 17"),
    ],
)
def test_sizes_that_do_not_fit(options, message):
    with pytest.raises(InputError, match=message):
        plan_tiers([table("node", [3, 2, 1, 0])], parse_capacities(**options))


def test_questions_are_answered_where_layouts_are_refused():
    one = table("node", [3, 2, 1, 0])
    asked = [
        ({"gpu": "99", "ssd": True}, [0, 0, 0, 4]),  # less than a row
        ({"gpu": "100%", "cpu": "100"}, [4, 0, 0, 0]),  # nothing left for cpu
        ({"gpu": "auto", "ssd": True}, [4, 0, 0, 0]),  # nothing left for ssd
        ({"gpu": "150", "cpu": "250"}, [1, 0, 3, 0]),  # 50 bytes of each are no row: the rest joins cpu
        ({"gpu": "30%", "cpu": "70%"}, [1, 0, 3, 0]),
    ]
    for options, rows in asked:
        with pytest.raises(InputError):
            plan_tiers([one], parse_capacities(**options))
        found = plan_tiers([one], parse_capacities(**options), strict=False)["node"]
        assert [end - begin for begin, end in found.values()] == rows
    for options in ({"gpu": "1TiB"}, {"gpu": "200", "cpu": "100"}):
        with pytest.raises(InputError):
            plan_tiers([one], parse_capacities(**options), strict=False)


def test_cost_does_not_grow_with_rows():
    class Counted(np.ndarray[Any, Any]):
        looks = 0

        def __getitem__(self, key):
            Counted.looks += 1
            return super().__getitem__(key)

    scores = [np.linspace(1, 0, 1_000_000).view(Counted) for _ in range(2)]
    plan_tiers(
        [RankedTable(f"t{k}", 1_000_000, 100 + k, scores[k]) for k in range(2)], parse_capacities("10%", ssd=True)
    )
    assert Counted.looks < 20_000


def test_pages_and_peers_are_parsed():
    assert parse_page("4KiB") == 4096
    assert parse_page(512) == 512
    for page in ("4000", "256", "1TiB", "10%"):
        with pytest.raises(InputError, match="page"):
            parse_page(page)
    count, size = parse_peer("2 x 8GiB")
    assert (count, size.bytes) == (2, 8 << 30)


MEASURED = {
    "device": "a GPU",
    "feature_seconds": {"base": 2e-9, "per_byte": 4e-11},
    "list_seconds": 3e-9,
    "neighbour_seconds": 0,
}


@pytest.mark.parametrize("text", [None, "none", " None "])
def test_no_adjacency_cache(text):
    options = LayoutOptions(gpu="1GiB", adjacency_cache=text)
    assert options.cache is None
    assert options.capacities == parse_capacities("1GiB")
    assert options.recorded == {"gpu": "1GiB", "peer": None, "cpu": None, "ssd": [], "page_bytes": 4096}


def test_adjacency_caches_are_parsed():
    auto = LayoutOptions(adjacency_cache="auto")
    assert auto.cache == Size("auto") and auto.costs == AccessCosts()
    share = LayoutOptions(adjacency_cache="30%").cache
    assert share.fraction == pytest.approx(0.3)
    for text in ("half", "2GiB", 30, "0.3", "130%", "-1%"):
        with pytest.raises(
            InputError, match=r"adjacency cache: expected none, auto, or the fraction of `gpu` .*; found"
        ):
            LayoutOptions(adjacency_cache=text)


def test_one_directory_needs_no_list(tmp_path):
    for ssd in (str(tmp_path), tmp_path, [tmp_path]):
        assert LayoutOptions(ssd=ssd).folders == (tmp_path.resolve(),)


def test_what_is_recorded_keeps_its_first_keys(tmp_path):
    """A layout that version 0.1.0 made with `--split 30%` counts as made with `--adjacency-cache 30%`."""
    options = LayoutOptions(gpu=80, ssd=[tmp_path], page=512, adjacency_cache="30%")
    assert json.loads(json.dumps(options.recorded)) == {
        "gpu": 80,
        "peer": None,
        "cpu": None,
        "ssd": [str(tmp_path.resolve())],
        "page_bytes": 512,
        "split": "30%",
        "gpu_times": {
            "source": "assumed",
            "feature_seconds": {"base": 0.99 / (12.5e9 / 32), "per_byte": 0.99 / 25e9},
            "list_seconds": 0.99 / (12.5e9 / 32),
            "neighbour_seconds": 0.99 / (12.5e9 / 32),
            "peer_share": 0.9,
            "ssd_seconds": 1e-6,
        },
    }


def test_whole_or_one_by_one(tmp_path):
    reordered = chain(toy_dataset(tmp_path / "data", 3), tmp_path)[2]
    one = pipeline.layout(reordered, tmp_path / "layout", gpu="20%")
    whole = pipeline.layout(reordered, tmp_path / "layout", LayoutOptions(gpu="20%"), force=True)
    assert one.digest == whole.digest
    with pytest.raises(TypeError, match="expected LayoutOptions or keywords, found both"):
        pipeline.layout(reordered, tmp_path / "layout", LayoutOptions(), gpu="20%", force=True)


def test_measured_figures(tmp_path):
    file = tmp_path / "costs.json"
    file.write_text(json.dumps(MEASURED))
    costs = read_access_costs(file)
    assert costs == AccessCosts(2e-9, 4e-11, 3e-9, 0.0, source="measured on a GPU")
    recorded = costs.to_json()
    assert recorded.pop("source") == "measured on a GPU"
    assert {"device": "a GPU", **recorded} == {**MEASURED, "peer_share": 0.9, "ssd_seconds": 1e-6}
    file.write_text(json.dumps({**MEASURED, "peer_share": 0.5, "ssd_seconds": 2e-6}))
    more = read_access_costs(file)
    assert (more.peer_share, more.ssd_seconds, more.list_seconds) == (0.5, 2e-6, 3e-9)
    file.write_text(json.dumps(MEASURED).replace("neighbour_seconds", "neighbor_seconds"))
    assert read_access_costs(file) == costs


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"device": 3}, "device: expected the name of the device measured, found 3"),
        ({"list_seconds": -1e-9}, "list_seconds: expected seconds per access, .* number of 0 or more, found -1e-09"),
        ({"list_seconds": float("nan")}, "list_seconds: expected seconds per access"),
        ({"neighbour_seconds": True}, "neighbour_seconds: expected seconds per access, .* found True"),
        ({"neighbour_seconds": 2.5}, "neighbour_seconds: .* at most 1, found 2.5; are these nanoseconds"),
        ({"feature_seconds": 3}, r"feature_seconds: expected an object .*, found 3"),
        (
            {"feature_seconds": {"base": 0}},
            "feature_seconds: expected base, per_byte, found no per_byte; the expected form is",
        ),
        ({"peer_share": 1.5}, "peer_share: expected a fraction, at most 1, found 1.5"),
        ({"warp": 1}, "expected device, feature_seconds, .*, found unknown warp; the expected form is"),
        (
            {"feature_seconds": {"base": 0, "per_byte": 0}, "list_seconds": 0},
            "expected seconds above 0 .*, found 0 for all; measure again",
        ),
    ],
)
def test_files_that_do_not_fit(tmp_path, change, message):
    file = tmp_path / "costs.json"
    file.write_text(json.dumps({**MEASURED, **change}))
    with pytest.raises(InputError, match=rf"access costs: .*costs\.json: {message}"):
        read_access_costs(file)


def test_files_that_are_none(tmp_path):
    with pytest.raises(MissingError, match=r"access costs: .*none.json: no such file; omit `access_costs`"):
        read_access_costs(tmp_path / "none.json")
    for content in (b"{", b"\xff\xfe", b"[" * 100_000):
        (tmp_path / "bad.json").write_bytes(content)
        with pytest.raises(InputError, match=r"bad.json: not valid JSON"):
            read_access_costs(tmp_path / "bad.json")
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(InputError, match=r"list.json: expected an object"):
        read_access_costs(tmp_path / "list.json")
