"""`tiering trace`: an epoch of the loader without a model, and what it was bound by."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tiering.sampling import SamplingOptions

from .options import Call, Common, Group, Seed, flag, takes
from .output import print_json, print_line


@takes(Group(SamplingOptions), Group(Common, ("json",)))
def trace_command(
    call: Call,
    layout: Annotated[Path, typer.Argument(metavar="LAYOUT", help="Layout.", show_default=False)],
    split: Annotated[str, flag("Whose nodes batches start from.", "--split", metavar="NAME", default=True)] = "train",
    memory: Annotated[
        str, flag("Of the loader: 8GiB, 50%, auto; tiers: no look-ahead.", "--memory", metavar="SIZE", default=True)
    ] = "auto",
    window: Annotated[
        str, flag("Batches that are read together, at most, or auto.", "--window", metavar="N", default=True)
    ] = "auto",
    ssd_model: Annotated[
        Path | None, flag("Speed of the disks, as doctor --json finds it.", "--ssd-model", metavar="FILE")
    ] = None,
    engine: Annotated[
        str, flag("How SSDs are read.", "--engine", metavar="auto|io_uring|threads", default=True)
    ] = "auto",
    workers: Annotated[int, flag("Threads that sample.", "--workers", metavar="N", default=True, min=1)] = 2,
    epochs: Annotated[int, flag("Epochs to replay.", "--epochs", metavar="N", default=True, min=1)] = 1,
    batches: Annotated[int, flag("Of an epoch, at most; 0: all.", "--batches", metavar="N", default=True, min=0)] = 0,
    seed: Seed = 0,
) -> None:
    """Replay epochs of the loader without a model: how fast batches come, from where, and what that is bound by."""
    from tiering.errors import InputError
    from tiering.loader import open_layout

    if window != "auto" and not window.isdigit():
        raise InputError(f"--window: expected auto or a whole number of at least 1, found {window!r}")
    sampling = call.collect(SamplingOptions)
    found = []
    with open_layout(layout) as opened:
        loader = opened.loader(
            split, seed=seed, memory=memory, window=window if window == "auto" else int(window), ssd_model=ssd_model,
            engine=engine, workers=workers, progress=True, **sampling,
        )  # fmt: skip
        for epoch in range(epochs):
            loader.reset_counters()
            start, first, count = time.perf_counter(), 0.0, 0
            for _ in loader.epoch(epoch):
                first = first or time.perf_counter() - start
                count += 1
                if count == batches:
                    break
            seconds, stats = time.perf_counter() - start, loader.stats()
            choice = None if loader.lookahead is None else loader.lookahead.choice
            found.append({"epoch": epoch, "seconds": seconds, "first_batch": first, **stats.as_dict()})
            found[-1]["choice"] = None if choice is None else asdict(choice)
            if call.json:
                continue
            print_line(f"epoch {epoch}: {seconds:.3f} s, {seconds / max(1, count):.5f} s a batch, first {first:.3f} s")
            if choice is not None:
                print_line(f"look-ahead: {choice}; {choice.seconds:.5f} s of reading a batch foreseen")
            for line in stats.table().splitlines():
                print_line(line)
    if call.json:
        print_json({"layout": str(layout), "epochs": found})
