"""Plans against a slow, obvious judge: line all rows up, fill the tiers from the front."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tiering.errors import InputError
from tiering.formats.layout import TIERS
from tiering.layout.tiers import RankedTable, parse_capacities, parse_page, parse_peer, plan_tiers

Ranges = dict[str, dict[str, tuple[int, int]]]


def table(name, scores, row_bytes=100):
    return RankedTable(name, len(scores), row_bytes, np.array(scores, np.float64))


def judge(tables, sizes):
    """Walk the common line row by row. `sizes`: (tier, bytes, parts) in the order of the tiers."""
    line = sorted(
        (-t.scores[rank] / t.row_bytes, index, rank) for index, t in enumerate(tables) for rank in range(t.rows)
    )
    result = {t.node_type: dict.fromkeys(TIERS, (0, 0)) for t in tables}
    position, begins = 0, [0] * len(tables)
    for tier, nbytes, parts in sizes:
        ends = list(begins)
        while position < len(line):
            ends[line[position][1]] += 1
            used = sum(
                -(-(end - begin) // parts) * t.row_bytes for end, begin, t in zip(ends, begins, tables, strict=True)
            )
            if used > nbytes:
                ends[line[position][1]] -= 1
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
    """Up to four types; few distinct scores, so that many rows tie."""
    drawn = []
    for k in range(draw(st.integers(1, 4))):
        value = st.sampled_from([0.0, 0.0, 1.0, 2.0, 3.0]) | st.floats(0, 1e300)
        scores = sorted(draw(st.lists(value, max_size=12)), reverse=True)
        drawn.append(table(f"t{k}", scores, draw(st.sampled_from([1, 2, 100, 150]))))
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
        ({"gpu": "1TiB"}, r"gpu: 1TiB is larger than all feature data \(400 B\); use `--gpu auto`"),
        ({"peer": "4x101"}, r"peer: 4 x 101 is larger than all .*`--peer 4xauto`"),
        ({"gpu": "200", "cpu": "100"}, r"100 B of 400 B feature data have no tier; give --ssd DIR, or --cpu auto"),
        ({"gpu": "100%", "cpu": "100"}, "cpu: the tiers before it hold all feature data; leave --cpu out"),
        ({"gpu": "auto", "ssd": True}, "nothing is left for it; leave --ssd out"),
        ({"gpu": "99"}, r"gpu: 99 \(99 B\) is less than one row"),
        ({"gpu": "-1"}, "gpu: expected a size"),
        ({"gpu": "101%"}, "share between 0% and 100%"),
        ({"peer": "8GiB"}, "expected PxSIZE such as 4x8GiB"),
        ({"peer": "0x8GiB"}, "1 to 16 GPUs"),
        ({"peer": "17x1GiB"}, "1 to 16 GPUs, those of one machine, found 17"),
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
