"""Seeds of a loader by the ids and names of the source, masks and columns of Arrow."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from named_layouts import KINDS, named_layout, source_ids

from tiering.errors import InputError, MissingError

CHOSEN = [41, 3, 17, 58, 0]


def seeds_of(layout, **options):
    """The ranks of the seeds of one epoch, in order."""
    loader = layout.loader(fanouts=[2], shuffle=False, batch_size=2, **options)
    return np.concatenate([batch.seeds for batch in loader])


@pytest.mark.parametrize("kind", KINDS)
def test_seeds_in_every_form(tmp_path, kind):
    layout = named_layout(tmp_path, kind)
    ranks = layout.old_to_new()[CHOSEN].astype(np.int64)
    names = [source_ids(kind, 60)[k] for k in CHOSEN]
    mask = np.isin(np.arange(60), CHOSEN)
    column = pa.chunked_array([names[:2], names[2:]])
    for seeds, ids, expected in (
        (ranks, "rank", ranks), (CHOSEN, "original", ranks), (pa.array(CHOSEN), "original", ranks),
        (names, "name", ranks), (np.array(names), "name", ranks), (column, "name", ranks),
        (mask, "original", layout.old_to_new()[sorted(CHOSEN)]), (mask, "name", layout.old_to_new()[sorted(CHOSEN)]),
        (np.isin(layout.new_to_old(), CHOSEN), "rank", sorted(ranks)),
    ):  # fmt: skip
        np.testing.assert_array_equal(seeds_of(layout, seeds=seeds, seed_ids=ids), expected)
    np.testing.assert_array_equal(seeds_of(layout, seeds=ranks), ranks)


def test_seeds_that_are_refused(tmp_path):
    layout, numbers = named_layout(tmp_path / "names", "names"), named_layout(tmp_path / "numbers", "numbers")
    for options, words in (
        ({"seeds": [1], "seed_ids": "own"}, "seed_ids: expected rank, original, name, found 'own'"),
        ({"seeds": ["Q1"], "seed_ids": "name"}, "no node of type node has the name 'Q1'"),
        ({"seeds": [1], "seed_ids": "name"}, "names of node are text, found 1"),
        ({"seeds": ["Q0é"]}, "seeds: expected ranks of 'node', whole numbers"),
        ({"seeds": [60], "seed_ids": "original"}, "seeds: entry 0 is 60; expected original ids"),
        ({"seeds": np.ones(59, bool)}, r"seeds: expected a mask of shape \(60,\)"),
    ):
        with pytest.raises((InputError, MissingError), match=words):
            layout.loader(**options)
    with pytest.raises((InputError, MissingError), match="no node of type node has the id 5"):
        numbers.loader(seeds=pa.array([5]), seed_ids="name")
    with pytest.raises(TypeError, match="seed_ids"):
        layout.link_loader(seed_ids="name")
    pytest.importorskip("torch_geometric")
    with pytest.raises(InputError, match="give seeds= instead of input_nodes"):
        layout.pyg_loader(input_nodes=[1], seed_ids="name")
    batch = next(iter(layout.pyg_loader(seeds=["Q0é"], seed_ids="name", num_neighbors=[2])))
    assert batch.batch_size == 1 and source_ids("names", 60)[batch.n_id[0]] == "Q0é"
