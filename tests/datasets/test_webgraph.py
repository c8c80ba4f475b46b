"""Format webgraph: graphs of a slow encoder, of every code, and a real crawl; damage anywhere; the core's encoder."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiering
from tests.support.webgraph import Encoder, delta, gamma, nibble, unary, zeta
from tiering import native
from tiering.datasets import open_dataset
from tiering.datasets.readers import webgraph
from tiering.errors import InputError, TieringError

Lists = list[list[int]]
PAPER = {  # the example of the WebGraph paper's tables 1 to 3, where lists 15, 16 and 18 stand
    15: [13, 15, 16, 17, 18, 19, 23, 24, 203, 315, 1034],
    16: [15, 16, 17, 22, 23, 24, 315, 316, 317, 3041],
    18: [13, 15, 16, 17, 50],
}


def crawl_like(seed: int, nodes: int) -> Lists:
    """Lists with much in common with those before, runs of ids, and some far away; some are empty."""
    random = np.random.default_rng(seed)
    lists: Lists = []
    for node in range(nodes):
        ids: set[int] = set()
        if lists and random.random() < 0.6:
            other = lists[max(0, node - int(random.integers(1, 5)))]
            ids |= {one for one in other if random.random() < 0.8}
        if random.random() < 0.4:
            begin = int(random.integers(0, nodes))
            ids |= set(range(begin, min(nodes, begin + int(random.integers(1, 20)))))
        ids |= set(random.integers(0, nodes, int(random.integers(0, 4))).tolist())
        lists.append(sorted(ids) if random.random() < 0.9 else [])
    return lists


def edges_of(lists: Lists) -> list[tuple[int, int]]:
    return [(node, one) for node, ids in enumerate(lists) for one in ids]


def read(path: Path) -> list[tuple[int, int]]:
    with open_dataset(path) as dataset:
        assert dataset.format == "webgraph"
        edges = dataset.edges[0]
        return list(zip(edges.src[: edges.num_edges].tolist(), edges.dst.tolist(), strict=True))


def test_codes_are_those_of_the_literature() -> None:
    assert [unary(n) for n in (0, 3)] == ["1", "0001"]
    assert [gamma(n) for n in (0, 1, 2, 3, 4)] == ["1", "010", "011", "00100", "00101"]
    assert [delta(n) for n in (0, 1, 2, 3, 7)] == ["1", "0100", "0101", "01100", "00100000"]
    # Boldi and Vigna, Codes for the World Wide Web, table 1 (its numbers begin with 1)
    assert [zeta(n, 2) for n in range(8)] == ["10", "110", "111", "01000", "01001", "01010", "01011", "011000"]
    assert [zeta(n, 3) for n in range(8)] == ["100", "1010", "1011", "1100", "1101", "1110", "1111", "0100000"]
    assert [nibble(n) for n in (0, 7, 8)] == ["1000", "1111", "00011000"]


@pytest.mark.parametrize("offsets", [True, False])
def test_lists_of_the_paper(tmp_path: Path, offsets: bool) -> None:
    lists = [PAPER.get(node, []) for node in range(3042)]
    encoder = Encoder()
    encoder.write(tmp_path / "paper", lists, offsets=offsets)
    assert min(encoder.used.values()) > 0
    assert read(tmp_path) == edges_of(lists)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_what_the_encoder_writes_is_read_for_all_codes_and_parameters(
    tmp_path_factory: Any, data: st.DataObject
) -> None:
    of = {
        "OUTDEGREES": ["gamma", "delta", "unary"],
        "REFERENCES": ["unary", "gamma", "delta"],
        "BLOCK_COUNT": ["gamma", "delta", "unary"],
        "BLOCKS": ["gamma", "delta"],
        "RESIDUALS": ["zeta", "gamma", "delta", "nibble"],
        "OFFSETS": ["gamma", "delta"],
    }
    codes = {what: data.draw(st.sampled_from(names)) for what, names in of.items()}
    encoder = Encoder(
        window=data.draw(st.sampled_from([0, 1, 7, 40])),
        max_chain=data.draw(st.sampled_from([1, 3, 1000])),
        min_interval=data.draw(st.sampled_from([0, 2, 4])),
        zeta_k=data.draw(st.integers(1, 7)),
        codes=codes,
    )
    lists = crawl_like(data.draw(st.integers(0, 2**32)), data.draw(st.integers(2, 120)))
    lists[0] = [0]
    folder = tmp_path_factory.mktemp("graph")
    encoder.write(folder / "base", lists, offsets=data.draw(st.booleans()))
    assert read(folder) == edges_of(lists)


def test_any_number_of_threads_and_any_steps_give_the_same_lists(tmp_path: Path, monkeypatch: Any) -> None:
    lists = crawl_like(3, 3000)
    encoder = Encoder(max_chain=10**9)
    encoder.write(tmp_path / "base", lists)
    assert encoder.used["references"] > 500
    for threads, step in ((1, 1 << 20), (2, 1 << 20), (7, 1 << 20), (64, 1 << 20), (3, 100), (2, 1)):
        monkeypatch.setattr(webgraph, "parse_threads", lambda _, threads=threads: threads)
        monkeypatch.setattr(webgraph, "NODES_AT_ONCE", step)
        assert read(tmp_path / "base.graph") == edges_of(lists)


def test_a_real_crawl_is_decoded_from_all_it_is_made_of(shared_data: Path, tmp_path: Path) -> None:
    """The first lists of cnr-2000, without what they point to beyond them."""
    src, dst = np.load(shared_data / "cnr-2000" / "edge_index.npy", mmap_mode="r")
    nodes = 6000
    kept = (src < nodes) & (dst < nodes)
    src, dst = src[kept], dst[kept]
    lists = [part.tolist() for part in np.split(dst, np.searchsorted(src, np.arange(1, nodes)))]
    encoder = Encoder()
    encoder.write(tmp_path / "crawl", lists)
    assert min(encoder.used.values()) > 500
    assert read(tmp_path) == edges_of(lists)


def test_import_of_a_directory_with_features(tiering_cli: Any, tmp_path: Path) -> None:
    lists = crawl_like(5, 50)
    folder = tmp_path / "crawl"
    folder.mkdir()
    Encoder().write(folder / "crawl", lists)
    np.save(folder / "node_feat.npy", np.zeros((50, 3), np.float32))
    tiering_cli("import", folder, "--out", tmp_path / "g").ok()
    graph = tiering.open(tmp_path / "g")
    indptr, indices = graph.csc()
    found = sorted((int(u), v) for v in range(50) for u in indices[indptr[v] : indptr[v + 1]])
    assert found == edges_of(lists)
    assert graph.features is not None and graph.problems("full") == []
    np.save(folder / "node_feat.npy", np.zeros((51, 3), np.float32))
    tiering_cli("import", folder, "--out", tmp_path / "h").refused("expected 51 nodes", "found 50")


@pytest.fixture
def written(tmp_path: Path) -> Path:
    Encoder().write(tmp_path / "base", crawl_like(1, 200))
    return tmp_path / "base"


def change(path: Path, pattern: str, replacement: str) -> None:
    path.write_text(re.sub(pattern, replacement, path.read_text()))


@pytest.mark.parametrize(
    ("pattern", "replacement", "message"),
    [
        ("it.unimi.*", "it.unimi.dsi.webgraph.EFGraph", "expected graphclass BVGraph, found 'EFGraph'"),
        ("graphclass=.*", "underlyinggraph=below\ngraphclass=Labelled", "import its underlying graph, below"),
        ("graphclass=.*", "", "found 'nothing'"),
        ("nodes=.*", "", r"nodes: expected a whole number"),
        ("nodes=.*", "nodes=-3", r"nodes: expected a whole number"),
        ("nodes=.*", "nodes=99999999", "expected a bit or more for each list"),
        ("nodes=.*", "nodes=199", "a successor beyond the last node, 198|arcs, found"),
        ("nodes=.*", "nodes=201", "node 200|node 201"),
        ("arcs=.*", "arcs=17", "more arcs up to here than the graph has, 17"),
        ("arcs=.*", "arcs=99999999", r"expected 99999999 arcs, found \d+"),
        ("arcs=.*", "arcs=0", "expected edges, found none"),
        ("version=0", "endianness=little", "expected endianness big, found 'little'"),
        ("compressionflags=", "compressionflags=RESIDUALS_GOLOMB", "found 'RESIDUALS_GOLOMB'"),
        ("zetak=3", "zetak=x", "zetak: expected a whole number of 0 to 31"),
    ],
)
@pytest.mark.parametrize("offsets", [True, False])
def test_properties_that_do_not_fit(written: Path, pattern: str, replacement: str, message: str, offsets: bool) -> None:
    change(written.with_suffix(".properties"), pattern, replacement)
    if not offsets:
        written.with_suffix(".offsets").unlink()
    with pytest.raises(InputError, match=message):
        read(written.with_suffix(".graph"))


def test_offsets_of_another_graph(written: Path) -> None:
    Encoder().write(written.with_name("other"), crawl_like(2, 200))
    written.with_name("other.offsets").replace(written.with_suffix(".offsets"))
    with pytest.raises(InputError, match=r"base\.(graph|offsets): .*it can do without"):
        read(written.with_suffix(".graph"))


def test_several_graphs_in_one_directory(written: Path) -> None:
    Encoder().write(written.with_name("base-t"), [[0]])
    with pytest.raises(InputError, match=r"expected one graph, found 2; give one of base\.graph, base-t\.graph"):
        open_dataset(written.parent)
    assert read(written.with_name("base-t.properties")) == [(0, 0)]


def test_flags_of_webgraph_rs(written: Path) -> None:
    """It says the code of block counts with that of blocks, and the parameter of zeta codes in the name."""
    lists = crawl_like(4, 150)
    Encoder(zeta_k=5, codes={"BLOCK_COUNT": "delta", "BLOCKS": "delta"}).write(written, lists)
    change(
        written.with_suffix(".properties"),
        "compressionflags=.*",
        "endianness=big\ncompressionflags=BLOCKS_DELTA|RESIDUALS_ZETA5|",
    )
    change(written.with_suffix(".properties"), "zetak=.*", "")
    assert read(written.parent) == edges_of(lists)


@pytest.mark.parametrize("which", [".graph", ".offsets", "rebuilt"])
def test_damage_anywhere_is_one_error_or_another_graph(written: Path, which: str) -> None:
    """Of a byte changed or a file cut: nothing but an error of ours with the node, or lists that are valid."""
    path = written.with_suffix(".graph" if which == "rebuilt" else which)
    if which == "rebuilt":
        written.with_suffix(".offsets").unlink()
    whole = path.read_bytes()
    random = np.random.default_rng(7)
    refused = 0
    for trial in range(150):
        damaged = bytearray(whole)
        if trial % 10 == 9:
            del damaged[int(random.integers(0, len(damaged))) :]
        else:
            damaged[int(random.integers(0, len(damaged)))] ^= 1 << int(random.integers(0, 8))
        path.write_bytes(damaged)
        try:
            edges = read(written.with_suffix(".graph"))
        except TieringError as error:
            refused += 1
            assert str(written) in str(error)
            assert re.search(r"node \d+: |arcs, found|a bit or more", str(error)), str(error)
        else:
            assert all(0 <= u < 200 and 0 <= v < 200 for u, v in edges) and len(set(edges)) == len(edges)
    assert refused > 30


def encoded(lists: Lists, step: int, **parameters: int) -> tuple[native.BvEncoder, bytes, bytes]:
    """The core's encoder, given so many lists at a time, and its bytes of .graph and .offsets."""
    encoder = native.BvEncoder(len(lists), **parameters)
    parts = []
    for first in range(0, len(lists), step):
        some = lists[first : first + step]
        indptr = np.cumsum([0, *map(len, some)], dtype=np.int64)
        parts.append(encoder.add(indptr, np.array([one for ids in some for one in ids], np.int64)))
    parts.append(encoder.finish())
    return encoder, *(b"".join(part[k].tobytes() for part in parts) for k in (0, 1))


@st.composite
def some_lists(draw: st.DrawFn) -> Lists:
    """Lists like crawls', and sets of any ids, which may be all or none."""
    if draw(st.booleans()):
        return crawl_like(draw(st.integers(0, 2**32)), draw(st.integers(1, 80)))
    nodes = draw(st.integers(1, 40))
    ids = st.sets(st.integers(0, nodes - 1), max_size=nodes)
    return [sorted(draw(ids)) for _ in range(nodes)]


@settings(max_examples=60, deadline=None)
@given(
    lists=some_lists(),
    window=st.sampled_from([0, 1, 7, 40]),
    max_chain=st.sampled_from([0, 1, 3, 1000]),
    min_interval=st.sampled_from([0, 1, 2, 4]),
    zeta_k=st.integers(1, 7),
    step=st.sampled_from([1, 3, 1000]),
)
def test_the_core_writes_the_bytes_of_the_slow_encoder_and_reads_them(
    tmp_path_factory: Any, lists: Lists, window: int, max_chain: int, min_interval: int, zeta_k: int, step: int
) -> None:
    parameters = {"window": window, "max_chain": max_chain, "min_interval": min_interval, "zeta_k": zeta_k}
    slow, base = Encoder(**parameters, shortest=True), tmp_path_factory.mktemp("graph") / "base"
    slow.write(base, lists)
    fast, graph, offsets = encoded(lists, step, **parameters)
    assert graph == base.with_suffix(".graph").read_bytes()
    assert offsets == base.with_suffix(".offsets").read_bytes()
    assert fast.bits == sum(map(len, Encoder(**parameters, shortest=True).lists(lists)))
    assert fast.residual_arcs == slow.used["residuals"]
    assert fast.copied_arcs + fast.interval_arcs + fast.residual_arcs == sum(map(len, lists))
    if any(lists):
        assert read(base.with_suffix(".graph")) == edges_of(lists)


def test_distant_ids_and_long_codes(tmp_path: Path) -> None:
    nodes = 300_000
    lists: Lists = [[] for _ in range(nodes)]
    lists[0] = [0, nodes - 1]
    lists[nodes - 1] = [0, 7, *range(70_000, 200_000), nodes - 1]
    lists[nodes - 2] = lists[nodes - 200] = list(range(0, nodes, 3))  # a reference 198 nodes back
    fast, graph, offsets = encoded(lists, nodes, window=500)
    assert fast.copied_arcs >= nodes // 3
    Encoder(window=500).write(tmp_path / "base", [[0]])
    (tmp_path / "base.graph").write_bytes(graph)
    (tmp_path / "base.offsets").write_bytes(offsets)
    change(tmp_path / "base.properties", "nodes=1\narcs=1", f"nodes={nodes}\narcs={len(edges_of(lists))}")
    assert read(tmp_path) == edges_of(lists)


def test_a_real_crawl_is_written_as_webgraph_has_written_it(shared_data: Path) -> None:
    """The numbers are of cnr-2000.properties, the sums of the files that LAW publishes, without zeros at their end."""
    src, dst = np.load(shared_data / "cnr-2000" / "edge_index.npy")
    indptr = np.searchsorted(src, np.arange(325_558)).astype(np.int64)
    encoder = native.BvEncoder(325_557)
    parts = [encoder.add(indptr, dst), encoder.finish()]
    graph, offsets = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
    found = encoder.copied_arcs, encoder.interval_arcs, encoder.residual_arcs
    assert found == (2_195_145, 443_657, 577_350)
    assert round(encoder.bits / 3_216_152, 3) == 2.897
    assert hashlib.sha256(graph).hexdigest() == "51dbd6a2d3630879cd5ffbc8315541a886cf5269b8aa096ebc2272cf90364ec8"
    assert hashlib.sha256(offsets).hexdigest() == "d0af42340bf2859ea5a2902b0a28776ccf98d313acafc9872283a68167cc6ac7"
    again, where = np.zeros(325_558, np.int64), np.zeros(325_558, np.int64)
    usual = ["gamma", "unary", "gamma", "gamma", "gamma", "zeta"]
    decoder = native.BvGraph(graph, 325_557, 3_216_152, 7, 4, 3, usual)
    decoder.find_lists(0, 325_557, where, again)
    indices = np.zeros(3_216_152, np.int64)
    decoder.decode(0, 325_557, where, again, indices, 2)
    assert np.array_equal(again, indptr)
    assert np.array_equal(indices, dst)


@pytest.mark.parametrize(
    ("indptr", "indices", "message"),
    [
        ([0, 2], [3, 3], "node 0: successors must rise from 0 to 4, found 3"),
        ([0, 1, 2], [4, 5], "node 1: successors must rise from 0 to 4, found 5"),
        ([0, 1], [-1], "node 0: successors must rise"),
        ([0, 2, 1, 2], [0, 1], "node 1: indptr falls"),
        ([0, 3, 2], [0, 1], "node 0: indptr falls"),
        ([1, 2], [0, 1], "expected entries from 0 to the number of indices"),
        ([], [], "expected entries from 0"),
        ([0] * 7, [], "more lists than the graph has nodes, 5"),
    ],
)
def test_the_encoder_refuses_wrong_lists(indptr: list[int], indices: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        native.BvEncoder(5).add(np.array(indptr, np.int64), np.array(indices, np.int64))


def test_the_encoder_refuses_wrong_parameters_and_an_early_end() -> None:
    with pytest.raises(ValueError, match="expected lists of 5 nodes, found 0"):
        native.BvEncoder(5).finish()
    for wrong in ({"window": -1}, {"zeta_k": 0}, {"max_chain": -1}, {"min_interval": -1}):
        with pytest.raises(ValueError, match="expected"):
            native.BvEncoder(5, **wrong)


def test_the_core_refuses_wrong_arrays() -> None:
    bits = np.frombuffer(b"\xff" * 8, np.uint8)
    graph = native.BvGraph(bits, 4, 4, 7, 4, 3, ["gamma", "unary", "gamma", "gamma", "gamma", "zeta"])
    five, four = np.zeros(5, np.int64), np.zeros(4, np.int64)
    with pytest.raises(ValueError, match="one offset more"):
        graph.find_lists(0, 4, five, four)
    with pytest.raises(ValueError, match="nodes outside the graph"):
        graph.find_lists(0, 5, five, five)
    with pytest.raises(ValueError, match="indptr is wrong"):
        graph.decode(0, 4, five, np.array([0, 9, 9, 9, 9]), np.zeros(4, np.int64))
