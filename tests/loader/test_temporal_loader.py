"""Loaders in time, of disjoint batches and of subgraph types: the sampler's batches, with their nodes' rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from epochs import bits, in_pieces

import tiering
from tiering.errors import CapabilityError, InputError, MissingError
from tiering.loader.batches import windows as windowed
from tiering.readahead import memory as sizes
from tiering.sampling import SamplingOptions, make_sampler

NODES, EDGES = 300, 4000
REL = ("node", "to", "node")
RNG = np.random.default_rng(0)
ENDS = np.stack([RNG.integers(0, NODES, EDGES), (NODES * RNG.random(EDGES) ** 2).astype(np.int64)])
FEAT = RNG.standard_normal((NODES, 8)).astype(np.float32)
WHEN = {"edge": RNG.integers(0, 50, EDGES), "node": RNG.random(NODES)}


@pytest.fixture(scope="module")
def layouts(tmp_path_factory):
    """Layouts of one graph with times of edges, and with times of nodes; most rows lie on SSD."""
    root, made = tmp_path_factory.mktemp("temporal"), {}
    for kind, times in WHEN.items():
        folder, out = root / kind, root / f"{kind}-made"
        folder.mkdir()
        out.mkdir()
        arrays = {"edge_index": ENDS, "node_feat": FEAT, "train_idx": np.arange(0, NODES, 2), f"{kind}_when": times}
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array)
        graph = tiering.import_graph(folder, out / "graph", edge_ids=True, time="when")
        tiering.score_graph(graph, out / "scores", "degree")
        ordered = tiering.reorder_graph(graph, out / "scores", out / "ordered")
        made[kind] = tiering.write_layout(ordered, out / "layout", cpu="30%", ssd=[out / "ssd"])
    yield made
    for layout in made.values():
        layout.close()


@pytest.mark.parametrize("memory", ["auto", "tiers", "windows"])
@pytest.mark.parametrize("how", [{"temporal_strategy": "last"}, {"time_window": 20}, {"subgraph_type": "induced"}])
def test_batches_are_the_samplers(layouts, memory, how, monkeypatch):
    """With rows in memory, read by each batch, and with lists and times that exceed memory, too."""
    windows = memory == "windows"
    if windows:
        memory = "tiers"
        monkeypatch.setattr(sizes, "LEAST_LISTS", 0)
        monkeypatch.setattr(windowed, "bytes_around", lambda sampler: 1 << 62)
    layout, seeds = layouts["edge"], np.repeat(np.arange(40), 2)
    times = torch.arange(80) % 50
    options = {"fanouts": (3, 2), "batch_size": 16, "seed": 4, "time": "when", **how}
    loader = layout.loader(seeds=seeds, seed_time=times, memory=memory, edge_positions=True, **options)
    sampler = make_sampler(layout.artifact.graph, SamplingOptions(**options))
    originals, drawn_times = layout.artifact.graph.new_to_old("node"), layout.artifact.graph.times()
    for batch in loader:
        places = batch.input_id.numpy()
        expected = sampler.sample(seeds[places], seed_time=times.numpy()[places], batch=batch.index, positions=True)
        assert batch.nodes["node"].tolist() == expected.nodes["node"].tolist()
        assert batch.batch["node"].tolist() == expected.instances["node"].tolist()
        assert batch.seed_time.tolist() == times[batch.input_id].tolist()
        for hop, edges, positions in zip(expected.hops, batch.hops, batch.positions, strict=True):
            assert edges[REL].tolist() == [hop[REL].src.tolist(), hop[REL].dst.tolist()]
            instance = batch.batch["node"][edges[REL]]
            assert bool((instance[0] == instance[1]).all())
            assert (drawn_times[positions[REL]] <= batch.seed_time[instance[1]].numpy()).all()
        assert np.array_equal(batch.x.numpy(), FEAT[originals[batch.nodes["node"]]])
    assert (loader.windows is not None) == windows
    assert not windows or loader.stats().lists["batches"] == len(loader)


def test_each_row_is_read_once(layouts):
    layout = layouts["edge"]
    loader = layout.loader(seeds=[7] * 64, disjoint=True, fanouts=(3, 3), batch_size=64, memory="tiers")
    loader.reset_counters()
    (batch,) = loader
    rows = sum(tier["rows"] for tier in loader.counters()["node"]["tiers"].values())
    assert rows == len(torch.unique(batch.nodes["node"])) < len(batch.nodes["node"])


def test_pyg_names(layouts):
    """PyG's keywords; seeds without a time take their nodes' own; nothing newer is seen."""
    pytest.importorskip("torch_geometric")
    loader = layouts["node"].pyg_loader(num_neighbors=[5, 5], time_attr="when", batch_size=32, temporal_strategy="last")
    for data in loader:
        own = torch.from_numpy(WHEN["node"])[data.n_id]
        assert torch.equal(data.seed_time, own[: data.batch_size])
        found = torch.ones(len(own), dtype=torch.bool)
        found[: data.batch_size] = False
        assert bool((own[found] <= data.seed_time[data.batch[found]]).all())
        assert sum(data.num_sampled_nodes) == data.num_nodes and len(data.num_sampled_edges) == 2
        assert data.batch[: data.batch_size].tolist() == list(range(data.batch_size))
    nodes = {"input_nodes": torch.arange(20), "input_time": torch.full((20,), 25), "time_attr": "when"}
    for data in layouts["edge"].pyg_loader(num_neighbors=[5, 5], **nodes, subgraph_type="bidirectional"):
        pairs = set(zip(*data.edge_index.tolist(), strict=True))
        assert pairs == {(b, a) for a, b in pairs} and len(pairs) == data.num_edges and "num_sampled_edges" not in data
        assert (WHEN["edge"][data.e_id] <= 25).all()


def test_blocks_of_induced_batches_are_one(layouts):
    (batch, *_) = layouts["edge"].loader(fanouts=(3,), subgraph_type="induced", batch_size=50)
    (block,) = batch.blocks()
    assert block.num_dst == block.num_src == {"node": len(batch.nodes["node"])}
    assert block.num_edges == batch.num_edges and not batch.batch


@pytest.mark.parametrize(("error", "message", "options"), [
    (MissingError, "the graph has times 'when' of .*, not 'other'; give that name", {"time": "other"}),
    (InputError, "seed_time of type 'node': these nodes have no times", {"time": "when"}),
    (InputError, "seed_time: has no effect without time", {"seed_time": np.zeros(150)}),
    (InputError, "expected one for each of 150 seeds", {"time": "when", "seed_time": [1, 2]}),
    (InputError, "entry 3 is nan", {"time": "when", "seed_time": np.where(np.arange(150) == 3, np.nan, 1)}),
])  # fmt: skip
def test_wrong_times_show_when_the_loader_is_made(layouts, error, message, options):
    with pytest.raises(error, match=message):
        layouts["edge"].loader(**options)


FAR = [2**53 + 3] * 3


@pytest.mark.parametrize("times", [FAR, np.array(FAR), torch.tensor(FAR), [*FAR[:2], 0.5]])
def test_times_that_float64_does_not_hold_are_refused_by_every_loader(layouts, times):
    layout, links, ids = layouts["node"], links_of(3), np.arange(3)
    make = {
        "seed_time": lambda: layout.loader(seeds=ids, seed_time=times, time="when"),
        "link_time": lambda: layout.link_loader(links=links, link_time=times, time="when"),
        "seed_time ": lambda: layout.pyg_loader(input_nodes=ids, input_time=times, time_attr="when"),
        "link_time: ": lambda: layout.pyg_link_loader(edge_label_index=links, edge_label_time=times, time_attr="when"),
        "time_window": lambda: layout.loader(seeds=ids, time="when", time_window=FAR[0]),
    }
    for what, load in make.items():
        with pytest.raises(InputError, match=rf"{what.rstrip()}.*9007199254740995"):
            load()


def test_a_gpu_samples_static_batches_only(layouts, gpu):
    with pytest.raises(
        CapabilityError, match="time, disjoint and subgraph_type run only on the host; use sample_on='auto'"
    ):
        layouts["edge"].loader(disjoint=True, device="cuda", sample_on="gpu")


def links_of(count):
    return np.stack([np.arange(count), np.arange(count)[::-1].copy()])


@pytest.mark.parametrize("negatives", [None, 0.5, {"mode": "triplet", "amount": 2}])
def test_links_in_time(layouts, negatives):
    """Both ends of a link, and its negatives, have its time and number; negatives exist by then."""
    layout, count = layouts["node"], 45
    link_time = np.sort(WHEN["node"])[[0, 4, *range(10, 53)]][::-1].copy()
    own = torch.from_numpy(layout.artifact.graph.node_times("node").copy())
    options = {"fanouts": (4,), "batch_size": 10, "time": "when", "link_time": link_time}
    for batch in layout.link_loader(links=links_of(count), negatives=negatives, **options):
        links, size = batch.links, batch.links.count
        pairs = torch.arange(len(links.src)) % size
        assert links.time.tolist() == link_time[batch.input_id][pairs].tolist()
        nodes, number, ends = batch.nodes["node"], batch.batch["node"], batch.num_nodes[0]["node"]
        assert number[links.src].tolist() == pairs.tolist()
        assert number[links.dst].tolist() == pairs[: len(links.dst)].tolist()
        assert nodes[links.src[:size]].tolist() == links_of(count)[0][batch.input_id].tolist()
        times = torch.from_numpy(link_time)[batch.input_id]
        assert bool((own[nodes[ends:]] <= times[number[ends:]]).all())
        if links.dst_negative is not None:
            assert number[links.dst_negative].tolist() == [[i, i] for i in range(size)]
            assert bool((own[nodes[links.dst_negative]] <= times[:, None]).all())
            assert ends == 4 * size
        elif negatives:
            assert ends == 2 * (size + -(-size // 2))
            assert bool((own[nodes[links.dst[size:]]] <= links.time[size:]).all())


@pytest.mark.parametrize("links", [False, True])
def test_epochs_in_pieces_are_whole_epochs(layouts, links):
    """Nodes with times of their own, links with times and negatives."""
    options = {"fanouts": (4,), "batch_size": 10, "time": "when"}
    link_time, seed_time = np.sort(WHEN["node"])[10:55], WHEN["node"][: NODES // 2]

    def make(**more):
        if links:
            words = {"links": links_of(45), "negatives": 0.5, "link_time": link_time, **options, **more}
            return layouts["node"].link_loader(**words)
        return layouts["node"].loader(**{**options, "seed_time": seed_time, **more})

    loader = make()
    whole = [bits(batch) for epoch in (0, 1) for batch in loader.epoch(epoch)]
    assert in_pieces(make, 0, (2, 1)) == whole
    state, times = loader.state_dict(), {"link_time": link_time[::-1]} if links else {"seed_time": seed_time[::-1]}
    for more in (times, {"negatives": 1.0} if links else {"temporal_strategy": "last"}):
        with pytest.raises(InputError, match=f"load_state_dict: {next(iter(more))}: the state has"):
            make(**more).load_state_dict(state)


def test_links_in_time_without_reason(layouts):
    for words in ({"time": "when"}, {"link_time": np.zeros(3)}):
        with pytest.raises(InputError, match="link_time: needs time, and time needs link_time"):
            layouts["node"].link_loader(links=links_of(3), **words)
    words = {"links": links_of(2), "negatives": 1.0, "time": "when", "link_time": np.array([0.5, -1.0])}
    with pytest.raises(InputError, match=r"negative 1 of the batch, because none exists at time -1\.0"):
        layouts["node"].link_loader(**words, batch_size=2, shuffle=False)


def test_pyg_links(layouts):
    pytest.importorskip("torch_geometric")
    words = {"edge_label_index": links_of(20), "edge_label_time": np.full(20, 30), "time_attr": "when"}
    words |= {"num_neighbors": [3]}
    for data in layouts["edge"].pyg_link_loader(**words, neg_sampling="binary", batch_size=10):
        assert data.edge_label_time.tolist() == [30] * 20
        assert data.batch[data.edge_label_index].tolist() == [[*range(10)] * 2] * 2
    for data in layouts["edge"].pyg_link_loader(**words, neg_sampling="triplet", batch_size=10):
        assert data.seed_time.tolist() == [30] * 10
        assert data.batch[data.dst_neg_index].tolist() == [*range(10)]


def test_pygs_own_loaders_in_time(layouts):
    """`pyg_sampler` under PyG's loaders: no node is newer than its seed or link; the same seeds give the same batch."""
    from torch_geometric.loader import LinkLoader, NodeLoader

    layout, own = layouts["node"], torch.from_numpy(WHEN["node"])
    sampler, stores = layout.pyg_sampler([4, 4], time_attr="when"), layout.pyg_stores()
    nodes, times = torch.arange(40) % 20, torch.linspace(0, 1, 40, dtype=torch.float64)
    batches = [list(NodeLoader(stores, sampler, input_nodes=nodes, input_time=times, batch_size=10)) for _ in range(2)]
    for data, again in zip(*batches, strict=True):
        assert torch.equal(data.seed_time, times[data.input_id]) and torch.equal(data.n_id, again.n_id)
        found = slice(data.batch_size, None)
        assert bool((own[data.n_id[found]] <= data.seed_time[data.batch[found]]).all())
    links = torch.from_numpy(links_of(20))
    words = {"edge_label_index": (None, links), "batch_size": 20}
    words["edge_label_time"] = torch.full((20,), 0.6, dtype=torch.float64)
    (data,) = LinkLoader(stores, sampler, neg_sampling="binary", **words)
    assert data.edge_label_time.tolist() == [0.6] * 40
    assert data.batch[data.edge_label_index].tolist() == [[*range(20)] * 2] * 2
