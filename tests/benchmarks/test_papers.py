"""Figures of papers at tiny size: each computation against a few independent lines; the page has what is committed."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from importlib import import_module

import numpy as np
import plain_reading as plain
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.__main__ import main
from benchmarks.papers import data_tiering, ducati, gids, gnndrive, gnnlab, helios, report, uva
from benchmarks.papers.figures import PAPER, Figure, Line, Panel, save, side_by_side
from benchmarks.papers.inputs import Inputs, epoch_counts, local_nodes, sampled_batches
from benchmarks.programs import contention
from tiering.memory import own_memory
from tiering.sampling import SamplingOptions, make_sampler

TWO_HOPS = SamplingOptions([5, 3], batch_size=8)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Graphs of no data directory: the generated one, small."""
    work = tmp_path_factory.mktemp("papers")
    return Inputs(work / "none", work, small=True, seconds=0.01)


@pytest.fixture(scope="module")
def sample(inputs):
    return inputs.web()


def batches_of(sample, how, epochs):
    """The nodes of every batch, as Python sets, by the sampler's public interface."""
    sampler = make_sampler(sample.graph, how)
    for epoch in epochs:
        plan = sampler.batches(sample.train, how.batch_size, epoch)
        for number in range(len(plan)):
            yield set(sampler.sample(plan[number], epoch=epoch, batch=number).nodes[sample.node_type].tolist())


def hottest(values, count):
    """The first nodes by falling value, ties by id."""
    return set(sorted(range(len(values)), key=lambda node: (-values[node], node))[:count])


def test_batches_and_counts_are_those_of_the_sampler(sample):
    sets = list(batches_of(sample, TWO_HOPS, range(2)))
    found = sampled_batches(sample, TWO_HOPS, 6)
    full = [nodes for nodes, size in zip(sets, [8] * 5, strict=False) if size == 8]
    assert [set(batch.tolist()) for batch in found[:5]] == full and all(
        (np.diff(b.astype(int)) > 0).all() for b in found
    )
    reads = Counter(node for nodes in batches_of(sample, TWO_HOPS, [1]) for node in nodes)
    assert epoch_counts(sample, TWO_HOPS, 1).tolist() == [reads[node] for node in range(sample.graph.num_nodes())]


@given(count=st.integers(1, 10**7), seed=st.integers(0, 9))
def test_local_nodes_are_runs_of_ids(count, seed):
    nodes = local_nodes(count, seed)
    assert nodes[0] >= 0 and nodes[-1] < count and (np.diff(nodes) > 0).all()
    size = max(1, count // 1000)
    assert nodes.size == min(10, count // size) * size  # graphs of less than ten nodes train on all
    ends = np.flatnonzero(np.diff(nodes, prepend=-2, append=count + 2) > 1)
    assert (np.diff(ends) % size == 0).all()


def test_numbers_with_local_training_nodes_stand_next_to_the_others():
    spread, local = [("a", "1", "2"), ("b", "-", "3")], [("b", "-", "4"), ("c", "-", "5")]
    claims = side_by_side(spread, local)
    assert claims == [("a", "1", "2"), ("b", "-", "3", "4")]
    figure = Figure("t", "s", [], claims)
    assert figure.table().splitlines() == [
        "| quantity | paper | tiering | tiering, local training nodes |", "|---|---:|---:|---:|",
        "| a | 1 | 2 | - |", "| b | - | 3 | 4 |",
    ]  # fmt: skip
    assert Figure("t", "s", [], spread).table().splitlines()[0] == "| quantity | paper | tiering |"


def test_hits_and_traffic_are_those_of_counting_by_hand(inputs, sample):
    """Figures 7 and 10 of Data Tiering: reads of the first rows by a score, and what is left to the host link."""
    scores = np.asarray(inputs.score(sample, "wrpr", TWO_HOPS).values())
    result = inputs.judge(sample, TWO_HOPS, {"wrpr": ("wrpr", 0)}, [0.25], epochs=2)
    hot = hottest(scores, len(scores) // 4)
    reads = [node for nodes in batches_of(sample, TWO_HOPS, range(2)) for node in nodes]
    hits = sum(node in hot for node in reads) / len(reads)
    assert result.hit_rates["wrpr"][0] == pytest.approx(hits)
    assert data_tiering.curve(result, "wrpr", np.array([25.0]))[0] == pytest.approx(100 * hits, abs=0.5)
    document = data_tiering.figure_10(inputs).panels[0]
    left = dict(zip(document.lines[0].x, document.lines[0].y, strict=True))
    how = SamplingOptions(data_tiering.FANOUTS, batch_size=256)
    both = inputs.web(both=True)
    hot = hottest(np.asarray(inputs.score(both, "wrpr", how).values()), len(scores) // 4)
    reads = [node for nodes in batches_of(both, how, range(3)) for node in nodes]
    assert left[25] == pytest.approx(100 * sum(node not in hot for node in reads) / len(reads), abs=0.01)


def test_edges_at_the_hottest_nodes(sample):
    out_edges = Counter(sample.graph.csc()[1].tolist())
    most = sum(count for _, count in out_edges.most_common(sample.graph.num_nodes() // 100))
    assert data_tiering.edges_at_hottest(sample, 0.01) == pytest.approx(most / sample.graph.num_edges())


def test_caches_of_gids_against_plain_python(sample):
    """Belady's misses by plain Python; windows between random eviction and Belady; no cache misses everything."""
    batches, rows = sampled_batches(sample, TWO_HOPS, 12), sample.graph.num_nodes()
    lists = [batch.tolist() for batch in batches]
    slots = 2 * max(map(len, lists))
    assert gids.missing_rows(batches, rows, slots, None) == [len(missing) for missing in plain.belady(lists, slots)]
    ratios = [gids.hit_ratio(batches, rows, slots, window) for window in (0, 2, 4, None)]
    assert ratios == sorted(ratios) and ratios[-1] > ratios[0]
    seen = set().union(*map(set, lists[:4]))
    new = sum(len(set(part) - seen.union(*map(set, lists[4 : 4 + at]))) for at, part in enumerate(lists[4:]))
    assert gids.hit_ratio(batches, rows, rows, 4) == pytest.approx(1 - new / sum(map(len, lists[4:])))
    held = np.arange(100, dtype=np.uint32)
    ssd, cpu = gids.link_shares(batches, rows, 0, 0, held)
    reads = [node for part in lists[4:] for node in part]
    assert cpu == pytest.approx(sum(node < 100 for node in reads) / len(reads)) and ssd == pytest.approx(1 - cpu)
    assert gids.bandwidth(0.5, 0.5) == pytest.approx(5.8e9 / 0.5) and gids.bandwidth(0.1, 0.9) == pytest.approx(32e9)


def test_merged_batches_of_gids_by_the_equations(inputs):
    """Figure 9: N reads take (N + IOPS T) / IOPS seconds, whatever else the module makes of it."""
    idle = 2 * 1.5e6 * (11e-6 + 25e-6 + 5e-6)
    panel = gids.figure_9(inputs).panels[0]
    for at, size in enumerate(gids.MERGED):
        rows = [b.size for b in sampled_batches(inputs.web(), SamplingOptions([5, 5], batch_size=size), 24)]
        assert panel.lines[0].y[at] == pytest.approx(11.6 * sum(rows) / sum(n + idle for n in rows))
    assert all(after > before for before, after in zip(panel.lines[0].y, panel.lines[1].y, strict=True))


def test_reads_in_flight_are_counted(tmp_path):
    image = tmp_path / "image"
    image.write_bytes(bytes(1 << 20))
    assert all(rate > 0 for rate in gids.reads_in_flight(image, [1, 8], 0.01))


def test_tiers_of_helios_by_hand(inputs, sample):
    """Rows beyond 10 % by the pre-sampled counts of epoch 0 are those that epoch 1 reads from SSD."""
    how = SamplingOptions(helios.FANOUTS, batch_size=sample.batch_size)
    hot = hottest(epoch_counts(sample, how, 0), int(0.1 * sample.graph.num_nodes()))
    reads = [node for nodes in batches_of(sample, how, [1]) for node in nodes]
    share = helios.traffic(inputs, sample, 0, 10, 128).to_json()["links"]["ssd"]["share"]
    assert share == pytest.approx(sum(node not in hot for node in reads) / len(reads), abs=1e-9)


def test_similarity_of_gnnlab_by_counters():
    first, second = np.array([5, 0, 1, 3, 9, 0, 0, 2, 0, 0]), np.array([4, 6, 1, 3, 8, 0, 0, 0, 0, 1])
    hot = sorted(range(10), key=lambda node: (-second[node], node))[:3]
    common = sum((Counter({n: int(first[n]) for n in hot}) & Counter({n: int(second[n]) for n in hot})).values())
    assert gnnlab.similarity(first, second, 0.3) == pytest.approx(common / sum(second[n] for n in hot))


def lanes(address, row_bytes, shifted):
    """Requests of a row lane by lane, as `RowCopy` of the core says for words of 4 bytes: lines per step of a warp."""
    words, shift, count = row_bytes // 4, 0, 0
    if shifted and words > 32:
        shift = (-address % 128) // 4
    for step in range(-(-words // 32)):
        touched = set()
        for lane in range(32):
            at = step * 32 + lane
            if at < words:
                touched.add((address + 4 * (at + shift if at < words - shift else at - (words - shift))) // 128)
        count += len(touched)
    return count


@pytest.mark.parametrize("row_bytes", [64, 128, 480, 1024, 1028, 1036, 2408])
def test_requests_of_a_row_lane_by_lane(row_bytes):
    for row in range(8):
        address = row * row_bytes
        assert uva.requests(address, row_bytes, False)[0] == lanes(address, row_bytes, False)
        count, moved = uva.requests(address, row_bytes, True)
        assert count == lanes(address, row_bytes, True)
        if row_bytes > 128:  # every line once, or twice where head and tail of the row lie in parts of two steps
            lines = (address + row_bytes - 1) // 128 - address // 128 + 1
            assert lines <= count <= lines + 1 and moved >= row_bytes
    assert [uva.requests(480, 480, shifted)[0] for shifted in (False, True)] == [8, 5]


def test_use_of_the_link_by_hand():
    """Two batches of 6 rows; behind 2 ranks in host memory 4 and 3 are left, of which one of two SSDs has 3 and 2."""
    batches = [np.array([0, 1, 2, 4, 6, 7]), np.array([0, 1, 1, 3, 5, 6])]
    used, skew = helios.link_use(batches, 2, 2)
    assert used == 12 / (6 * 3 + 6 * 2) and skew == 2 * (3 + 2) / 7
    assert helios.link_use(batches, 100, 8) == (1, 0)  # nothing is left to the SSDs


def test_multiprocessors_by_littles_law():
    assert uva.multiprocessors(128) * 48 == pytest.approx(324.6, abs=0.1)
    assert uva.multiprocessors(1) == 16
    lines = uva.figure_sms(None).panels[0].lines
    assert max(lines[0].y) > max(lines[1].y) > uva.multiprocessors(128)


def test_split_memory_of_ducati_and_single_entries(inputs, sample):
    both = ducati.dual(inputs, sample, (5, 3), 16)
    seconds, sizes = both.entries()
    assert sizes.sum() == both.bytes and both.seconds == pytest.approx(seconds.sum())
    assert both.left(both.bytes, ducati._AUTO) == pytest.approx(0, abs=1e-12)
    budgets = [both.bytes // 50, both.bytes // 5]
    saved = ducati.knapsack(seconds, sizes, budgets)
    for budget, found in zip(budgets, saved, strict=True):
        used = total = 0.0
        for at in sorted(range(sizes.size), key=lambda n: (-seconds[n] / sizes[n], n)):
            if used + sizes[at] > budget:
                break
            used, total = used + sizes[at], total + seconds[at]
        assert found == pytest.approx(total)
        rows_alone, auto = (both.seconds - both.left(budget, share) for share in (ducati._ROWS_ONLY, ducati._AUTO))
        assert rows_alone <= auto <= 1.01 * found
        rows = budget // 64
        assert rows_alone == pytest.approx(np.sort(seconds[: both.table.rows])[::-1][:rows].sum())
    reads, own = np.array([8.0, 1.0, 1.0]), np.array([4, 1, 5])
    assert ducati.concentration(reads, own, np.array([0.4, 0.5, 1.0])) == pytest.approx([0.8, 0.9, 1.0])


@pytest.mark.parametrize("name", [name for name in report.makers() if not name.startswith(("gnndrive", "gids-8"))])
def test_every_figure_is_made_of_a_small_graph(inputs, name):
    """Lines are finite and as long as their axes, and survive JSON."""
    figure = report.makers()[name](inputs)
    for panel in figure.panels:
        for line in panel.lines:
            assert len(line.x) == len(line.y) > 0 and np.isfinite(np.array(line.y, float)).all()
    assert Figure.from_json(json.loads(json.dumps(figure.to_json()))).table() == figure.table()


def test_pictures_are_small_and_show_both_kinds_of_panels(tmp_path):
    lines = [Line("a", [1.0, 10.0], [1.0, 2.0]), Line("a", [5.0], [1.0], PAPER), Line("b", [1.0], [3.0])]
    bars = [Line("a", ["x", "y"], [1.0, 2.0]), Line("other", ["x"], [2.0], PAPER)]
    figure = Figure("t", "s", [Panel("p", "x", "y", lines, log="xy"), Panel("q", "x", "y", bars)], [])
    save(figure, tmp_path / "a.png")
    assert 2000 < (tmp_path / "a.png").stat().st_size < 60_000


def test_the_command_writes_the_page(repository, tmp_path, capsys):
    shutil.copy(repository / "docs" / "papers.md", tmp_path)
    asked = ["papers", "uva", "data-tiering-9", "--small", "--data", str(tmp_path / "none"), "--docs", str(tmp_path)]
    assert main([*asked, "--dir", str(tmp_path)]) == 0
    figures = json.loads((tmp_path / "benchmarks" / "papers.json").read_text())["figures"]
    assert list(figures) == ["data-tiering-9", "uva-8", "uva-sms"]
    page = (tmp_path / "papers.md").read_text()
    assert all(report.section(name, document) in page for name, document in figures.items())
    assert (tmp_path / "images" / "papers" / "uva-8.png").exists() and "8 and 5" in capsys.readouterr().out
    for flag in ("--dir", "--docs"):
        with pytest.raises(SystemExit) as refused:
            main(["papers", "uva", flag, str(tmp_path / "no")])
        assert refused.value.code == 2
        assert f"argument {flag}: expected a directory, found none at {tmp_path / 'no'}" in capsys.readouterr().err
    assert main(["papers", "nobody"]) == 1 and "no paper or figure 'nobody'" in capsys.readouterr().err


def test_the_page_has_the_committed_figures(repository):
    """Every figure has its place on the page, its picture, and the numbers that were measured."""
    docs = repository / "docs"
    figures = json.loads((docs / "benchmarks" / "papers.json").read_text())["figures"]
    assert list(figures) == list(report.makers())
    page = (docs / "papers.md").read_text()
    for name, document in figures.items():
        assert report.section(name, document) in page and (docs / "images" / "papers" / f"{name}.png").is_file()
    assert sum(path.stat().st_size for path in (docs / "images" / "papers").iterdir()) < 400_000


@pytest.mark.parametrize("side", ["map", "ginex", "ours"])
def test_sides_of_gnndrive_sample_and_extract(inputs, side):
    """Without a group: every side times both stages; sampling alone reads nothing."""
    options = {
        **gnndrive.prepare(inputs, 16), "memory": 8 << 20, "loader_memory": own_memory() + (256 << 20), "threads": 2,
        "seconds": 0.02, "superbatch": 2, "fanouts": [3, 3], "batch_size": 8,
    }  # fmt: skip
    run = getattr(contention, f"run_{side}")
    both, alone = run(options, True), run(options, False)
    assert min(both[name] for name in ("sampling", "extraction", "batch", "batches")) > 0
    assert 8 <= both["rows"] <= 8 * 16 and alone["sampling"] > 0


def test_missing_rows_of_ginex_are_read(inputs):
    options = gnndrive.prepare(inputs, 16)
    rows = np.fromfile(options["table"], np.float32).reshape(-1, 16)
    assert np.array_equal(rows, np.load(f"{options['folder']}/data/node_feat.npy"))
    absent, cache = np.array([5, 77, 4000], np.uint32), np.full((9, 16), 7, np.float32)
    found = contention.fill(contention.open_table(options["table"], 4096, 16, 2), cache, 5, absent, 2)
    assert np.array_equal(found[:3], rows[absent]) and (found[3:] == 7).all()


def test_lines_leave_out_runs_that_ended_early():
    lines = gnndrive.lines_of({"ours": {1: {"all": {"batch": 0.5}}, 2: {}}}, "all", "batch")
    assert [(line.x, line.y) for line in lines] == [([1], [500.0])]


def test_accuracy_of_gnndrive_is_that_of_the_example(inputs):
    """In order, training is the example's own, epoch by epoch."""
    lines = gnndrive.figure_14(inputs).panels[0].lines
    found = import_module("train_graphsage").train(
        inputs.work / "accuracy" / "layout", epochs=2, batch_size=4, digest=False
    )
    assert lines[0].y == pytest.approx([100 * share for share in found["val"]])
    assert all(0 <= y <= 100 for y in lines[1].y)


def test_reads_by_threads_and_ring(inputs):
    lines = gnndrive.figure_b1(inputs).panels[0].lines
    assert len(lines) == 4 and all(rate > 0 for line in lines for rate in line.y)
