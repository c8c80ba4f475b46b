"""Generated text files of edges: an import makes the edges that Python's csv module and pyarrow find, wherever the text
is cut, or says in one line which line is wrong.
"""

from __future__ import annotations

import random
import re
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from campaign import Campaign
from generated_text import BLOCK_SIZES, Edges, edges_in_order, generate_text

import tiering
import tiering.datasets.text as text_blocks
from tiering.errors import TieringError


def edges_of_graph(path: Path, **options: Any) -> Edges:
    """Edges of the graph that an import makes, sorted."""
    graph = tiering.import_graph(path, path.parent / "graph", format="edgelist", force=True, **options)
    indptr, indices = graph.csc(None)
    sources, targets = indices, np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    names = graph.names()
    if names is None:
        return sorted((str(u), str(v)) for u, v in zip(sources.tolist(), targets.tolist(), strict=True))
    return sorted(zip(names.of(sources), names.of(targets), strict=True))


def judge(rng: random.Random, folder: Path, patch: pytest.MonkeyPatch) -> str:
    """Make a text and import it, cut into blocks of several sizes; return what came of it."""
    made, path = generate_text(rng), folder / "edges.txt"
    path.write_bytes(made.data)
    by_arrow = made.expected is not None and made.delimiter != " "
    if by_arrow:
        assert made.arrow_edges() == made.expected, f"the oracles differ: {made}"
    for size in [*rng.sample(BLOCK_SIZES, 2), rng.randint(16, 300), int(16 * 2 ** rng.uniform(0, 16))]:
        patch.setattr(text_blocks, "BLOCK_BYTES", size)
        patch.setattr(text_blocks, "_PARSED_BYTES", max(64, int(size * rng.choice([0.1, 1, 10]))))
        story = f"blocks of {size} bytes: {made}"
        for read in (edges_in_order, edges_of_graph) if size > 1000 else (edges_in_order,):
            try:
                with redirect_stderr(StringIO()):  # the number of comments
                    found = read(path, **made.options)
            except TieringError as error:
                assert made.error is not None, f"{error}: {story}"
                assert re.search(made.error, str(error)), f"{error}: {story}"
                assert "\n" not in str(error), story
            else:
                assert made.expected is not None, f"imported in spite of a mistake: {story}"
                expected = made.expected if read is edges_in_order else sorted(made.expected)
                assert found == expected, f"found {found}: {story}"
    return "refused" if made.error else "imported, as csv and pyarrow say" if by_arrow else "imported, as csv says"


@pytest.mark.long
def test_texts(folder, monkeypatch):
    Campaign("texts").run(lambda rng: judge(rng, folder, monkeypatch))
