"""Changes at import by the user's options: to the edges, and random arrays of nodes; each is recorded.

Edge data go with their edges: a reverse edge has the data of its original. An added self loop has weight 1, features 0,
NaN in other floats and -1 in other whole numbers; ids are by default positions in the source. Cost: one pass each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.manifest import relation_key
from tiering.datasets.edges import find_largest_id
from tiering.datasets.generated import FEATURE_BLOCK, KeyedPermutation, Population
from tiering.datasets.import_context import ImportContext, chunks, mark_changes, rows_of_chunk
from tiering.datasets.options import RANDOM_OPTIONS
from tiering.errors import InputError
from tiering.formats.dataset import Dataset, EdgeData, FeatureStream
from tiering.formats.features import EDGE_FEATURES, LABEL_VALUES
from tiering.text.options import spell_flag

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
NewColumn = tuple[npt.DTypeLike, Iterator[Array]]  # dtype of a column, and its values in pieces
# Edges that `_deduplicate` sorts at a time, by the budget, and the memory that each takes.
SMALLEST_BUCKET, LARGEST_BUCKET, BYTES_PER_EDGE = 1 << 14, 1 << 24, 64
MAX_BUCKETS = 256  # three open files each
_ODD = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)  # spread the list of a hub over buckets


def transform(dataset: Dataset, context: ImportContext, edge_ids: bool) -> None:
    """Apply ``self_loops``, ``reverse_edges`` and ``deduplicate`` to all relations, in place, after a check of ids.

    With `edge_ids` edges without ids of their own get their positions first.
    """
    options = context.options
    if not options.changes_edges:
        return
    for edge in dataset.edges:
        for end, ids, node_type in (("source", edge.src, 0), ("destination", edge.dst, 2)):
            nodes, largest = dataset.nodes[edge.relation[node_type]].num_nodes, find_largest_id(ids, edge.where, end)
            if largest.id >= nodes:
                outside = f"outside 0..{nodes - 1} ({nodes} {edge.relation[node_type]} nodes)"
                raise InputError(f"{largest.place} is {outside}; correct the file or --num-nodes")
        if edge_ids and edge.edge_ids is None:
            edge.edge_ids = context.scratch.positions(edge.num_edges)

    def change(step: str, edges: list[EdgeData], action: Callable[[EdgeData, int, ImportContext], None]) -> None:
        for edge in edges:
            before = edge.num_edges
            action(edge, dataset.nodes[edge.relation[0]].num_nodes, context)
            _record(step, edge, before, context)
            if edge.num_edges != before:
                edge.where = f"{edge.where} after {step}"

    loops = [edge for edge in dataset.edges if edge.relation[0] == edge.relation[2]]
    if options.self_loops == "remove":
        change("remove self loops", loops, lambda edge, _, context: _keep(edge, _mark_no_loops(edge, context), context))
    if options.reverse_edges:
        for edge in list(dataset.edges):
            if edge.relation[0] == edge.relation[2]:
                change("add reverse edges", [edge], _append_reverse)
            else:
                _add_reverse_relation(dataset, edge, context)
    if options.deduplicate:
        change("deduplicate", dataset.edges, _deduplicate)
    if options.self_loops == "add":
        change("add self loops", loops, _add_loops)


def _record(step: str, edge: EdgeData, before: int, context: ImportContext) -> None:
    entry = {"step": step, "relation": relation_key(edge.relation)}
    context.notes.setdefault("changes", []).append({**entry, "edges_before": before, "edges_after": edge.num_edges})


def _pieces(column: Array, keep: Mask | None = None) -> Iterator[Array]:
    for part in chunks(column.shape[0], rows_of_chunk(column)):
        yield column[part] if keep is None else column[part][keep[part]]


def _rewrite(edge: EdgeData, size: int, make_column: Callable[[str, Array], NewColumn], context: ImportContext) -> None:
    """Replace ``src``, ``dst``, ``edge_ids`` and ``data.NAME`` by the columns that `make_column` makes of them."""

    def rewrite(name: str, column: Array) -> Array:
        dtype, pieces = make_column(name, column)
        out, at = context.scratch.array((size, *column.shape[1:]), dtype), 0
        for piece in pieces:
            out[at : at + piece.shape[0]] = piece
            at += piece.shape[0]
        return out

    edge.src, edge.dst = rewrite("src", edge.src), rewrite("dst", edge.dst)
    edge.data = {name: rewrite(f"data.{name}", column) for name, column in edge.data.items()}
    if edge.edge_ids is not None:
        edge.edge_ids = rewrite("edge_ids", edge.edge_ids)


def _keep(edge: EdgeData, keep: Mask, context: ImportContext) -> None:
    after = int(np.count_nonzero(keep))
    if after < edge.num_edges:
        _rewrite(edge, after, lambda _, column: (column.dtype, _pieces(column, keep)), context)


def _mark_no_loops(edge: EdgeData, context: ImportContext) -> Mask:
    keep = context.scratch.array(edge.num_edges, bool)
    for part in chunks(edge.num_edges):
        keep[part] = edge.src[part] != edge.dst[part]
    return keep


def _add_reverse_relation(dataset: Dataset, edge: EdgeData, context: ImportContext) -> None:
    source, name, target = edge.relation
    relation = (target, f"rev_{name}", source)
    if relation in dataset.relations or name.startswith("rev_"):
        context.warn(f"{relation_key(edge.relation)}: not reversed, there is a relation that does it already")
        return
    dataset.edges.append(replace(edge, relation=relation, src=edge.dst, dst=edge.src, data=dict(edge.data)))
    _record("add reverse edges", dataset.edges[-1], 0, context)


def _append_reverse(edge: EdgeData, num_nodes: int, context: ImportContext) -> None:
    keep = _mark_no_loops(edge, context)
    reverse = {"src": edge.dst, "dst": edge.src}

    def make_column(name: str, column: Array) -> NewColumn:
        tail = reverse.get(name, column)
        return np.result_type(column.dtype, tail.dtype), chain(_pieces(column), _pieces(tail, keep))

    _rewrite(edge, edge.num_edges + int(np.count_nonzero(keep)), make_column, context)


def _add_loops(edge: EdgeData, num_nodes: int, context: ImportContext) -> None:
    missing = np.ones(num_nodes, bool)
    for part in chunks(edge.num_edges):
        src = edge.src[part]
        missing[src[src == edge.dst[part]]] = False

    def make_column(name: str, column: Array) -> NewColumn:
        added = (part.start + np.flatnonzero(missing[part]) for part in chunks(num_nodes, rows_of_chunk(column)))
        if name in ("src", "dst"):
            return column.dtype, chain(_pieces(column), added)
        none = {"i": -1, "f": np.nan}.get(column.dtype.kind)
        value = {"data.weight": 1, f"data.{EDGE_FEATURES}": 0}.get(name, none)
        if value is None:
            problem = f"--self-loops add: expected a signed {name.removeprefix('data.')}, found {column.dtype}"
            raise InputError(f"{edge.where}: {problem}; convert it, for example with array.astype('int32')")
        values = (np.full((ids.size, *column.shape[1:]), value, column.dtype) for ids in added)
        return column.dtype, chain(_pieces(column), values)

    _rewrite(edge, edge.num_edges + int(np.count_nonzero(missing)), make_column, context)


def _deduplicate(edge: EdgeData, num_src: int, context: ImportContext) -> None:
    """Keep the first of each set of equal edges: they meet in a bucket by a hash of both ends, sorted by itself."""
    keep = context.scratch.array(edge.num_edges, bool)
    keep[:] = False
    fitting = context.scratch.budget.left() // (2 * BYTES_PER_EDGE)
    most = min(LARGEST_BUCKET, max(SMALLEST_BUCKET, fitting))
    buckets = min(MAX_BUCKETS, -(-edge.num_edges // most))
    if buckets <= 1:
        keep[_find_firsts(edge.src[:], edge.dst[:], num_src)] = True
    else:
        files = [tuple(context.scratch.growing_file("<i8") for _ in range(3)) for _ in range(buckets)]
        for part in chunks(edge.num_edges):
            src, dst = edge.src[part], edge.dst[part]
            mixed = src.astype(np.uint64) * _ODD[0] + dst.astype(np.uint64) * _ODD[1]
            number = ((mixed >> np.uint64(40)) % np.uint64(buckets)).astype(np.uint8)
            ends = np.cumsum(np.bincount(number, minlength=buckets))
            for bucket, inside in zip(files, np.split(np.argsort(number, kind="stable"), ends[:-1]), strict=True):
                for column, values in zip(bucket, (src[inside], dst[inside], inside + part.start), strict=True):
                    column.append(values)
        for bucket in files:
            columns = [column.finish() for column in bucket]  # source, destination, position
            kept = [column[:0] for column in columns]
            # A bucket of more than `most` has many equal edges: only the first of those goes from piece to piece.
            for piece in chunks(columns[0].shape[0], most):
                joined = [np.concatenate((own, column[piece])) for own, column in zip(kept, columns, strict=True)]
                first = np.sort(_find_firsts(joined[0], joined[1], num_src))
                kept = [values[first] for values in joined]
            keep[kept[2]] = True
    _keep(edge, keep, context)


def _find_firsts(src: Array, dst: Array, num_src: int) -> Array:
    """Return positions of the first of each set of equal pairs, in no useful order."""
    if src.shape[0] == 0:
        return np.empty(0, np.int64)
    if int(dst.max()) >= (2**63 - 1) // max(1, num_src):
        order = np.lexsort((src, dst))  # stable: the first of equals comes first
        return order[mark_changes(src[order]) | mark_changes(dst[order])]
    pair = dst.astype(np.int64)
    pair *= num_src
    pair += src
    order = np.argsort(pair, kind="stable")
    return order[mark_changes(pair[order])]


def add_random(dataset: Dataset, context: ImportContext) -> None:
    """Add the arrays of options ``random_features``, ``random_labels``, ``random_train``; raise where one is there."""
    options = context.options
    if options.seed and not RANDOM_OPTIONS & set(context.notes["options"]):
        flags = ", ".join(map(spell_flag, sorted(RANDOM_OPTIONS)))
        raise InputError(f"--seed: applies to {flags}; --split uses --split-seed")
    for stream, (node_type, nodes) in enumerate(sorted(dataset.nodes.items())):
        has_labels = nodes.labels is not None or LABEL_VALUES in nodes.extra
        present = {"features": nodes.features is not None, "labels": has_labels, "train": bool(nodes.splits)}
        values = {what: getattr(options, f"random_{what}").get(node_type) for what in present}
        asked = {what: value for what, value in values.items() if value is not None}
        if wrong := [what for what in asked if present[what]]:
            raise InputError(
                f"--random-{wrong[0]}: node type {node_type} of {context.notes['source']} has "
                f"{'splits' if wrong[0] == 'train' else wrong[0]} already; omit the option, or name types as "
                "TYPE=..."
            )
        if not asked:
            continue
        context.notes.setdefault("random", {})[node_type] = {**asked, "seed": options.seed}
        count = nodes.num_nodes
        population = Population(count, asked.get("labels", 1), options.seed, stream)
        if "features" in asked:
            pieces = partial(population.feature_blocks, asked["features"], 0.0)
            nodes.features = FeatureStream(count, asked["features"], "float32", pieces, "random", 32 * FEATURE_BLOCK)
        if "labels" in asked:
            nodes.labels, nodes.num_classes = context.scratch.array(count, np.int64), asked["labels"]
            for part in chunks(count):
                nodes.labels[part] = population.community_of_ids(np.arange(part.start, part.stop))
        if "train" in asked and count:
            ids = np.arange(max(1, int(count * asked["train"])))
            nodes.splits["train"] = np.sort(KeyedPermutation(count, (options.seed, 3, stream)).forward(ids))
