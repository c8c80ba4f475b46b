"""Batches of links: every link once per epoch, negative pairs by their definition, places that lead back to the ids."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tiering.errors import InputError
from tiering.sampling import LinkPlan, Links, NegativeDraws, Negatives, link_nodes

LOOP = ("user", "follows", "user")
BIPARTITE = ("user", "buys", "item")
USERS, ITEMS = 40, 7


def links_of(relation, count, seed=0):
    """Random links, and their ends."""
    rng = np.random.default_rng(seed)
    num_dst = USERS if relation[2] == "user" else ITEMS
    ends = np.stack([rng.integers(0, USERS, count), rng.integers(0, num_dst, count)])
    return Links.of_ids(relation, ends[0], ends[1], (USERS, num_dst)), ends


@settings(deadline=None)
@given(
    st.sampled_from([LOOP, BIPARTITE]), st.integers(1, 90), st.integers(1, 40),
    st.sampled_from([None, Negatives(), Negatives("binary", 0.3), Negatives("triplet", 3)]), st.booleans(),
)  # fmt: skip
def test_places_lead_back_to_the_ends(relation, count, size, negatives, shuffle):
    links, ends = links_of(relation, count)
    plan = LinkPlan(links, size, 2, seed=5, negatives=negatives, shuffle=shuffle)
    seen = []
    for batch, nodes in enumerate(plan):
        about = plan.linked_nodes(batch)
        assert all(np.array_equal(about.nodes[t], nodes[t]) for t in nodes)
        assert all(np.unique(ids).size == ids.size for ids in nodes.values())
        own = about.places.size
        np.testing.assert_array_equal(nodes[relation[0]][about.src[:own]], ends[0][about.places])
        np.testing.assert_array_equal(nodes[relation[2]][about.dst[:own]], ends[1][about.places])
        used = [about.src, about.dst] if about.dst_negative is None else [about.src, about.dst, about.dst_negative]
        if relation is LOOP:  # numbered in order of appearance, and nothing but the ends
            flat = np.concatenate([places.reshape(-1) for places in used])
            firsts = np.unique(flat, return_index=True)[1]
            assert firsts.size == nodes["user"].size and (np.diff(firsts) > 0).all()
        extra = 0 if negatives is None else int(np.ceil(own * negatives.amount))
        if negatives is not None and negatives.triplets:
            assert about.src.size == about.dst.size == own
            assert about.dst_negative.shape == (own, 3)
        else:
            assert about.src.size == about.dst.size == own + extra and about.dst_negative is None
        seen.append(about.places)
    order = np.concatenate(seen)
    np.testing.assert_array_equal(np.sort(order), np.arange(count))
    assert shuffle or (order == np.arange(count)).all()


def test_edges_of_a_relation_by_their_places():
    dst = np.repeat(np.arange(5), [0, 3, 0, 2, 1])
    src = np.array([4, 4, 0, 2, 3, 1])
    links = Links.of_csc(LOOP, np.array([0, 0, 3, 3, 5, 6]), src.astype(np.int32), 5)
    for got, expected in zip(links.pairs(np.array([5, 0, 3])), (src[[5, 0, 3]], dst[[5, 0, 3]]), strict=True):
        np.testing.assert_array_equal(got, expected)
        assert got.dtype == np.int64
    assert links.count == 6 and links.num_nodes == (5, 5)


def draws(negatives, batches=60, **options):
    """Ends of the negative pairs of many batches."""
    links, _ = links_of(BIPARTITE, batches * 20)
    plan = LinkPlan(links, 20, 0, negatives=negatives, **options)
    pairs = [[], []]
    for batch, nodes in enumerate(plan):
        about = plan.linked_nodes(batch)
        for end, places in enumerate((about.src[20:], about.dst[20:])):
            pairs[end].append(nodes[BIPARTITE[2 * end]][places])
    return np.concatenate(pairs[0]), np.concatenate(pairs[1])


def test_negatives_are_uniform_or_weighted():
    src, dst = draws(Negatives("binary", 4))
    for ids, count in ((src, USERS), (dst, ITEMS)):
        expected = ids.size / count
        assert (np.abs(np.bincount(ids, minlength=count) - expected) < 5 * np.sqrt(expected)).all()
    weight = np.array([0.0, 1, 0, 3, 0, 0, 0])
    src, dst = draws(Negatives("binary", 4, dst_weight=weight))
    counts = np.bincount(dst, minlength=ITEMS)
    assert counts[[0, 2, 4, 5, 6]].sum() == 0
    assert abs(counts[3] / dst.size - 0.75) < 5 * np.sqrt(0.75 * 0.25 / dst.size)
    assert np.unique(src).size == USERS


def test_negatives_depend_on_seed_epoch_and_batch_alone():
    links, _ = links_of(BIPARTITE, 60)

    def pairs(batch, epoch=0, seed=0, size=20):
        plan = LinkPlan(links, size, epoch, seed=seed, negatives=Negatives(), shuffle=False)
        about = plan.linked_nodes(batch)
        return about.nodes["user"][about.src[size:]].tolist()

    first = pairs(0)
    assert pairs(0) == first
    assert all(other != first for other in (pairs(1), pairs(0, epoch=1), pairs(0, seed=1)))


def test_negatives_of_a_renumbered_graph_are_the_images():
    links, ends = links_of(BIPARTITE, 60)
    rank = {"user": np.random.default_rng(1).permutation(USERS), "item": np.random.default_rng(2).permutation(ITEMS)}
    moved = Links.of_ids(
        BIPARTITE, rank["user"][ends[0]], rank["item"][ends[1]], (USERS, ITEMS), lambda t, ids: rank[t][ids]
    )
    for negatives in (Negatives(), Negatives("triplet", 2), Negatives(src_weight=np.arange(USERS))):
        plain, image = (LinkPlan(of, 16, 3, seed=9, negatives=negatives) for of in (links, moved))
        for a, b in zip(plain, image, strict=True):
            for t in ("user", "item"):
                np.testing.assert_array_equal(rank[t][a[t]], b[t])


def test_the_last_batch_may_be_left_out():
    links, _ = links_of(LOOP, 25)
    assert [p.places.size for p in map(LinkPlan(links, 10, 0).linked_nodes, range(3))] == [10, 10, 5]
    short = LinkPlan(links, 10, 0, drop_last=True)
    assert len(short) == 2
    with pytest.raises(IndexError, match="batch 2 of 2"):
        short[2]
    with pytest.raises(InputError, match="25 links do not fill a batch of 26"):
        LinkPlan(links, 26, 0, drop_last=True)


@pytest.mark.parametrize(("options", "words"), [
    ({"mode": "both"}, "binary or triplet, found 'both'"), ({"amount": 0}, "more than 0, found 0"),
    ({"amount": float("nan")}, "more than 0, found nan"),
    ({"mode": "triplet", "amount": 1.5}, "whole number for each link, found 1.5"),
])  # fmt: skip
def test_negatives_that_make_no_sense(options, words):
    with pytest.raises(InputError, match=words):
        Negatives(**options)


def test_weights_and_links_that_do_not_fit():
    links, _ = links_of(BIPARTITE, 5)
    for weight, words in (
        (np.ones(3), r"dst_weight: expected one weight for each of 7 nodes, found \(3,\)"),
        (np.zeros(7), "finite weights of 0 or more, at least one above 0"),
        (-np.ones(7), "0 or more"),
        (np.full(7, np.inf), "finite"),
    ):
        with pytest.raises(InputError, match=words):
            LinkPlan(links, 2, 0, negatives=Negatives(dst_weight=weight))
    with pytest.raises(InputError, match=r"destinations: entry 1 is 7; expected ids, 0 \.\. 6"):
        Links.of_ids(BIPARTITE, np.array([0, 1]), np.array([6, 7]), (USERS, ITEMS))
    with pytest.raises(InputError, match="expected at least 1, found 0"):
        Links.of_ids(BIPARTITE, np.empty(0, np.int64), np.empty(0, np.int64), (USERS, ITEMS))


@pytest.mark.parametrize("weight", [None, np.array([1.0, 5, 2, 0, 1, 1])])
def test_negatives_in_time_are_even_among_the_nodes_that_exist(weight):
    """Nodes exist since 0, 3, 1, 3, 5, 6 (spec example 20): at 1 they are 0 and 2, at 5 all but the last."""
    times = np.array([0, 3, 1, 3, 5, 6])
    draws = NegativeDraws(Negatives(dst_weight=weight), (6, 6), (None, times))
    for now in (1, 5):
        chances = np.where(times <= now, np.ones(6) if weight is None else weight, 0)
        found = np.bincount(draws(np.random.Philox(1), 4000, 1, np.full(4000, now)), minlength=6)
        assert (found[chances == 0] == 0).all()
        there = chances > 0
        assert stats.chisquare(found[there], 4000 * chances[there] / chances.sum()).pvalue > 1e-3
    with pytest.raises(InputError, match="negative 2 of the batch, because none exists at time -1"):
        draws(np.random.Philox(1), 3, 1, np.array([5, 5, -1]))


def test_ends_in_time_have_their_own_links_number():
    """Example 19: where negatives are no multiple of links, PyG gives destinations another link's number and time."""
    links = Links.of_ids(LOOP, np.array([0, 3]), np.array([1, 2]), (6, 6))
    links.time = np.array([4, 1])
    draws = NegativeDraws(Negatives(amount=0.5), (6, 6))
    linked = link_nodes(links, np.arange(2), draws, (0, 0, 0), disjoint=True)
    (nodes, numbers, times) = (found["user"].tolist() for found in (linked.nodes, linked.end_links, linked.seed_time))
    assert [nodes[k] for k in (0, 1, 3, 4)] == [0, 3, 1, 2]
    assert numbers == [0, 1, 0, 0, 1, 0] and times == [4, 1, 4, 4, 1, 4]
    assert linked.src.tolist() == [0, 1, 2] and linked.dst.tolist() == [3, 4, 5] and linked.time.tolist() == [4, 1, 4]
