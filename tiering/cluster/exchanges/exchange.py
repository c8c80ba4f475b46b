"""What an exchange does: it takes the parts that tasks leave, and hands them to the tasks that read them.

Plans and manifests, and the files of artifacts, are not its business: those are in stores and folders in any case.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tiering.cluster.manifests import Manifest
from tiering.cluster.segments import Columns, Segment

Part = dict[str, npt.NDArray[np.generic]]
"""The columns of a part, not to be written to."""


class PartWriter(Protocol):
    """Takes the parts of one task in their order."""

    def add(self, columns: Columns) -> None:
        """Take the next part; its arrays are the caller's again afterwards."""

    def finish(self) -> Segment:
        """What has been written, for the manifest."""


class TaskExchange(Protocol):
    """An exchange as one attempt at a task uses it."""

    def writer(self, key: str, nbytes: int) -> AbstractContextManager[PartWriter]:
        """Begin the parts of an attempt, under a key of its own; of about `nbytes`, 0 if not known."""

    def part(self, stage: str, index: int, part: int) -> Part:
        """A part of a task of an earlier stage; `LostError` if it is not there, or not what was written."""

    def remove(self, key: str) -> None:
        """Remove the parts of an attempt that came second; nobody reads them."""


@dataclass(frozen=True)
class Left:
    """What an attempt has left outside the store: who leads the job holds it."""

    parts: list[Any] = field(default_factory=list)
    node: str = ""
    """Where it was made, as Ray names machines."""


class Exchange(Protocol):
    """An exchange as who leads a job uses it."""

    def giving(self) -> tuple[TaskExchange, Left]:
        """For a task that this process runs itself, and what that has left once it has ended."""

    def keep(self, tasks: int, manifest: Manifest, left: Left) -> None:
        """Hold what a task of a stage of so many `tasks` has left."""

    def there(self, manifest: Manifest) -> bool:
        """Whether the parts that a manifest names can be read, as far as that is known without reading them."""

    def carried(self, stages: Sequence[str]) -> Any:
        """What a task needs to find parts of these stages, picklable; ``None`` if it finds them by itself."""

    def part(self, stage: str, index: int, part: int) -> Part:
        """As `TaskExchange.part`, in this process."""

    def lost_with(self, stage: str, index: int) -> list[int]:
        """Tasks of a stage to be run again when one of them is: itself, and those whose parts were lost with its."""

    def drop(self, stage: str) -> None:
        """Let go of what the tasks of a stage have left."""

    def clear(self) -> None:
        """Let go of what is held."""
