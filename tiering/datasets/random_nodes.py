"""Random features, labels and training nodes for graphs that have none, such as crawls.

Numbers come from the streams of `tiering generate`, keyed by seed, node type and block: a node has the same
whatever the memory. Features are noise of variance 1; each class has as many nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.datasets.generated import FEATURE_BLOCK, KeyedPermutation, Population
from tiering.datasets.import_context import ImportContext
from tiering.datasets.options import RANDOM_OPTIONS
from tiering.datasets.scratch import chunks
from tiering.errors import InputError
from tiering.formats.dataset import Dataset, FeatureStream, GraphSoFar
from tiering.formats.features import LABEL_VALUES
from tiering.options import spell_flag

_MEMORY = 32 * FEATURE_BLOCK  # bytes that a block of features takes while it is made


def add_random(dataset: Dataset, context: ImportContext) -> None:
    """Add what options ``random_features``, ``random_labels``, ``random_train`` ask for; refuse what is there."""
    options = context.options
    if options.seed and not RANDOM_OPTIONS & set(context.notes["options"]):
        flags = ", ".join(map(spell_flag, sorted(RANDOM_OPTIONS)))
        raise InputError(f"--seed: is for {flags}; --split has --split-seed")
    for stream, (node_type, nodes) in enumerate(sorted(dataset.nodes.items())):
        has_labels = nodes.labels is not None or LABEL_VALUES in nodes.extra
        present = {"features": nodes.features is not None, "labels": has_labels, "train": bool(nodes.splits)}
        values = {what: getattr(options, f"random_{what}").get(node_type) for what in present}
        asked = {what: value for what, value in values.items() if value is not None}
        if wrong := [what for what in asked if present[what]]:
            raise InputError(
                f"--random-{wrong[0]}: node type {node_type} of {context.notes['source']} has "
                f"{'splits' if wrong[0] == 'train' else wrong[0]} already; leave the option out, or name types as "
                "TYPE=..."
            )
        if not asked:
            continue
        context.notes.setdefault("random", {})[node_type] = {**asked, "seed": options.seed}
        count = nodes.num_nodes
        population = Population(count, asked.get("labels", 1), options.seed, stream)
        if "features" in asked:
            nodes.features = _make_features(population, asked["features"])
        if "labels" in asked:
            nodes.labels, nodes.num_classes = context.scratch.array(count, np.int64), asked["labels"]
            for part in chunks(count):
                nodes.labels[part] = population.community_of_ids(np.arange(part.start, part.stop))
        if "train" in asked and count:
            ids = np.arange(max(1, int(count * asked["train"])))
            nodes.splits["train"] = np.sort(KeyedPermutation(count, (options.seed, 3, stream)).forward(ids))


def _make_features(population: Population, dim: int) -> FeatureStream:
    step = max(1, FEATURE_BLOCK // dim)

    def pieces(begin: int, _: GraphSoFar) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        for rows in islice(chunks(population.size, step), begin // step, None):
            yield rows.start, population.features(rows.start // step, rows, dim, 0.0)

    return FeatureStream(population.size, dim, "float32", pieces, "random", _MEMORY)
