"""Gathering by a GPU: rows of all tiers, as NumPy finds them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tiering import cuda
from tiering.errors import BudgetError, CapabilityError, FormatError, InputError, StorageError


def table_of(kit, build, row_bytes, tiers, rows=700, **options):
    """A layout of one type whose rows are random bytes, and the rows by rank."""
    rng = np.random.default_rng(row_bytes)
    table = rng.integers(0, 256, (rows, row_bytes), dtype=np.uint8)
    data = kit.Dataset({"paper": kit.Nodes(rows, table, "uint8", tiers=tiers)}, **options)
    layout = build(data)
    return layout, table[data.order("paper")]


@pytest.mark.parametrize("row_bytes", [1, 12, 100, 512, 602, 1536, 4096, 5000])
@pytest.mark.parametrize(
    "tiers", [(100, 151, 249), (700, 0, 0), (0, 700, 0), (0, 0, 700), (0, 0, 0), (10, 0, 20), (0, 33, 0)]
)
def test_rows_of_all_tiers(gpu, kit, build, row_bytes, tiers):
    layout, rows = table_of(kit, build, row_bytes, tiers, peers=3)
    rng = np.random.default_rng(1)
    with layout.features(device="cuda", threads=2, direct="off") as features:
        for count in (0, 1, 3000):
            ids = rng.integers(0, 700, count)
            np.testing.assert_array_equal(features.gather(ids).numpy(), rows[ids])
        shares = {t: features.counters.tiers[t].rows for t in ("gpu", "peer", "cpu", "ssd")}
        assert sum(shares.values()) == 3001
        for tier, size in zip(("gpu", "peer", "cpu"), tiers, strict=True):
            assert (shares[tier] > 0) == (size > 0)
        assert (features.counters.ssd_reads > 0) == (sum(tiers) < 700)


def test_ids_out_of_range(gpu, kit, build):
    layout, rows = table_of(kit, build, 64, (100, 100, 100))
    with layout.features(device="cuda") as features:
        for bad in (-1, 700, 2**40):
            with pytest.raises(InputError, match=rf"ids\[2\] is {bad}; expected ranks 0 .. 699"):
                features.gather(np.array([1, 2, bad, 3]))
        out = torch.full((4, 64), 9, dtype=torch.uint8)
        features.gather(np.array([5, -1, 700, 650]), out=out, checked=False)
        np.testing.assert_array_equal(out[0].numpy(), rows[5])
        np.testing.assert_array_equal(out[3].numpy(), rows[650])
        assert (out[1:3] == 9).all()


def test_small_staging_takes_turns(gpu, kit, build, monkeypatch):
    """More rows of the ssd tier than a buffer holds: many turns, same rows."""
    monkeypatch.setattr("tiering.loader.gpu.rows.STAGING_BYTES", 7 * 602)
    layout, rows = table_of(kit, build, 602, (10, 0, 20))
    ids = np.random.default_rng(3).integers(0, 700, 1000)
    with layout.features(device="cuda") as features:
        for _ in range(3):
            np.testing.assert_array_equal(features.gather(ids).numpy(), rows[ids])


def test_too_little_memory_leaves_nothing(gpu, kit, build):
    layout, _ = table_of(kit, build, 4096, (300, 0, 400))
    free = gpu.live("bytes")
    gpu.set_memory(free + 300 * 4096 - 1)
    with pytest.raises(
        BudgetError, match=r"gpu tier: memory of the GPU.*1.172 MiB needed; 1.172 MiB are free; give a smaller gpu="
    ):
        layout.features(device="cuda")
    assert gpu.live("bytes") == free
    gpu.set_memory(1 << 30)
    gpu.set_registrable(4096)
    with pytest.raises(BudgetError, match=r"cpu tier: page-locking host memory.*needed; lock less"):
        layout.features(device="cuda")
    assert gpu.live("bytes") == free


def test_closed_features_refuse(gpu, kit, build):
    layout, _ = table_of(kit, build, 64, (100, 100, 100))
    features = layout.features(device="cuda")
    assert "cuda:0" in repr(features)
    assert features.placement()["cpu"]["where"] == "pinned host memory"
    features.close()
    features.close()
    assert "closed" in repr(features)
    with pytest.raises(InputError, match="were closed"):
        features.gather(np.array([1]))


@pytest.mark.parametrize(("options", "error", "words"), [
    *(({"device": device}, InputError, "device: expected cpu, cuda or cuda:N") for device in ("gpu", "cuda:-1", 0)),
    ({"device": "cuda:7"}, CapabilityError, r"cuda:7.*this GPU does not exist; this process sees 1 GPU \(number 0\)"),
    *(({"max_sms": most}, InputError, "max_sms: expected a whole number") for most in (-1, "many", True, 1.5)),
])  # fmt: skip
def test_options_that_are_refused(gpu, kit, build, options, error, words):
    layout, _ = table_of(kit, build, 64, (100, 100, 100))
    with pytest.raises(error, match=words):
        layout.features(**{"device": "cuda", **options})


@pytest.mark.parametrize("fails", ["_prepared", "_staged"])
def test_what_a_gather_that_failed_put_on_its_stream_is_waited_for(gpu, kit, build, monkeypatch, fails):
    """The lists of the gather are used again by the next, on whatever stream, once the failed one has ended."""

    streams = []

    class Watched(cuda.Event):
        def record(self, stream):
            streams.append(stream)
            super().record(stream)

    def fail(*_):
        raise LookupError("no more")

    layout, rows = table_of(kit, build, 64, (100, 100, 100))
    with layout.features(device="cuda") as features:
        lists = features._make_staging().make_lists
        features._done = Watched(0)
        broken = SimpleNamespace(record=lambda stream: None, wait=fail, make_lists=lists, copy_listed=fail)
        with monkeypatch.context() as patch, pytest.raises(LookupError):
            patch.setattr(features, fails, broken)
            features.gather(np.arange(0, 700, 7))
        assert streams == [features.device.current()]
        np.testing.assert_array_equal(features.gather([3, 650]).numpy(), rows[[3, 650]])


def test_damaged_pages(gpu, kit, build):
    layout, rows = table_of(kit, build, 512, (10, 10, 10))
    with layout.features(device="cuda", verify=True) as features:
        np.testing.assert_array_equal(features.gather(np.arange(700)).numpy(), rows)
        with layout.artifact.images[0].open("r+b") as file:
            file.seek(4096 * 7)
            file.write(bytes(rows[30 + 7 * 8, :1] ^ 1))
        with pytest.raises(FormatError, match=r"page 7 .* of ssd image 0 is damaged: .* 'paper'"):
            features.gather(np.arange(700))


@pytest.mark.parametrize(
    ("tiers", "peers", "sms"),
    [((700, 0, 0), 1, 0), ((40, 660, 0), 1, 0), ((40, 0, 660), 1, 1), ((40, 0, 0), 1, 1), ((40, 660, 0), 2, 1)],
)
def test_a_gather_from_host_memory_leaves_multiprocessors_to_training(gpu, kit, build, tiers, peers, sms):
    """Of the simulated device's eight, a tenth is one; the share of a GPU that is not there lies on the host."""
    layout, _ = table_of(kit, build, 16, tiers, peers=peers)
    with layout.features(device="cuda") as features:
        assert features.max_sms == sms
    with layout.features(device="cuda", max_sms=3) as features:
        assert features.max_sms == 3


def test_checksums_are_compared_before(gpu, kit, build):
    layout, rows = table_of(kit, build, 602, (300, 200, 100), peers=2)
    with layout.artifact.tier_path("paper", "gpu").open("r+b") as file:
        file.write(bytes(rows[0, :1] ^ 1))
    with pytest.raises(FormatError, match="paper/gpu"):
        layout.features(device="cuda", verify=True)


def test_a_file_that_was_cut(gpu, kit, build):
    layout, _ = table_of(kit, build, 602, (300, 200, 100), peers=2)
    path = layout.artifact.tier_path("paper", "gpu")
    path.write_bytes(path.read_bytes()[:-5])
    ends = rf"^[^ ]*tiers/paper/gpu: ends at byte {300 * 602 - 5}, .*: the file was truncated"
    with pytest.raises(StorageError, match=ends):
        layout.features(device="cuda")
