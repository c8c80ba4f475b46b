"""Arrow columns of users as NumPy arrays, by their interface alone; scores, training nodes and ids that are such."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiering
from tiering.errors import InputError
from tiering.formats.arrow import as_array


class Exported:
    """An object of some library, of which only Arrow's interface is known."""

    def __init__(self, value: Any, *methods: str) -> None:
        for method in methods or ("__arrow_c_stream__", "__arrow_c_array__"):
            if hasattr(value, method):
                setattr(type(self), method, property(lambda self, method=method: getattr(self.value, method)))
        self.value = value


def exported(value: Any) -> Any:
    return type("Exported", (Exported,), {})(value)


@given(
    st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5), max_size=4),
    st.sampled_from([np.int64, np.float64, np.float32, np.bool_]),
)
def test_columns_have_their_values_in_any_pieces(pieces: list[list[int]], kind: type) -> None:
    values = [np.array(piece, np.int64).astype(kind) for piece in pieces]
    column, expected = pa.chunked_array(values, pa.from_numpy_dtype(kind)), np.concatenate([*values, np.empty(0, kind)])
    whole = column.combine_chunks()
    whole = whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole
    for shape in (column, exported(column), whole, exported(whole), pa.table({"a": column}), whole.to_numpy(False)):
        array = as_array(shape)
        assert array.dtype == expected.dtype
        np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.table({"a": [1], "b": [2]}), "mine: expected one column, found 2: a, b; select one"),
        ([[1], [2, 3]], "mine: expected an array of numbers, found list .*"),
        (pa.table({}), "mine: expected one column, found 0: "),
        (pa.array([1, 2, None]), "mine: expected a value in each row, found null at row 2; fill or remove it"),
        (pa.chunked_array([[1.5], [None]]), "mine: expected a value in each row, found null at row 1"),
        (exported(pa.table({"a": [None]})), "mine: expected a value in each row, found null at row 0"),
        (pa.RecordBatchReader.from_batches(pa.schema([("a", pa.int64())]), iter([pa.record_batch({"b": [1]}), 3])),
         "mine: expected an array of numbers, found pyarrow.RecordBatchReader "),
    ],
)  # fmt: skip
def test_what_is_no_column_of_values_is_refused(column: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        as_array(column, "mine")


def test_scores_training_nodes_and_seeds_may_be_arrow_columns(tiny_dataset, tmp_path):
    graph = tiering.import_graph(tiny_dataset, tmp_path / "g")
    hot, train = np.random.default_rng(0).permutation(graph.num_nodes()).astype(np.float32), np.array([3, 1, 30])
    reads: list[Any] = []
    kinds = (np.asarray, pa.array, lambda values: exported(pa.chunked_array([values[:2], values[2:]])))
    for k, kind in enumerate(kinds):
        scores = tiering.score_graph(graph, tmp_path / f"s{k}", scores=kind(hot))
        np.testing.assert_array_equal(scores.values("node"), hot)
        reads.append(
            tiering.score_graph(
                graph, tmp_path / f"v{k}", "vip", train={"node": kind(train)}, fanouts=[2], batch_size=2
            ).values("node")
        )
        np.testing.assert_array_equal(reads[0], reads[k])
    for bad, message in (
        (pa.array([*hot.tolist()[1:], None]), "found null at row 39"),
        (pa.array(["a"] * hot.size), "expected .*numbers"),
        (pa.table({"a": hot, "b": hot}), "scores.* of 'node': expected one column, found 2: a, b; select one"),
    ):
        with pytest.raises(InputError, match=message):
            tiering.score_graph(graph, tmp_path / "bad", scores=bad)
    reordered = tiering.reorder_graph(graph, tmp_path / "s0", tmp_path / "r")
    with tiering.write_layout(reordered, tmp_path / "l", cpu="100%") as layout:
        for ids in (train, pa.array(train), exported(pa.table({"id": train}))):
            (batch,) = layout.pyg_loader(input_nodes=ids, num_neighbors=[2], batch_size=3, shuffle=False)
            assert batch.n_id[:3].tolist() == train.tolist()
            (batch,) = layout.loader(seeds=ids, fanouts=[2], batch_size=3, shuffle=False)
            assert batch.seeds.tolist() == train.tolist()
        with pytest.raises(InputError, match=r"seeds: expected a value in each row, found null at row 1"):
            layout.loader(seeds=pa.array([1, None]), fanouts=[2])
        np.testing.assert_array_equal(layout.features().gather(pa.array(train)), layout.features().gather(train))
        with pytest.raises(InputError, match=r"ids: expected a value in each row, found null at row 0"):
            layout.features().gather(pa.array([None], pa.int64()))
