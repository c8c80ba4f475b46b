"""Loaders of a GPU that read rows of the ssd tier ahead: the batches of memory, from slots that its kernels read."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from epochs import bits, in_pieces, known_disk
from tight_memory import spare, tight_loader, wide_graph, wide_hetero_graph

import tiering
from tiering.errors import BudgetError, DeviceError, FormatError, MissingError, StorageError
from tiering.loader import loader as loading
from tiering.loader.batches import windows
from tiering.loader.batches.pipeline import StageError
from tiering.loader.gpu.batches import GpuSampler, GpuSlots
from tiering.loader.gpu.drives import GpuDrives
from tiering.readahead import memory


def odd_graph(kit: Any, **options: Any) -> Any:
    """Rows of 4092 bytes and of 2002, which no wide access fits."""
    data = wide_hetero_graph(kit, **options)
    data.nodes["paper"].table = np.ascontiguousarray(data.nodes["paper"].table[:, :1023])
    data.nodes["author"].table = np.ascontiguousarray(data.nodes["author"].table[:, :1001])
    return data


GRAPHS = {"one type": wide_graph, "four types": wide_hetero_graph, "odd rows": odd_graph}


pytestmark = pytest.mark.usefixtures("watchdog")


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    """Small batches, and a known disk."""
    return {"batch_size": 8, "fanouts": [3, 2], "seed": 7, "depth": 4, "ssd_model": known_disk(tmp_path)}


@pytest.fixture
def layout(gpu: Any, kit: Any, build: Any) -> Any:
    return build(wide_graph(kit, images=2))


def contents(batches: Any) -> list[Any]:
    return [bits(batch) for batch in batches]


@pytest.mark.parametrize("tight", [True, False])
def test_lists_that_exceed_memory_are_read_by_windows(layout, options, monkeypatch, tight):
    """Where the host samples; the batches are those of mapped lists."""
    options = {**options, "device": "cuda", "sample_on": "cpu"}
    expected = [contents(layout.loader(**options, memory="tiers").epoch(epoch)) for epoch in (0, 1)]
    monkeypatch.setattr(memory, "LEAST_LISTS", 0)
    monkeypatch.setattr(windows, "bytes_around", lambda sampler: 1 << 62)
    loader = tight_loader(layout, **options) if tight else layout.loader(**options, memory="tiers")
    assert [contents(loader.epoch(epoch)) for epoch in (0, 1)] == expected
    assert loader.stats().lists["batches"] >= 2 * len(loader)


def truth(layout: Any, options: dict[str, Any], epoch: int, **more: Any) -> list[Any]:
    """The batches of an epoch, on the host, with all rows in memory."""
    return contents(layout.loader(**{**options, **more}, features="memory").epoch(epoch))


class Late:
    """Kernels that read slots long after their batch was made, or until they are told to end."""

    def __init__(self) -> None:
        self.waits, self.end = 0, threading.Event()
        self.seconds: float | None = 0.01
        """How long each reads on; ``None``: until `end`."""

    def delay(self, event: Any) -> Any:
        """In the place of the event that says that a kernel has ended."""
        return SimpleNamespace(wait=lambda: self._wait(event))

    def _wait(self, event: Any) -> None:
        self.waits += 1
        self.end.wait(self.seconds)
        event.wait()


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> Late:
    """Slots are read for longer than the kernels take."""
    late, plain = Late(), GpuSlots.release_after
    later = lambda self, batch, part, ended: plain(self, batch, part, late.delay(ended))  # noqa: E731
    monkeypatch.setattr(GpuSlots, "release_after", later)
    return late


@pytest.mark.parametrize(("graph", "window", "sample_on"), [
    *(("one type", window, "gpu") for window in (1, 4, "auto")),
    ("four types", 4, "gpu"), ("odd rows", "auto", "gpu"), ("one type", 4, "cpu"), ("odd rows", 1, "cpu"),
    ("four types", 4, "cpu, disjoint"),
])  # fmt: skip
def test_batches_are_those_of_memory(gpu, kit, build, options, graph, window, sample_on):
    layout = build(GRAPHS[graph](kit, images=2))
    sample_on, _, disjoint = sample_on.partition(", ")
    options |= {"disjoint": bool(disjoint)}
    loader = tight_loader(layout, device="cuda", window=window, sample_on=sample_on, **options)
    loader.reset_counters()
    for epoch in range(2):
        assert contents(loader.epoch(epoch)) == truth(layout, options, epoch)
    counted, rows = loader.lookahead.buffer.counters(), loader.counters()
    assert counted["rows"] == sum(c["tiers"]["ssd"]["rows"] for c in rows.values()) > 0
    assert 0 < counted["rows_read"] <= counted["rows_needed"] <= counted["rows"]
    assert counted["batches"] == 2 * len(loader)
    assert all(c["ssd_reads"] == 0 for c in rows.values())  # no batch read by itself
    for t, origin in loader.lookahead.buffer.origins.items():  # accesses as wide as rows allow
        assert origin % (loader.features[t].row_bytes & -loader.features[t].row_bytes) == 0


@pytest.mark.parametrize(
    ("sample_on", "source"), [("gpu", "tight"), ("cpu", "tight"), ("gpu", "memory"), ("gpu", "drives")]
)
def test_epochs_in_pieces_are_whole_epochs(layout, options, sample_on, source):
    """Read into slots that kernels read late, from memory, and by the GPU itself."""
    expected = [batch for epoch in (2, 3) for batch in truth(layout, options, epoch)]
    options |= {"device": "cuda", "sample_on": sample_on}
    if source == "drives":
        del options["ssd_model"]
        drives = [image.rename(image.with_name(f"drive{k}")) for k, image in enumerate(layout.artifact.images)]
        options |= {"engine": "bam", "drives": drives}
        layout = tiering.open(layout.path)
    if source == "memory":
        options |= {"features": "memory"}
    make = tight_loader if source == "tight" else type(layout).loader
    assert in_pieces(lambda: make(layout, **options), 2, (4, 5)) == expected


@pytest.mark.parametrize(
    ("graph", "slots"),
    [("four types", None), ("odd rows", None), ("one type", 150), ("four types", 150), ("odd rows", 5000)],
)
def test_drives_of_the_gpu_bring_the_batches_of_memory(gpu, kit, build, options, late, monkeypatch, graph, slots):
    """By each batch (`slots` is none), or into slots in its memory, which are few or enough, and read for long."""
    if slots != 5000:
        del options["ssd_model"]  # the drives are measured
    layout = build(GRAPHS[graph](kit, images=2))
    drives = [image.rename(image.with_name(f"drive{k}")) for k, image in enumerate(layout.artifact.images)]
    if slots:
        monkeypatch.setattr(GpuDrives, "slots_room", slots * 4096)
    how = {"device": "cuda", "engine": "bam", "drives": drives, "memory": "auto" if slots else "tiers"}
    moved = tiering.open(layout.path)
    loader = moved.loader(**options, **how)
    assert {rows.engine for rows in loader.features.values()} <= {"bam", None}
    made = [contents(loader.epoch(epoch)) for epoch in range(2)]
    with pytest.raises(MissingError, match="the file does not exist"):
        moved.loader(**options)
    for image, drive in zip(layout.artifact.images, drives, strict=True):
        drive.rename(image)
    assert made == [truth(layout, options, epoch) for epoch in range(2)]
    assert (loader.lookahead is None) == (slots is None)
    if slots:
        counted = loader.lookahead.buffer.counters()
        assert counted["reads"] * 4096 == counted["read_bytes"] > 0 and counted["rows_read"] > 0 and late.waits > 0
        assert (counted["rows_read"] > loader.lookahead.tables.num_rows) == (slots < 1000)  # rows gave way


def test_a_drive_that_fails_ends_the_epoch(gpu, kit, build, options, late):
    layout = build(wide_graph(kit, images=1))
    paths = [str(image) for image in layout.artifact.images]
    loader = layout.loader(**options, device="cuda", engine="bam", drives=paths)
    page = int(next(iter(layout.loader(**options, features=None))).nodes["node"].max()) - 100  # rows of a page each
    gpu.break_drive(paths[0], 8 * page)
    with pytest.raises(StageError) as caught:
        list(loader)
    assert isinstance(caught.value.__cause__, StorageError)
    assert f"at byte {page * 4096}: the drive refused" in str(caught.value.__cause__)


@pytest.mark.parametrize("prefetch", [0, 4])
def test_the_smallest_buffer_and_kernels_that_are_late(layout, options, late, prefetch):
    """Slots of a batch are wanted by the next one while kernels may still read them."""
    loader = tight_loader(layout, 0, device="cuda", window=1, prefetch=prefetch, workers=3, **options)
    for epoch in range(2):
        assert contents(loader.epoch(epoch)) == truth(layout, options, epoch)
    assert late.waits > 0


def test_batches_come_while_no_kernel_has_ended_where_rows_are_there(layout, options, late, monkeypatch):
    """All batches of the epoch are one round: the host asks for no kernel's end to go on."""
    options["fanouts"] = [2]
    loader = tight_loader(layout, 250, device="cuda", split="val", window=64, **options)
    list(loader.epoch(0))
    late.seconds, late.waits, plain = None, 0, GpuSlots.finish
    monkeypatch.setattr(GpuSlots, "finish", lambda self: (late.end.set(), plain(self)))
    assert contents(loader.epoch(1)) == truth(layout, options, 1, split="val")
    assert late.waits == len(loader)


def test_a_gpu_that_fails_while_it_reads_slots_is_an_error_of_the_loop(layout, options, monkeypatch):
    """Its slots are given back all the same, so that nobody waits for them."""
    loader = tight_loader(layout, 0, device="cuda", window=1, **options)
    list(loader.epoch(0))

    def fail() -> None:
        raise DeviceError("the GPU has fallen off the bus")

    plain = GpuSlots.release_after
    with monkeypatch.context() as patch:
        failing = lambda self, batch, part, _: plain(self, batch, part, SimpleNamespace(wait=fail))  # noqa: E731
        patch.setattr(GpuSlots, "release_after", failing)
        with pytest.raises(StageError, match="fallen off the bus"):
            list(loader.epoch(1))
    assert contents(loader.epoch(1)) == truth(layout, options, 1)


def test_rows_that_fit_are_read_once_into_page_locked_memory(gpu, layout, options):
    registered = gpu.live("registered")
    loader = layout.loader(device="cuda", memory=spare(1 << 30), **options)
    table = loader.features["node"]
    assert loader.lookahead is None and table.preloaded and table is layout.features(device="cuda", depth=4)
    assert table.placement()["ssd"]["where"] == "pinned host memory (read from SSD)"
    assert gpu.live("registered") > registered
    for epoch in range(2):
        assert contents(loader.epoch(epoch)) == truth(layout, options, epoch)
    counted = loader.counters()["node"]
    assert counted["tiers"]["ssd"]["rows"] > 0
    assert counted["ssd_reads"] == counted["ssd_read_bytes"] == 0
    again = layout.loader("val", device="cuda", memory=spare(2 << 20), **options)
    assert again.features["node"] is table  # charged nothing for rows that are there
    ids = np.random.default_rng(0).integers(0, 1200, 500)
    assert table.gather(ids).equal(layout.features().gather(ids))


def test_rows_that_cannot_be_preloaded_leave_the_table_as_it_was(gpu, layout, options):
    """Too little memory may be locked; then pages are damaged."""
    table = layout.features(device="cuda", depth=4, verify=True)
    loader = layout.loader(device="cuda", memory="tiers", verify=True, **options)
    locked, ids = gpu.live("registered"), np.arange(1200)
    gpu.set_registrable(1 << 20)
    with pytest.raises(BudgetError, match="'node': rows of the ssd tier: page-locking host memory"):
        layout.loader(device="cuda", memory=spare(1 << 30), verify=True, **options)
    gpu.set_registrable(1 << 40)
    assert not table.preloaded and gpu.live("registered") == locked
    assert table.gather(ids).equal(layout.features().gather(ids))
    assert contents(loader.epoch(0)) == truth(layout, options, 0)
    image = layout.artifact.images[1]
    data = np.fromfile(image, np.uint8)
    data[4096 * 20] ^= 1
    data.tofile(image)
    with pytest.raises(FormatError, match=r"page 20 .* of ssd image 1 is damaged: .* 'node'"):
        layout.loader(device="cuda", memory=spare(1 << 30), verify=True, **options)
    assert not table.preloaded and gpu.live("registered") == locked


def test_of_several_ranks_each_takes_its_share_of_free_memory(layout, options, monkeypatch):
    rows, batches = 1100 * 4096, 4 << 20
    monkeypatch.setattr("tiering.loader.memory.parse_memory", lambda memory: spare(2 * rows + batches))
    assert layout.loader(device="cuda", **options, rank=0, world_size=4).lookahead is not None
    assert layout.loader(device="cuda", **options, rank=0, world_size=1).features["node"].preloaded


def test_epochs_that_end_early_leave_nothing(gpu, layout, options):
    """A break, an exception, an epoch that is dropped: threads and page-locked memory are as after a whole one."""
    loader = tight_loader(layout, 30, device="cuda", window=1, prefetch=3, **options)
    list(loader.epoch(9))
    list(layout.loader(device="cuda", memory="tiers", **options).epoch(9))
    gc.collect()
    kinds = ("allocations", "host", "registered", "streams")
    before = {kind: gpu.live(kind) for kind in kinds}

    def assert_nothing_left() -> None:
        gc.collect()
        assert [t.name for t in threading.enumerate() if t.name.startswith("tiering-")] == []
        assert {kind: gpu.live(kind) for kind in kinds} == before

    for batch in loader.epoch(1):
        if batch.index == 2:
            break
    del batch
    assert_nothing_left()
    with pytest.raises(ZeroDivisionError):
        for batch in loader.epoch(1):
            1 / (3 - batch.index)
    del batch
    assert_nothing_left()
    epoch = loader.epoch(1)
    next(epoch)
    del epoch
    assert_nothing_left()
    assert contents(loader.epoch(1)) == truth(layout, options, 1)


def test_the_buffer_is_locked_as_long_as_its_loader_lives(gpu, layout, options):
    loader = tight_loader(layout, 30, device="cuda", **options)
    list(loader.epoch(0))
    assert loader.lookahead.buffer.memory.registration is not None
    again = layout.loader(device="cuda", memory="tiers", **options)  # has the same adjacency
    registered = gpu.live("registered")
    del loader
    gc.collect()
    assert not layout.buffers and gpu.live("registered") == registered - 1
    assert contents(again.epoch(0)) == truth(layout, options, 0)


def test_loaders_of_a_gpu_share_a_buffer_which_those_of_the_host_do_not_use(layout, options):
    train = tight_loader(layout, 200, device="cuda", **options)
    more = {**options, "memory": train.options.memory.memory}
    val, host = layout.loader("val", device="cuda", **more), layout.loader("val", **more)
    list(train.epoch(0))
    assert contents(val.epoch(0)) == truth(layout, options, 0, split="val")
    assert train.lookahead.buffer is val.lookahead.buffer is not None
    assert list(layout.buffers) == [train.lookahead._key] != [host.lookahead._key]


@pytest.mark.parametrize(("share", "times"), [(0, 2), (1, 1)])
def test_batches_that_the_gpu_has_no_room_to_keep_are_sampled_again(layout, options, monkeypatch, share, times):
    monkeypatch.setattr(loading, "_KEPT_SHARE", share)
    loader = tight_loader(layout, 200, device="cuda", **options)
    list(loader.epoch(0))
    drawn, plain = [], GpuSampler.sample

    def sample(self: Any, seeds: Any, *, epoch: int, batch: int) -> Any:
        drawn.append(batch)
        return plain(self, seeds, epoch=epoch, batch=batch)

    monkeypatch.setattr(GpuSampler, "sample", sample)
    assert contents(loader.epoch(1)) == truth(layout, options, 1)
    assert sorted(drawn) == sorted([*range(len(loader))] * times)


def test_memory_that_cannot_be_locked_is_refused(gpu, layout, options):
    loader = tight_loader(layout, 30, device="cuda", **options)
    gpu.set_registrable(4096)
    message = r"buffer for rows of the ssd tier: page-locking host memory.*lock less memory: .*loader less `memory`"
    with pytest.raises(BudgetError, match=message):
        list(loader.epoch(0))
    gpu.set_registrable(1 << 40)
    assert contents(loader.epoch(0)) == truth(layout, options, 0)
