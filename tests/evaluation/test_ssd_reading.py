"""Bytes that SSDs deliver, and simulated reading: against plain Python and the loader; refusals, memory."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import plain_reading as plain
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from judged_graphs import import_graph, two_types
from striped_rows import cut, plain_rounds

import tiering
from tiering import generate_dataset, pipeline
from tiering.errors import BudgetError, FormatError, InputError
from tiering.evaluation import evaluate
from tiering.evaluation.cache_order import Rows, read_spans
from tiering.evaluation.options import EvaluationOptions
from tiering.evaluation.ssd_reading import (
    POLICIES,
    ReadCost,
    ReadingMemory,
    ReadingSpec,
    read_pages,
    row_spans,
)  # fmt: skip
from tiering.formats.ssd_rows import SsdRows
from tiering.layout.tiers import parse_capacities
from tiering.memory import Budget, own_memory
from tiering.readahead.config import divide_slots
from tiering.readahead.disk_speed import DiskSpeed
from tiering.text.units import Size

SPEED = DiskSpeed(100_000, 1e9)
ROW_BYTES = st.sampled_from([7, 100, 400, 512, 600, 1536, 2048, 4096, 5732])
TABLES = st.lists(st.tuples(st.integers(1, 40), ROW_BYTES), min_size=1, max_size=3)


def spec_of(entries, page=4096, speed=SPEED):
    """Node types in the order of their names, as a layout has them."""
    names = [f"t{k}" for k in range(len(entries))]
    counts, sizes = zip(*entries, strict=True)
    rows = Rows(tuple(names), counts, sizes, ("given",) * len(names))
    return ReadingSpec(rows, (Size("1", bytes=1),), page, speed)


@given(TABLES, st.sampled_from([512, 4096, 16384]), st.data())
def test_pages_are_those_of_a_walk_over_the_blocks(entries, page, data):
    rows = data.draw(st.sets(st.integers(0, sum(count for count, _ in entries) - 1)))
    spans = row_spans(spec_of(entries, page).tables, np.array(sorted(rows), np.uint32))
    assert read_pages(*spans) == plain.page_by_page(rows, plain.extents(entries, page))


def mean_of(reads, speed, batches):
    """Reads of batches or rounds; the mean of so many batches."""
    seconds = sum(speed.seconds(requests, size) for requests, size in reads)
    requests, nbytes = sum(r for r, _ in reads), sum(size for _, size in reads)
    return ReadCost(seconds / batches, requests / batches, nbytes / batches)


def plainly(entries, line, batches, pools, speed, choice):
    """All policies in plain Python, in pages of 4 KiB."""
    where, start = plain.extents(entries, 4096), len(batches) // 3
    sizes = [size for count, size in entries for _ in range(count)]

    def together(policy):
        parts = [
            policy([[row for row in batch if sizes[row] == size] for batch in batches], slots, size)
            for size, slots in pools.items()
        ]
        return [set().union(*missing) for missing in zip(*parts, strict=True)][start:]

    def single(missing):
        return mean_of([plain.page_by_page(rows, where) for rows in missing], speed, len(missing))

    def hottest(size, slots):
        return set([row for row in line if sizes[row] == size][:slots])

    parts = [part for batch in batches for part in cut(sizes.__getitem__, pools, batch)]
    first = [sum(count for count, _ in entries[:k]) for k in range(len(entries))]
    share = {size: slots / max(1, sizes.count(size)) for size, slots in pools.items()}
    warm = [
        at + row for at, (count, size) in zip(first, entries, strict=True) for row in range(int(share[size] * count))
    ]
    ahead = [set(part) for part in (warm, *parts)]
    rounds = plain_rounds(plain.striped(entries, 4096), pools, choice.window, choice.horizon, ahead)
    late = [one for one in rounds if one.first - 1 >= len(parts) // 3] or rounds[-1:]
    read = [plain.merged(set(one.read), where, choice.gap) if one.read else (0, 0) for one in late]
    return {
        "static": single(together(lambda own, slots, size: plain.fixed(own, hottest(size, slots)))),
        "look-ahead": mean_of(read, speed, sum(one.last - one.first for one in late) * len(batches) / len(parts)),
    }


def same(found, expected):
    return vars(found) == pytest.approx(vars(expected))


@settings(max_examples=120)
@given(
    st.lists(st.tuples(st.integers(1, 25), st.sampled_from([100, 400, 1536, 4096])), min_size=1, max_size=3), st.data()
)
def test_policies_read_what_plain_python_reads(entries, data):
    total = sum(count for count, _ in entries)
    assume(plain.extents(entries, 4096)[-1][1] < plain.LONGEST)  # the loader cuts longer reads between rows
    some = st.sets(st.integers(0, total - 1), min_size=1, max_size=max(1, total // 4)).map(sorted)
    batches = data.draw(st.lists(some, min_size=1, max_size=12))
    # Ranks within a type follow the line: any interleaving of the types.
    order = data.draw(st.permutations([k for k, (count, _) in enumerate(entries) for _ in range(count)]))
    firsts = np.cumsum([0, *(count for count, _ in entries)]).tolist()
    line = [firsts[k] + order[:place].count(k) for place, k in enumerate(order)]
    every = sum(count * (size + 8) for count, size in entries)
    nbytes = data.draw(st.integers(every // 4, every))
    speed = DiskSpeed(data.draw(st.sampled_from([1e4, 1e5, 1e6])), 1e9)
    tables = spec_of(entries).tables
    sizes = [size for count, size in entries for _ in range(count)]
    uses = {size: sum(sizes[row] == size for batch in batches for row in batch) for size in sizes}
    pools = dict(divide_slots(tables, nbytes, uses))
    if len(pools) == 1:
        assert pools == {sizes[0]: min(total, nbytes // (sizes[0] + 8))}
    assume(all(sum(sizes[row] == size for row in batch) <= pools[size] for size in pools for batch in batches))
    arrays = [np.array(batch, np.uint32) for batch in batches]
    memory = (Size(str(nbytes), bytes=nbytes),)
    reading = replace(spec_of(entries, speed=speed), sizes=memory).simulate([("s", np.array(line))], arrays)
    (found,) = reading.scores["s"]
    assert tuple(found.policies) == POLICIES and found.rows == sum(pools.values())
    for name, expected in plainly(entries, line, batches, pools, speed, found.choice).items():
        assert same(found.policies[name], expected), (name, found.policies[name], expected)


@dataclass
class Listed:
    """Epochs whose batches are given."""

    batches: list[dict[str, Any]]

    def map_batches(self, visit, label):
        yield from map(visit, self.batches)


def question(size, rows):
    return ReadingSpec.parse(rows, [size], 4096, SPEED)


def room_for(rows):
    return ReadingMemory(Budget(1 << 30, "1GiB"), 1 << 29, rows, 0)


@pytest.mark.parametrize("span", [10, 60], ids=["the same rows over and over", "any rows"])
@pytest.mark.parametrize("memory", [3000, 4500, 6000])
@pytest.mark.parametrize("seed", range(5))
def test_as_many_batches_as_fill_memory_three_times(seed, memory, span):
    """Rows 0 to 39 have 100 bytes, 40 to 59 have 300; batches have up to 4 of the last `span` of them."""
    rows, rng = Rows(("a", "b"), (40, 20), (100, 300), ("given", "given")), np.random.default_rng(seed)
    arrays = [60 - span + np.sort(rng.permutation(span)[: rng.integers(1, 5)]) for _ in range(200)]
    nodes = [{"a": batch[batch < 40], "b": batch[batch >= 40] - 40} for batch in arrays]
    found = question(str(memory), rows).sample(Listed(nodes), room_for(10**6))
    size = [100] * 40 + [300] * 20
    for first in range(1, len(arrays) + 1):
        used = [row for batch in arrays[:first] for row in batch.tolist()]
        if sum(size[row] for row in set(used)) >= memory or sum(size[row] for row in used) >= 3 * memory:
            break
    assert 3 * first < len(arrays)
    assert [batch.tolist() for batch in found] == [batch.tolist() for batch in arrays[: 3 * first]]


def test_batches_end_where_the_room_does():
    rows = Rows(("n",), (1000,), (100,), ("given",))
    nodes = [{"n": np.arange(100)}] * 50
    asked = question("100%", rows)
    assert len(asked.sample(Listed(nodes), room_for(10**6))) == 50
    assert len(asked.sample(Listed(nodes), room_for(799))) == 7
    with pytest.raises(BudgetError, match="reading that is simulated"):
        budget = Budget(1 << 29, "512MiB")
        asked.sample(Listed(nodes), ReadingMemory(budget, budget.limit, 299, 0))


def test_the_document_and_what_does_not_change_it(tmp_path):
    graph = two_types(tmp_path / "source")
    asked = {"batch_size": 2, "epochs": 2, "rows_in_memory": ["200", "1KB"], "ssd_model": SPEED}
    scores = {"s": {"a": [4, 3, 2, 1]}}
    document = evaluate(graph, scores, [2], **asked).to_json()
    reading = document["ssd_reading"]
    assert json.loads(json.dumps(document)) == document
    assert reading["ssd_model"] == {"reads_per_second": 100_000, "bytes_per_second": 1e9}
    assert (reading["batches"], reading["counted_batches"]) == (4, 3)
    assert [entry["memory"] for entry in reading["scores"]["s"]] == ["200", "1KB"]
    for entry in reading["scores"]["oracle"]:
        assert tuple(entry["policies"]) == POLICIES
        assert set(entry["policies"]["static"]) == {"seconds_per_batch", "requests_per_batch", "bytes_per_batch"}
        ours = set(entry["policies"]["look-ahead"]) - set(entry["policies"]["static"])
        assert ours == {"window", "horizon", "gap_bytes"}
    assert evaluate(graph, scores, [2], threads=3, **asked).to_json() == document
    plain_one = evaluate(graph, scores, [2], batch_size=2, epochs=2).to_json()
    assert plain_one == {**document, "ssd_reading": None}
    model = tmp_path / "disk.json"
    model.write_text(json.dumps(reading["ssd_model"]))
    assert evaluate(graph, scores, [2], **{**asked, "ssd_model": model}).to_json() == document


def test_refusals(tmp_path):
    graph = two_types(tmp_path / "source")

    def ask(**asked):
        evaluate(graph, {}, [2], batch_size=2, epochs=1, **asked)

    for size in ("0", 0, "auto", "lots", "-1", "101%"):
        with pytest.raises(InputError, match="rows in memory"):
            ask(rows_in_memory=[size], ssd_model=SPEED)
    with pytest.raises(InputError, match="has room for 0 rows of 2 B and 8 bytes each, and a batch uses"):
        ask(rows_in_memory=[20], ssd_model=SPEED)
    with pytest.raises(InputError, match="rows in memory: expected a size such as 4GiB, found nothing"):
        ask(ssd_model=SPEED)
    with pytest.raises(InputError, match="ssd model: expected the disk's speed, found nothing"):
        ask(rows_in_memory=["50%"])
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(FormatError, match=r"bad\.json"):
        ask(rows_in_memory=["50%"], ssd_model=tmp_path / "bad.json")
    with pytest.raises(BudgetError, match=r"give memory=\"\d+MiB"):
        ask(rows_in_memory=["50%"], ssd_model=SPEED, memory=own_memory() + (40 << 20))


def walk(begins, ends, page, block):
    """Page by page: all blocks from the first needed byte of the page to the last."""
    needed = {}
    for begin, end in zip(begins, ends, strict=True):
        for byte in range(begin, end):
            needed.setdefault(byte // page, []).append(byte // block)
    blocks = sum(max(each) - min(each) + 1 for each in needed.values())
    return blocks * block, len(needed)


@settings(max_examples=150)
@given(data=st.data())
def test_equals_a_walk_over_the_blocks(data):
    page = data.draw(st.sampled_from([512, 1024, 4096]))
    block = data.draw(st.sampled_from([1, 64, 512, page]))
    row_bytes = data.draw(st.sampled_from([1, 7, 32, 100, 400, 512, 600, 1536, 2408, 5000]))
    rows = np.unique(data.draw(st.lists(st.integers(0, 40), max_size=12))).astype(np.int64)
    unit, (place,) = SsdRows.plan_all([(41, row_bytes)], page, 1)
    begins = place.begins(rows, unit)
    found = read_spans(begins, begins + row_bytes, page, block)[:2]
    assert found == walk(begins.tolist(), (begins + row_bytes).tolist(), page, block)


@pytest.mark.parametrize(("page", "block"), [("4KiB", 8192), ("512", 0), ("4KiB", 500), ("1000", 512)])
def test_sizes_that_do_not_fit(page, block):
    with pytest.raises(InputError, match="power of two"):
        EvaluationOptions(page=page, block=block)


@pytest.mark.parametrize(("dim", "page"), [(8, 4096), (100, 4096), (100, 512), (200, 4096), (602, 4096), (300, 512)])
@pytest.mark.parametrize("hetero", [False, True])
def test_the_loader_reads_the_same(dim, page, hetero, tmp_path):
    """Rows packed, padded, and larger than a page; direct reads, and those through the page cache, byte by byte."""
    pytest.importorskip("torch")
    generate_dataset(tmp_path / "data", nodes=1500, edges=9000, dim=dim, classes=3, seed=dim, hetero=hetero)
    graph = import_graph(tmp_path / "data", tmp_path / "graph")
    scores = pipeline.score_graph(graph, tmp_path / "scores", "wrpr")
    reordered = pipeline.reorder_graph(graph, scores, tmp_path / "reordered")
    images = [tmp_path / "one", tmp_path / "two"][: 1 if dim == 8 else 2]  # units of small tables follow the images
    pipeline.layout(reordered, tmp_path / "layout", gpu="10%", cpu="10%", ssd=images, page=page)
    run = {"fanouts": [3, 3], "batch_size": 16, "seed": 4}
    for direct in ("auto", "off"):
        with tiering.open(tmp_path / "layout") as layout:
            block = min(layout.features(t, direct=direct).reader.offset_alignment for t in layout.feature_types)
            if block > page:
                pytest.skip("direct reads are aligned to more than a page here")
            loader = layout.loader("train", direct=direct, memory="tiers", **run)
            for _ in loader.epoch(0):
                pass
            served = loader.counters()
        asked = {"tiers": parse_capacities("10%", cpu="10%", ssd=True), "page": page, "block": block, "epochs": 1}
        found = evaluate(graph, {"s": scores}, run["fanouts"], batch_size=16, seed=4, **asked)
        for node_type, entry in found.to_json()["tiers"]["scores"]["s"]["types"].items():
            ssd = entry["links"]["ssd"]
            assert served[node_type]["ssd_read_bytes"] == ssd["bytes_read_per_epoch"], (node_type, block)
            assert served[node_type]["ssd_reads"] <= ssd["pages_read_per_epoch"]
        assert sum(each["ssd_read_bytes"] for each in served.values()) > 0
