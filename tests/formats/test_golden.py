"""Artifacts of every version that was ever written still open, and hold what the example of today holds.

Layouts hold a graph, features and an order of version 1.0, or of 1.1; their rows on SSD are striped by pages.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest
from sealed import edit_manifest

import tiering
from tiering.artifacts.manifest import CHECKSUMS
from tiering.errors import FormatError

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "data_specs" / "examples"
OLD = {"scores-1.0": "scores", "scores-1.1": "scores", "layout-1.1": "layout-split", "layout-1.2": "layout"}


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
    assert old.manifest.body.keys() == new.manifest.body.keys() - {"unit_bytes"}


def test_rows_that_an_early_version_cut_over_several_images_are_refused(tmp_path):
    shutil.copytree(HERE / "golden/layout-1.2", tmp_path / "layout")
    cut = {"first_page": 0, "num_pages": 3, "rows_per_page": 0, "stride": 1536}
    edit_manifest(tmp_path / "layout", lambda m: m["body"]["node_types"]["paper"].update(ssd_rows=cut))
    with pytest.raises(FormatError, match=r"cut into pages on 2 stripe files.*again with `tiering layout`"):
        tiering.open(tmp_path / "layout")
