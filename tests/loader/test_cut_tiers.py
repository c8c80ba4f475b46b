"""Loaders whose tiers have other sizes than the layout: the same rows, from tiers of those sizes."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path

import numpy as np
import pytest
from coded_layouts import coded_toy
from epochs import bits, known_disk
from hypothesis import given, settings
from hypothesis import strategies as st
from tight_memory import tight_loader
from toy_datasets import chain, toy_dataset

import tiering
from tiering.errors import FormatError, InputError
from tiering.formats.layout import TIERS
from tiering.layout.cut import _ranked_tables, cut_layout
from tiering.layout.tiers import parse_capacities, plan_tiers
from tiering.pipeline import layout as write_layout

OPTIONS = {"batch_size": 4, "fanouts": [3, 2], "seed": 7, "depth": 4}
SIZES = [{"gpu": "3%", "cpu": "40%"}, {"gpu": "17%", "cpu": "22%"}, {"gpu": "35%", "cpu": "30%"}]
"""A GPU smaller than the layout's and two larger ones, the host's memory larger."""


def entries_of(layout):
    return {name: layout.type_layout(name) for name in layout.tables}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Layouts of three types and of edges, coded, on two disks: with rows in all tiers, and with all rows on disk."""
    folder = tmp_path_factory.mktemp("cut")
    reordered = chain(coded_toy(folder / "data", 400), folder)[2]
    disks = {name: [folder / f"{name}-{k}" for k in range(2)] for name in ("mixed", "cold")}
    options = {"page": 512, "dtype": ["auto", "paper=int8"]}
    tiers = {"mixed": {"gpu": "11%", "peer": "2x7%", "cpu": "20%"}, "cold": {"cpu": 0}}
    return {
        name: tiering.write_layout(reordered, folder / f"l-{name}", ssd=disks[name], **options, **tiers[name])
        for name in tiers
    }


@settings(max_examples=40)
@given(
    name=st.sampled_from(["mixed", "cold"]), gpu=st.none() | st.integers(0, 100), cpu=st.none() | st.integers(0, 100)
)
def test_rows_are_those_of_the_layout_and_tiers_those_of_a_plan(made, name, gpu, cpu):
    layout = made[name]
    stored, unit = entries_of(layout.artifact), layout.artifact.unit_bytes
    sizes = {"gpu": gpu if gpu is None else f"{gpu}%", "cpu": cpu if cpu is None else f"{cpu}%"}
    try:
        view = cut_layout(layout.artifact, **sizes)
    except InputError as error:
        assert cpu is not None and name == "mixed" and "that cannot be read by pages" in str(error)
        return
    entries = entries_of(view)
    if name == "cold" and None not in sizes.values():
        tables = _ranked_tables(layout.artifact)
        planned = plan_tiers(tables, parse_capacities(**sizes, ssd=True), strict=False)
        for table in tables:
            bounds, found = planned[table.node_type], entries[table.node_type]
            step = found.ssd_rows.rows_per_unit
            last = bounds["cpu"][1] if bounds["cpu"][1] == table.rows else bounds["cpu"][1] // step * step
            assert found.ranges == {t: (min(b, last), min(e, last)) for t, (b, e) in bounds.items()} | {
                "ssd": (last, table.rows)
            }
    for table, entry in entries.items():
        before = stored[table]
        assert [entry.ranges[t][0] for t in TIERS[1:]] == [entry.ranges[t][1] for t in TIERS[:-1]]
        assert entry.ranges["ssd"] == (entry.ranges["cpu"][1], before.num_nodes)
        assert entry.ranges["ssd"][0] >= before.ranges["ssd"][0]
        assert gpu is not None or entry.ranges["gpu"] == before.ranges["gpu"] or entry.ranges["ssd"][0] == 0
        place, old = entry.ssd_rows, before.ssd_rows
        assert place.first_unit + place.num_units == old.first_unit + old.num_units
        assert unit * place.num_units < entry.rows("ssd") * place.stride + unit + place.num_units * place.stride
    ids = np.random.default_rng(1).integers(0, 400, 3000)
    for t in layout.feature_types:
        expected, rows = layout.features(t, threads=1).gather_numpy(ids), layout.features(t, threads=1, **sizes)
        rows.reset_counters()
        np.testing.assert_array_equal(rows.gather_numpy(ids), expected)
        counts = {tier: rows.counters.tiers[tier].rows for tier in TIERS}
        assert counts == {tier: int(((ids >= b) & (ids < e)).sum()) for tier, (b, e) in entries[t].ranges.items()}
        rows.close()


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """A reordered graph of one type, rows of 4 KiB."""
    folder = tmp_path_factory.mktemp("graph")
    toy = toy_dataset(
        folder / "data", 5, types=1, dims=(1024,), dtypes=("float32",), featureless=0, min_nodes=3000, max_nodes=3001,
        max_edges=9000,
    )  # fmt: skip
    return chain(toy, folder)[2]


def trained(loader):
    """The batches of two epochs, and the rows and bytes by tier; of a table that is read ahead those of its buffer."""
    loader.reset_counters()
    found = sorted(bits(batch) for epoch in (0, 1) for batch in loader.epoch(epoch))
    tiers = loader.counters()["author"]["tiers"]
    ahead = loader.lookahead and loader.lookahead.buffer.counters()["rows"]
    return found, {tier: (tiers[tier]["rows"], tiers[tier]["bytes"]) for tier in TIERS}, ahead


@pytest.mark.parametrize("way", ["tiers", "auto", "tight"])
@pytest.mark.parametrize("stored", ["mixed", "cold"])
def test_one_layout_at_three_sizes_is_three_layouts(graph, tmp_path, way, stored):
    """The same batches, rows and bytes by tier as of layouts that are written with those sizes."""
    tiers = {"gpu": "10%", "peer": "2x5%", "cpu": "20%"} if stored == "mixed" else {"cpu": 0}
    one = write_layout(graph, tmp_path / "one", ssd=[tmp_path / "a", tmp_path / "b"], page=512, **tiers)
    options = {**OPTIONS, "seeds": np.arange(0, 3000, 50), "ssd_model": known_disk(tmp_path), "direct": "off"}
    counts = set()
    with tiering.open(one.path) as layout:
        for number, sizes in enumerate(SIZES):
            entry = cut_layout(one, **sizes).type_layout("author")
            nbytes = {tier: entry.rows(tier) * entry.row_bytes for tier in TIERS}
            peers = {"peer": f"2x{nbytes['peer'] // 2}"} if nbytes["peer"] else {}
            exact = {"gpu": nbytes["gpu"], "cpu": nbytes["cpu"], **peers}
            other = write_layout(graph, tmp_path / f"other{number}", ssd=tmp_path / f"d{number}", page=512, **exact)
            with tiering.open(other.path) as written:
                assert written.artifact.type_layout("author").ranges == entry.ranges
                make = (lambda made, **more: tight_loader(made, 40, **options, **more)) if way == "tight" else (
                    lambda made, **more: made.loader(memory=way, **options, **more)
                )  # fmt: skip
                found, expected = trained(make(layout, **sizes)), trained(make(written))
            assert found == expected
            assert way == "tiers" or (found[2] is not None) == (way == "tight")
            counts.add(str(found[1]))
    assert len(counts) == len(SIZES)


def test_tables_and_loaders_go_to_other_processes(made):
    layout = made["mixed"]
    sizes = {"gpu": "2%", "cpu": "50%"}
    table = layout.features("paper", **sizes)
    loader = layout.loader(None, node_type="paper", memory="tiers", **OPTIONS, **sizes)
    assert table is not layout.features("paper") and table is layout.features("paper", **sizes)
    for again in (pickle.loads(pickle.dumps(table)), pickle.loads(pickle.dumps(loader)).features["paper"]):
        assert again.placement() == table.placement() != layout.features("paper").placement()


def test_a_state_goes_on_with_tiers_of_other_sizes(made):
    layout = made["cold"]
    make = lambda **sizes: layout.loader(None, node_type="paper", **OPTIONS, **sizes)  # noqa: E731
    first, expected = make(gpu="5%", cpu="10%"), [bits(batch) for batch in make()]
    batches = iter(first)
    found = [bits(next(batches)) for _ in range(3)]
    second = make(cpu="100%")
    second.load_state_dict(first.state_dict())
    assert found + [bits(batch) for batch in second] == expected


def test_rows_that_leave_the_disk_are_verified(graph):
    with tempfile.TemporaryDirectory() as folder:
        layout = tiering.write_layout(graph, Path(folder) / "l", ssd=Path(folder) / "d", cpu="10%", page=512)
        image, entry = layout.artifact.images[0], layout.artifact.type_layout("author")
        row = entry.rows("ssd") // 2
        at = int(entry.ssd_rows.begins(np.array([row]), layout.artifact.unit_bytes)[0])
        with image.open("r+b") as file:
            file.seek(at)
            file.write(b"damage")
        layout.features(verify=True, cpu="20%").close()
        with pytest.raises(FormatError, match="is damaged: its content does not match its checksum"):
            layout.features(verify=True, cpu="90%")


@pytest.mark.parametrize(("sizes", "words"), [
    ({"cpu": "5%"}, r"cpu: .* in all tiers is too little: .* of rows lie in files of .*omit cpu"),
    ({"gpu": "auto"}, "gpu: expected a size such as 6GiB or 9%, found auto; `tiering plan`"),
    ({"gpu": -1}, "gpu: expected a size such as"),
    ({"cpu": [1]}, "cpu: expected a size such as"),
    ({"cpu": "much"}, "cpu: expected a size such as 8GiB"),
    ({"gpu": "101%"}, "gpu: expected a fraction between 0% and 100%"),
])  # fmt: skip
def test_sizes_that_are_refused(made, sizes, words):
    with pytest.raises(InputError, match=words):
        made["mixed"].loader(None, node_type="paper", **OPTIONS, **sizes)
