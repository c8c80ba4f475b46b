"""`verify=True`: pages of the ssd tier that are not what their checksums say are refused; others make no difference."""

from __future__ import annotations

import gc
import random
import re
import shutil

import numpy as np
import pytest
from campaign import Campaign
from row_buffers import ENGINES

from tiering.errors import CapabilityError, FormatError
from tiering.formats.layout import page_sums
from tiering.loader import open_layout


def flip(layout, luck: random.Random) -> tuple[int, int]:
    """Flip one bit anywhere in an image; returns image and byte."""
    images = layout.artifact.images
    image = luck.choice([k for k, path in enumerate(images) if path.stat().st_size])
    at = luck.randrange(images[image].stat().st_size)
    with images[image].open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ (1 << luck.randrange(8))]))
    return image, at


def flip_bits(kit, build, engine: str, luck: random.Random, trials: int) -> None:
    """One flipped bit at a time, also in padding: the gather of all rows that share its page names the place."""
    row_bytes, page = luck.choice([4, 100, 512, 1536, 5000]), luck.choice([512, 4096])
    table = kit.random_table(400, row_bytes)
    nodes = {"node": kit.Nodes(400, table, "uint8", tiers=(10, 10, 10))}
    layout = build(kit.Dataset(nodes, page_bytes=page, images=luck.randint(1, 3)))
    for _ in range(trials):
        pristine = [path.read_bytes() for path in layout.artifact.images]
        with layout.features(engine=engine, verify=True) as features:
            expected = features.gather_numpy(np.arange(400))
            image, at = flip(layout, luck)
            path = layout.artifact.manifest.external[f"ssd-{image}"].path
            message = f"{path}: page {at // page} (from byte {at // page * page} on)"
            with pytest.raises(FormatError, match=f"^{re.escape(message)} of ssd image {image} is damaged: .* 'node'"):
                features.gather_numpy(np.random.default_rng(at).permutation(400))
            for path, data in zip(layout.artifact.images, pristine, strict=True):
                path.write_bytes(data)
            np.testing.assert_array_equal(features.gather_numpy(np.arange(400)), expected)


@pytest.mark.parametrize("round_", range(4))
def test_flipped_bits(kit, build, engine, round_):
    flip_bits(kit, build, engine, random.Random(f"flipped {round_}"), 10)


@pytest.mark.long
def test_flips_of_images(kit, tmp_path):
    def write(data):  # layouts that are not kept, as `build` keeps them: each holds a dozen files open
        shutil.rmtree(tmp_path / "one", ignore_errors=True)
        return kit.write_layout(tmp_path / "one" / "layout", data)

    def trial(luck: random.Random) -> str:
        engine = luck.choice(ENGINES)
        flip_bits(kit, write, engine, luck, 1)
        gc.collect()
        return f"refused by {engine}"

    Campaign("images").run(trial)


def test_a_loader_that_reads_all_rows_into_memory_stops_at_damage_when_it_is_made(kit, build, engine):
    layout = build(kit.small_graph(page_bytes=512))
    assert len(list(layout.loader(batch_size=64, fanouts=(5,), verify=True, engine=engine))) == 4
    layout.close()
    gc.collect()
    flip(layout, random.Random(0))
    message = r"ssd-0-of-1: page \d .* is damaged: .* 'node'"
    with pytest.raises(FormatError, match=message):
        layout.loader(batch_size=64, fanouts=(5,), verify=True, engine=engine)
    assert len(list(layout.loader(batch_size=64, fanouts=(5,), engine=engine))) == 4


def test_a_layout_without_checksums(kit, build):
    layout = open_layout(build(kit.small_graph()).path)
    del layout.artifact.manifest.files[page_sums(0)]
    with pytest.raises(CapabilityError, match=r"has no checksums of pages, .*; make the layout again"):
        layout.features(verify=True)
    assert layout.features().gather_numpy([299]).shape == (1, 8)


def test_damaged_checksums(kit, build):
    layout = build(kit.small_graph())
    path = layout.path / page_sums(0)
    good = path.read_bytes()
    for bad in (good[:-1], bytes([good[0] ^ 1]) + good[1:]):
        path.write_bytes(bad)
        with pytest.raises(FormatError, match=re.escape(page_sums(0))):
            open_layout(layout.path).features(verify=True)


def test_damaged_memory_tiers_and_adjacency(kit, build):
    layout = build(kit.small_graph())
    for path, words in (
        (layout.path / "tiers/node/cpu", "tiers/node/cpu: bytes 0 to "),
        (layout.path / "graph/relations/node__to__node/indices", "indices: bytes 0 to "),
    ):
        data = bytearray(path.read_bytes())
        data[17] ^= 2
        path.write_bytes(data)
        with pytest.raises(FormatError, match=f"{words}.* differ from what was written"):
            open_layout(layout.path).loader(batch_size=64, fanouts=(5,), verify=True)
        open_layout(layout.path).loader(batch_size=64, fanouts=(5,))
        data[17] ^= 2
        path.write_bytes(data)
    open_layout(layout.path).loader(batch_size=64, fanouts=(5,), verify=True)
