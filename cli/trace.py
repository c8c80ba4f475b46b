"""`tiering trace`: an epoch of the loader without a model, and what it was bound by."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from tiering.errors import InputError
from tiering.loader.options import MemoryOptions, PipelineOptions, ReadOptions, SeedOptions
from tiering.sampling.options import SamplingOptions

from .options import Call, Common, Seed, Train, group, takes
from .output import print_json, print_parts

_TABLES = (SeedOptions, MemoryOptions, ReadOptions, PipelineOptions, SamplingOptions)


@takes(*map(group, _TABLES), group(Common, "json"))
def trace_command(
    call: Call,
    layout: Annotated[Path, Argument(metavar="LAYOUT", help="Layout.")],
    epochs: Annotated[int, Option(help="Epochs to replay.", metavar="N", min=1)] = 1,
    batches: Annotated[int, Option(help="Maximum number of batches per epoch (0: all).", metavar="N", min=0)] = 0,
    seed: Seed = 0,
    train: Train = None,
) -> None:
    """Replay epochs of the loader without a model: how fast batches come, from which tiers, what limits the speed."""
    from tiering.formats.user_arrays import resolve_train
    from tiering.loader import open_layout

    asked = call.collect(*_TABLES)
    found, shown = [], list[str]()
    with open_layout(layout) as opened:
        if train is not None and any(train in opened.graph.splits(t) for t in opened.graph.node_types):
            asked["split"] = train
        elif train is not None:
            for node_type, ids in resolve_train(opened.graph, train, seed).items():
                if "seeds" in asked:
                    raise InputError(f"train: expected nodes of one type, found {train!r}; trace one type at a time")
                asked |= {"node_type": node_type, "seeds": opened.old_to_new(node_type)[ids]}
        loader = opened.loader(seed=seed, progress=True, **asked)
        for epoch in range(epochs):
            loader.reset_counters()
            start, first, count = time.perf_counter(), 0.0, 0
            for _ in loader.epoch(epoch):
                first = first or time.perf_counter() - start
                count += 1
                if count == batches:
                    break
            seconds, stats = time.perf_counter() - start, loader.stats()
            ahead, depth = loader.lookahead, loader.queue_depth
            choice = None if ahead is None or ahead.cached else ahead.choice
            lists = loader.lists_speed()
            plans = {
                "lists_disk": lists and lists.as_dict(),
                "choice": choice and asdict(choice),
                "queue_depth": depth and asdict(depth),
            }
            found.append({"epoch": epoch, "seconds": seconds, "first_batch": first, **stats.as_dict(), **plans})
            if call.json:
                continue
            facts = [f"look-ahead: {choice}; {choice.seconds:.5f} s of reading per batch predicted"] if choice else []
            if ahead is not None and ahead.cached:
                facts.append("ssd: the page cache has the stripe files; --direct on reads from disk")
            elif depth:
                facts.append(f"ssd: {depth}")
            facts += [f"disk of neighbor lists: {lists}"] if lists else []
            print_parts(
                f"epoch {epoch}: {seconds:.3f} s, {seconds / max(1, count):.5f} s per batch, first batch {first:.3f} s",
                *(fact for fact in facts if fact not in shown),  # what the last epoch has not said
                *(stats.describe() if epoch == epochs - 1 else [stats.line()]),  # the last epoch's tables stand for all
            )
            shown = facts
    if call.json:
        print_json({"layout": str(layout), "epochs": found})
