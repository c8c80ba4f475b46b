"""The state of a loader: the epoch under way, the batches delivered, and the options that decide what batches hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass
from typing import Any

import numpy as np
import xxhash

from tiering.errors import InputError, quoted
from tiering.formats.arrow import as_array
from tiering.formats.layout import Layout
from tiering.loader.options import LoaderOptions
from tiering.loader.processes.machine import ProcessRank
from tiering.loader.targets import LinkTargets, NodeTargets
from tiering.sampling.plan import whole_number

_KEYS = {"epoch", "batches", "later", "rank", "world_size", "options"}


@dataclass
class Position:
    """A position in the epochs of one process: the next batch is the first that was not delivered."""

    epoch: int = 0
    batches: int = 0
    """Batches of this process delivered without a gap, from the first of the epoch on."""
    later: set[int] = field(default_factory=set)
    """Numbers of batches delivered beyond the gap, with ``in_order=False``."""

    def deliver(self, number: int, count: int) -> None:
        """Count a batch of an epoch of `count` batches; after the last one the position is in the next epoch."""
        self.later.add(number)
        while self.batches in self.later:
            self.later.remove(self.batches)
            self.batches += 1
        if self.batches == count:
            self.epoch, self.batches = self.epoch + 1, 0

    def remaining(self, count: int) -> list[int]:
        """Return the numbers of the batches that were not delivered, of an epoch of `count` batches."""
        return [number for number in range(self.batches, count) if number not in self.later]

    def save(self, rank: ProcessRank, options: Mapping[str, str]) -> dict[str, Any]:
        """Return the state of a loader at this position: plain types, which torch.save and JSON keep."""
        about = {"epoch": self.epoch, "batches": self.batches, "later": sorted(self.later)}
        return {**about, "rank": rank.rank, "world_size": rank.world_size, "options": dict(options)}

    @classmethod
    def load(cls, state: Any, rank: ProcessRank, options: Mapping[str, str], count: int) -> Position:
        """Return the position of a state, in a loader with `options` and `count` batches per epoch.

        `InputError`: it is no state, is of a loader with other options, or has batches that another rank delivered out
        of order. A state of another world size resumes at the next whole round of batches.
        """
        fits = isinstance(state, Mapping) and set(state) >= _KEYS
        if not fits or not isinstance(state["later"], list) or not isinstance(state["options"], Mapping):
            found = f"the keys {', '.join(map(str, state))}" if isinstance(state, Mapping) else quoted(state)
            raise InputError(f"load_state_dict: expected the state_dict() of a loader of this version, found {found}")
        for name, value in options.items():
            if (saved := state["options"].get(name)) != value:
                raise InputError(
                    f"load_state_dict: {name}: the state has {saved}, this loader has {value}, so its batches "
                    f"differ; make the loader with the same {name}, or start over without the state"
                )
        epoch, batches, world_size = (
            whole_number(state[name], low, 2**63, f"load_state_dict: {name}", f" of {low} or more")
            for name, low in (("epoch", 0), ("batches", 0), ("world_size", 1))
        )
        later = set(state["later"])
        if later and (state["rank"], world_size) != (rank.rank, rank.world_size):
            raise InputError(
                f"load_state_dict: with in_order=False, rank {state['rank']} of {world_size} processes delivered "
                f"batches out of order, which rank {rank.rank} of {rank.world_size} cannot skip; load the state "
                "that this rank saved, with the same world_size"
            )
        batches = -(-batches * world_size // rank.world_size)
        return cls(epoch, batches, later) if batches < count else cls(epoch + 1)


def describe_batches(layout: Layout, options: LoaderOptions, targets: NodeTargets | LinkTargets) -> dict[str, str]:
    """Return the options that decide what batches hold, as text by name; of arrays a digest. Reads each array once."""
    tables = [layout.type_layout(t) for t in layout.feature_types]
    about: dict[str, Any] = {
        "layout": f"the graph {layout.graph.digest}",
        "features": {table.node_type: (table.dtype, table.codec) for table in tables},
        **vars(options.sampling), "shuffle": options.seeds.shuffle, "drop_last": options.seeds.drop_last,
    }  # fmt: skip
    if isinstance(targets, NodeTargets):
        about |= {"seeds": (repr(targets), targets.ids), "seed_time": targets.seed_time}
    elif (links := options.links) is not None:
        pairs = None if links.pairs is None else as_array(links.pairs)
        about |= {"links": (repr(targets), pairs, links.order), "negatives": links.negatives}
        about["link_time"] = targets.links.time
    return {name: _as_text(value) for name, value in about.items()}


def _as_text(value: Any) -> str:
    """Return a text that is the same for equal values in every process."""
    if isinstance(value, np.ndarray):
        data = np.ascontiguousarray(value).reshape(-1).view(np.uint8).data
        return f"{value.dtype} {value.shape} {xxhash.xxh3_64_hexdigest(data)}"
    if is_dataclass(value):
        return _as_text(vars(value))
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_as_text(part)}' for key, part in value.items())}}}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_as_text, value))})"
    return str(value)
