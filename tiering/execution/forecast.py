"""Plans of one or several stages together: totals, and whether they fit the disks."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tiering.artifacts.storage import disk_free
from tiering.errors import StorageError
from tiering.execution.plan import StagePlan
from tiering.execution.rates import Rates
from tiering.units import format_bytes


@dataclass(frozen=True)
class Shortage:
    """A disk that is too small."""

    path: Path
    """A directory on it that is to be written."""
    needed: int
    free: int

    def __str__(self) -> str:
        return f"{self.path}: {format_bytes(self.needed)} needed, {format_bytes(self.free)} free"


@dataclass(frozen=True)
class Forecast:
    """What one or several stages, run one after the other, will take."""

    plans: tuple[StagePlan, ...]
    rates: Rates

    @property
    def seconds(self) -> float:
        """Time of all stages."""
        return sum(plan.seconds for plan in self.plans)

    @property
    def memory(self) -> int:
        """Peak over the stages."""
        return max((plan.memory for plan in self.plans), default=0)

    def shortages(self) -> list[Shortage]:
        """Disks with less free space than the stages need at their fullest moment."""
        needed: dict[int, int] = {}
        kept: dict[int, int] = {}
        place: dict[int, Path] = {}
        for plan in self.plans:
            for path, nbytes in plan.needed().items():
                device = _device(path)
                place.setdefault(device, path)
                needed[device] = max(needed.get(device, 0), kept.get(device, 0) + nbytes)
            for path, nbytes in plan.left.items():
                kept[_device(path)] = kept.get(_device(path), 0) + nbytes
        found = [Shortage(path, needed[device], disk_free(path)) for device, path in place.items()]
        return [each for each in found if each.needed > each.free]

    def require_space(self) -> None:
        """Refuse what does not fit.

        Raises
        ------
        StorageError
            Naming each disk, bytes needed and free.
        """
        if short := self.shortages():
            raise StorageError(28, f"{'; '.join(map(str, short))}; make room or choose another disk")

    def to_json(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "dry_run": True,
            "stages": [plan.to_json() for plan in self.plans],
            "seconds": round(self.seconds, 4),
            "memory": self.memory,
            **{name: sum(getattr(plan, name) for plan in self.plans) for name in ("disk_read", "disk_written")},
            **{name: sum(getattr(plan, name) for plan in self.plans) for name in ("disk_scratch", "disk_left")},
            "fits": not self.shortages(),
            "rates": asdict(self.rates),
        }


def _device(path: Path) -> int:
    """Number of the file system of a path, or of its nearest parent that exists."""
    return next(p for p in (path.absolute(), *path.absolute().parents) if p.exists()).stat().st_dev
