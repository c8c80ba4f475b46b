"""What the processes of the tests of several ranks do: each is a rank of gloo that takes orders."""

from __future__ import annotations

import faulthandler
import gc
import logging
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.util import Finalize
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist
from child_process import in_child
from simulated_gpu import install
from tight_memory import ROW_BYTES, spare
from torch.distributed import FileStore

from tiering.loader import PeerGroup, open_layout
from tiering.loader.batches import windows
from tiering.loader.gpu.batches import GpuSlots
from tiering.loader.processes import server
from tiering.loader.tables.resident import load_rows
from tiering.loader.tables.ssd_buffer import SsdBuffer
from tiering.readahead import memory

BESIDE, BESIDE_OF_A_RANK = 2_400_000, 920_000
"""Bytes that small loaders of the tests need beside slots: once, and for the batches and samplers of each rank."""


def serve(
    line: Any, path: str, folder: str, rank: int, size: int, options: dict[str, Any], simulated: bool = True
) -> None:
    """Carry out orders until the line is closed; an error is answered by its kind and text.

    A GPU that `options` ask for is simulated, or is that of the machine.
    """
    faulthandler.dump_traceback_later(300, exit=True)
    simulator = None
    if simulated and options.get("device") == "cuda":
        simulator = install(pytest.MonkeyPatch())
    dist.init_process_group("gloo", init_method=f"file://{folder}/gloo", rank=rank, world_size=size)
    process = RankProcess(line, path, size, options, simulator)
    while True:
        try:
            order, *arguments = line.recv()
        except EOFError:
            return
        if order == "end":
            Finalize(None, line.send, ("ending",), exitpriority=1)  # before the server's, which waits
            Finalize(None, lambda: line.send(reading()), exitpriority=-1)
            return
        try:
            line.send(getattr(process, order.replace(" ", "_"))(*arguments))
        except Exception as error:
            cause = error.__cause__ if type(error).__name__ == "StageError" else error
            line.send((type(cause).__name__, str(error)))
            del error, cause
        gc.collect()


class RankProcess:
    """One rank and its loader."""

    def __init__(self, line: Any, path: str, size: int, options: dict[str, Any], simulator: Any) -> None:
        self.layout, self.size, self.options, self.simulator = open_layout(path), size, options, simulator
        self.loader: Any = None
        self.running: Any = None
        self.line = line

    def open(self, rows: int | None, patience: float | None = None, more: dict[str, Any] | None = None) -> str:
        """Make a loader, all ranks together, with room for so many rows beside the least; ``None``: too little."""
        if patience is not None:
            server._PATIENCE = patience
        nbytes = 1
        if rows is not None:  # a tenth of the memory is for batches to come
            nbytes = int((BESIDE + self.size * BESIDE_OF_A_RANK + rows * (ROW_BYTES + 8)) / 0.84)
        return self.open_with(nbytes, more)

    def open_with(self, nbytes: int, more: dict[str, Any] | None = None) -> str:
        """Make a loader, all ranks together, with so many bytes for all of them."""
        self.loader = self.layout.loader(**{**self.options, **(more or {})}, memory=spare(nbytes))
        return "memory" if self.loader.lookahead is None else "look-ahead"

    def epoch(self, epoch: int, after: int | None = None, start: int | None = None) -> list[Any]:
        """Numbers, seeds and rows of an epoch's batches, of the first ones only where it breaks off."""
        batches = []
        for batch in self.loader.epoch(epoch, start):
            batches.append(taken(batch))
            if len(batches) == after:
                break
        return batches

    def epoch_in_step(self, epoch: int) -> list[Any]:
        """The same where ranks wait for each other at each batch, as they do to add up gradients."""
        batches = []
        for batch in self.loader.epoch(epoch):
            batches.append(taken(batch))
            dist.barrier()
        return batches

    def lists_exceed_memory(self) -> None:
        """Sample by windows from now on."""
        memory.LEAST_LISTS, windows.bytes_around = 0, lambda sampler: 1 << 62

    def lists(self) -> Any:
        """What reading lists has cost the loader."""
        return self.loader.stats().lists

    def drop(self) -> list[str]:
        """Give up the loader; what is left of it."""
        self.loader = None
        gc.collect()
        end = time.monotonic() + 60
        while (names := [t.name for t in threading.enumerate() if t.name.startswith("tiering-")]) and (
            time.monotonic() < end
        ):
            time.sleep(0.02)
        return names + [name for name in self.mappings().values() if name == "tiering-buffer"]

    def in_a_fork(self, epoch: int) -> int:
        """Batches of an epoch in a forked child, which knows no other rank."""
        return int(in_child(lambda: len(list(self.loader.epoch(epoch)))))

    def pause(self, epoch: int, after: int) -> str:
        """Begin an epoch."""
        self.running = self.loader.epoch(epoch)
        for _ in range(after):
            next(self.running)
        return "paused"

    def go_on(self) -> list[Any]:
        """The rest of the epoch that was begun."""
        running, self.running = self.running, None
        return [taken(batch) for batch in running]

    def side_by_side(self, *epochs: int) -> list[Any]:
        """Epochs of one loader, batch by batch in turn."""
        turns = zip(*(self.loader.epoch(epoch) for epoch in epochs), strict=True)
        return list(zip(*([taken(batch) for batch in turn] for turn in turns), strict=True))

    def end_late(self, seconds: float) -> None:
        """Let epochs of the buffer end so much later than they are left."""
        plain = SsdBuffer.epoch

        @contextmanager
        def epoch(buffer: SsdBuffer, choice: Any) -> Iterator[Any]:
            with plain(buffer, choice) as core:
                try:
                    yield core
                finally:
                    time.sleep(seconds)

        SsdBuffer.epoch = epoch  # type: ignore[method-assign]

    def hear_late(self, seconds: float) -> None:
        """Let the owner take so much longer for each part that it releases itself, and hear what follows later."""
        plain = server.SharedEpoch.release

        def release(epoch: Any, member: Any) -> None:
            time.sleep(0 if member.number else seconds)
            plain(epoch, member)

        server.SharedEpoch.release = release  # type: ignore[method-assign]

    def counters(self) -> dict[str, Any]:
        """Of the buffer: what this rank says, and what the owner knows of all."""
        ahead = self.loader.lookahead
        whole = ahead._server.offered[0].counters() if ahead._server is not None else None
        return {"own": ahead.buffer.counters(), "whole": whole}

    def reset_counters(self) -> None:
        """Begin counting again."""
        self.loader.reset_counters()

    def late(self, seconds: float) -> None:
        """Let kernels read slots for so much longer from now on, and note when they end."""
        self.ended, plain = list[float](), GpuSlots.release_after

        def release_after(slots: Any, batch: int, part: int, ended: Any) -> None:
            def wait() -> None:
                time.sleep(seconds)
                ended.wait()
                self.ended.append(time.monotonic())

            plain(slots, batch, part, SimpleNamespace(wait=wait))  # type: ignore[arg-type]

        GpuSlots.release_after = release_after  # type: ignore[method-assign]

    def ends(self) -> list[float]:
        """When kernels ended to read slots."""
        return self.ended

    def note_releases(self) -> None:
        """Let the owner note when it gives the slots of which rank to others."""
        self.released, plain = list[tuple[int, float]](), server.SharedEpoch.release

        def release(epoch: Any, member: Any) -> None:
            self.released.append((member.number, time.monotonic()))
            plain(epoch, member)

        server.SharedEpoch.release = release  # type: ignore[method-assign]

    def releases(self) -> list[tuple[int, float]]:
        """What was noted."""
        return self.released

    def locks_the_buffer(self) -> bool:
        """Whether the slots are page-locked where this rank maps them."""
        return self.loader.lookahead.buffer.memory.registration is not None

    def registered(self) -> int:
        """Blocks of memory that are page-locked."""
        return int(self.simulator.live("registered"))

    def mappings(self) -> dict[str, str]:
        """Shared memory that is mapped: names by inode."""
        maps = Path("/proc/self/maps").read_text()
        return dict(re.findall(r" (\d+) +/memfd:(tiering-\w+)", maps))

    def proportional(self) -> list[int]:
        """Bytes of shared memory, of which each process that maps a page counts its part."""
        blocks = re.findall(r"/memfd:tiering-.*?\nPss: +(\d+) kB", Path("/proc/self/smaps").read_text(), re.DOTALL)
        return [int(kibibytes) * 1024 for kibibytes in blocks]

    def tell_warnings(self) -> None:
        """Send each warning as it is logged."""
        handler = logging.Handler(logging.WARNING)
        handler.emit = lambda record: self.line.send(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger("tiering.loader").addHandler(handler)

    def left_over(self) -> list[str]:
        """Threads and connections of epochs, a moment after they have ended."""
        end = time.monotonic() + 60
        while True:
            threads = [t.name for t in threading.enumerate() if t.name.startswith("tiering-")]
            threads = [name for name in threads if name != "tiering-buffer-server"]
            if not threads or time.monotonic() > end:
                break
            time.sleep(0.02)
        files = list(Path("/proc/self/fd").iterdir())
        sockets = sum(entry.is_symlink() and str(entry.readlink()).startswith("socket:") for entry in files)
        self.sockets = getattr(self, "sockets", sockets)
        return threads + ([f"{sockets} sockets"] if sockets > self.sockets else [])


def reading() -> bool:
    """Whether a thread still reads for all ranks, a moment later."""
    threads = [thread for thread in threading.enumerate() if thread.name == "tiering-merge"]
    for thread in threads:
        thread.join(0.2)
    return any(thread.is_alive() for thread in threads)


def hold_rows(line: Any, path: str, rank: int, size: int, store: str) -> None:
    """Hold a file's bytes in memory that ranks share; say its inode and the sum of all bytes; go on until killed."""
    group = PeerGroup(rank, size, FileStore(store, size), timeout=60)
    rows = load_rows(Path(path), Path(path).stat().st_size, group)
    (inode,) = re.findall(r" (\d+) +/memfd:tiering-\w+ \(deleted\)", Path("/proc/self/maps").read_text())
    line.send((inode, int(rows.array.sum(dtype="u8"))))
    line.poll(None)


def taken(batch: Any) -> Any:
    """What is compared of a batch."""
    return batch.index, batch.seeds.cpu().numpy(), batch.x.cpu().numpy().copy()
