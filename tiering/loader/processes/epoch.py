"""An epoch that the ranks of one machine read through one buffer, as its owner knows it."""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.loader.processes.channel import Channel

Key = tuple[int, int]
"""An epoch's number, and how many times it was begun before."""


@dataclass
class Member:
    """One rank in an epoch."""

    number: int
    feed: Channel
    """Where it says what it needs."""
    rows: deque[npt.NDArray[np.uint32]] = field(default_factory=deque)
    """Of its next batches, not yet in the plan."""
    batches: deque[int] = field(default_factory=deque)
    """Numbers in the plan of its batches that are not released."""
    released: int = 0
    """How many of its batches were released before them."""
    part: int = 0
    """Number of the first part of the first of them that is not released."""
    held: deque[bool] = field(default_factory=deque)
    """Parts from that one on that were given to it: whether each is the last of its batch."""
    adding: bool = False
    """Whether a batch of it is on its way into the plan."""
    ended: bool = False
    """Whether it has said what all its batches need."""
    left: bool = False
    """Whether it wants no batch any more."""
    completed: bool = False
    """Whether it had all its batches when it left."""
    gone: bool = False
    """Whether nothing of it is in the plan any more."""
    giving: threading.Thread | None = None
    """Tells it where rows lie."""


@dataclass
class Run:
    """One epoch of all ranks."""

    key: Key
    since: float = field(default_factory=time.monotonic)
    warned: float = field(default_factory=time.monotonic)
    members: dict[int, Member] = field(default_factory=dict)
    started: bool = False
    core: native.RowBuffer | None = None
    error: dict[str, Any] | None = None
    """What ranks are told instead of slots. No exception: its frames would keep the loader that listens."""
    refused: float = 0.0
    """When the owner, which is no member then, said that there is none; 0: it did not."""
    fed: bool = False
    """Whether no batch is added any more."""
    added: int = 0

    @property
    def finished(self) -> bool:
        """Whether all ranks are done with it."""
        return all(member.gone for member in self.members.values())


class RefusalError(Exception):
    """Rows of a batch cannot be had."""

    def __init__(self, told: dict[str, Any]) -> None:
        super().__init__(str(told))
        self.told = told


def told(error: BaseException) -> dict[str, Any]:
    """An error as a message."""
    return {"error": type(error).__name__, "message": str(error), "errno": getattr(error, "errno", None)}


def tell(channel: Channel, header: dict[str, Any]) -> None:
    """Send to who may be gone."""
    with suppress(OSError):
        channel.send(header)
