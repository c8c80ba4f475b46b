"""Artifacts of every version that was ever written still open, and hold what the example of today holds.

The layout holds a graph, features and an order of version 1.0.
"""

from pathlib import Path

import numpy as np
import pytest

import tiering
from tiering.artifacts.manifest import CHECKSUMS

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "data_specs" / "examples"
OLD = {"scores-1.0": "scores", "scores-1.1": "scores", "layout-1.1": "layout-split"}


def arrays(artifact, prefix=""):
    found = {prefix + name: artifact.manifest.array(name) for name in artifact.manifest.files if name != CHECKSUMS}
    for name, part in artifact.parts().items():
        found |= arrays(part, f"{prefix}{name}/")
    return found


@pytest.mark.parametrize("name", OLD)
@pytest.mark.parametrize("verify", [False, True])
def test_opens_with_the_same_content(name, verify):
    old, new = (
        getattr(opened, "artifact", opened)
        for opened in (tiering.open(HERE / "golden" / name), tiering.open(EXAMPLES / OLD[name]))
    )
    assert tiering.check(HERE / "golden" / name, "full") == []
    old.verify_reads(verify)
    before, after = arrays(old), arrays(new)
    assert set(before) <= set(after)
    for file, values in before.items():
        np.testing.assert_array_equal(values, after[file])
    old.finish_reads()
    assert old.manifest.body.keys() == new.manifest.body.keys()
