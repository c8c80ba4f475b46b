"""The options of an evaluation and of a plan: what is counted, compared and reported."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tiering.errors import InputError
from tiering.sampling.options import SamplingKeywords, SubgraphKeywords
from tiering.text.options import number, option, parse_options, whole
from tiering.text.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    from tiering.evaluation.cache_order import RowBytes
    from tiering.formats.user_arrays import Train, UserValues
    from tiering.layout.tiers import Capacities
    from tiering.memory import Budget
    from tiering.readahead.disks import Disk

COUNTED, TIERS = "Counting", "Tier traffic (sizes as in `tiering layout`)"
PLANNED, ASKED = "Values to compare (comma-separated)", "Goals"
SHARES = (0.01, 0.02, 0.05, 0.10, 0.20, 0.40)
"""Capacities reported by default, as fractions of the bytes of all feature rows."""
MAX_SHARES = 50


def split_list(text: str) -> list[str]:
    """Return the parts of a list with commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def _parse_shares(shares: Sequence[float] | str, name: str) -> Sequence[float]:
    if isinstance(shares, str):
        parts = shares.replace(" ", "").split(",")
        try:
            shares = [float(part.removesuffix("%")) / (100 if part.endswith("%") else 1) for part in parts]
        except ValueError:
            raise InputError(f"{name}: expected fractions such as 1%,5%,20%, found {shares!r}") from None
    if not 1 <= len(shares) <= MAX_SHARES:
        raise InputError(f"{name}: expected 1 to {MAX_SHARES} capacities, found {len(shares)}")
    if bad := [share for share in shares if not 0 <= share <= 1]:
        raise InputError(f"{name}: expected values between 0 and 1, found {bad[0]}")
    return shares


@dataclass(frozen=True)
class EvaluationOptions:
    """Options of what is counted and reported; `InputError` where a number does not fit."""

    epochs: int = option(3, "Number of epochs to count.", "N", panel=COUNTED, parse=whole(1, 1 << 62, "1 or more"))
    first_epoch: int | None = option(
        None, "Number of the first epoch. Default: the first that no score has counted.", "N", panel=COUNTED,
        parse=lambda value, name: None if value is None else whole(0, 1 << 62, "0 or more")(value, name),
    )  # fmt: skip
    shares: Sequence[float] = option(
        SHARES, "Cache capacities, such as 1%,5%. Default: 1,2,5,10,20,40%.", "P,P,..", panel=COUNTED, cli=str | None,
        parse=_parse_shares,
    )  # fmt: skip
    resamples: int = option(
        200, "Resamples behind the ± (0: none).", "N", panel=COUNTED, parse=whole(0, 1 << 62, "0 or more")
    )
    page: str | int = option("4KiB", "Page size of the SSD tier.", "SIZE", panel=TIERS, cli=str, cli_default="4KiB")
    block: str | int = option(
        "512", "Alignment of SSD reads: 512, or 4KiB on some drives.", "SIZE", panel=TIERS, cli=str,
        cli_default="512",
    )  # fmt: skip
    row_bytes: RowBytes = option(
        None, "Bytes per row, for node types without features, such as learned embeddings.", "SIZE|TYPE=SIZE,..",
        panel=TIERS, cli=str | None,
    )  # fmt: skip

    page_bytes: int = field(init=False)
    block_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        from tiering.layout.tiers import parse_page

        vars(self).update(parse_options(type(self), vars(self)))
        page, block = parse_page(self.page), parse_bytes(self.block, "block")
        if not 1 <= block <= page or block & (block - 1):
            raise InputError(
                f"block: expected a power of two up to the page ({format_bytes(page)}), such as 512, found "
                f"{self.block!r}"
            )
        vars(self).update(page_bytes=page, block_bytes=block)


class CommonKeywords(SamplingKeywords, SubgraphKeywords, total=False):
    """Keywords of `evaluate` and `plan_epochs`, for editors."""

    seed: int
    train: Train
    seed_time: UserValues | None
    threads: int | str | None
    memory: str | int | Budget | None
    row_bytes: RowBytes
    page: str | int


class EvaluationKeywords(CommonKeywords, total=False):
    """Keywords of `evaluate`."""

    tiers: Capacities | None
    epochs: int
    first_epoch: int | None
    shares: Sequence[float]
    resamples: int
    block: str | int
    source_ids: bool


@dataclass(frozen=True)
class Prices:
    """Prices of an hour, in any currency: of the machine, of a GiB of its memory, of a drive by the disk's name."""

    currency: str
    machine: float
    memory_gib: float
    disk: Mapping[str, float]

    def hour(self, memory: int, disk: Disk) -> float:
        """Return the price of an hour with `memory` bytes and the drives of a disk."""
        return self.machine + self.memory_gib * memory / 2**30 + (self.drive(disk.name) or 0.0) * disk.drives

    def drive(self, name: str) -> float | None:
        """Return the price of one drive of a disk; ``None`` if prices of disks are known, but not its own."""
        return self.disk.get(name, self.disk.get(name.rpartition("x")[2], None if self.disk else 0.0))

    @classmethod
    def read(cls, path: Path) -> Prices:
        """Read a TOML file: ``currency``, ``machine``, ``memory_gib``, and by disk in ``[disk]``, all an hour."""
        from tiering.readahead.disks import read_toml

        document = {"currency": "USD", "machine": 0.0, "memory_gib": 0.0, "disk": {}, **read_toml(path)}
        disk = document["disk"]
        figures = [document["machine"], document["memory_gib"], *(disk.values() if isinstance(disk, dict) else [None])]
        names = {"currency", "machine", "memory_gib", "disk"}
        known = document.keys() == names and isinstance(document["currency"], str)
        if not known or not all(isinstance(price, (int, float)) and price >= 0 for price in figures):
            raise InputError(
                f"{path}: expected currency, prices per hour of 0 or more (machine, memory_gib), and a table [disk] "
                f"of prices such as nvme-gen4 = 0.05, found {document}"
            )
        return cls(**document)


_TARGET = re.compile(r"^\s*epoch\s*(?:<=?|:)?\s*(\d+(?:\.\d+)?)\s*(s|min|h)\s*$")
_UNITS = {"s": 1, "min": 60, "h": 3600}


@dataclass(frozen=True)
class PlanOptions:
    """Options of what `tiering plan` compares; `InputError` where one does not fit."""

    rows_in_memory: Sequence[str | int | Budget] = option(
        (), "Memory of the training process, for rows and batches: 8GiB, or 50% of the machine's. Default: from "
        "all rows in memory down to 1/32. (--memory limits this command itself.)", "SIZE,..", panel=PLANNED,
        cli=str | None, from_cli=split_list,
    )  # fmt: skip
    disk: Sequence[str | Disk] = option(
        ("nvme-gen4",), "Disks: names (docs/plan.md), several drives as 2xnvme-gen4, a JSON file of figures, measured "
        "(the disk of G), or measured:DIR. Measuring writes a temporary file to the disk.",
        "NAME|FILE|measured,..", panel=PLANNED,
        cli=str, cli_default="nvme-gen4", from_cli=split_list,
    )  # fmt: skip
    lists_disk: str | Disk | None = option(
        None, "Disk of the adjacency lists. Default: the disk of the rows.", "NAME|FILE|measured",
        panel=PLANNED, cli=str | None,
    )  # fmt: skip
    dtype: Sequence[str] = option(
        ("auto",), "Dtypes in which rows are stored, as in `tiering layout`.", "DTYPE,..", panel=PLANNED, cli=str,
        cli_default="auto", from_cli=split_list,
    )  # fmt: skip
    step_seconds: float | None = option(
        None, "Seconds of a training step; an epoch takes at least that long per batch.", "S", panel=ASKED,
        parse=number(lambda value: value > 0, "seconds above 0", none=True),
    )  # fmt: skip
    target: str | None = option(None, "Find the least memory for an epoch time: 'epoch 20s'.", "TEXT", panel=ASKED)
    price: str | Path | None = option(
        None, "TOML file of prices per hour: currency, machine, memory_gib, [disk] by name.", "FILE", panel=ASKED,
        cli=Path | None,
    )  # fmt: skip
    page: str | int = option("4KiB", "Page size of the SSD tier.", "SIZE", panel=PLANNED, cli=str, cli_default="4KiB")

    page_bytes: int = field(init=False)
    prices: Prices | None = field(init=False)
    target_seconds: float | None = field(init=False)

    def __post_init__(self) -> None:
        from tiering.codecs import AUTO, CODECS
        from tiering.layout.tiers import parse_page

        for name in ("rows_in_memory", "disk", "dtype"):  # one of them stands for itself
            value = getattr(self, name)
            vars(self)[name] = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
        vars(self).update(parse_options(type(self), vars(self)))
        if not self.disk or not self.dtype:
            raise InputError("disk, dtype: expected at least one of each, found none; omit the option")
        for dtype in self.dtype:
            if dtype not in (AUTO, *CODECS):
                raise InputError(f"dtype: expected {', '.join((AUTO, *CODECS))}, found {dtype!r}")
        seconds = None
        if self.target is not None:
            if not (match := _TARGET.match(self.target)):
                raise InputError(f"target: expected a time, such as 'epoch 20s' or 'epoch 5min', found {self.target!r}")
            seconds = float(match[1]) * _UNITS[match[2]]
        prices = None if self.price is None else Prices.read(Path(self.price))
        names = [str(getattr(disk, "name", disk)) for disk in self.disk]
        if prices is not None and (missing := [name for name in names if prices.drive(name) is None]):
            raise InputError(
                f"{self.price}: [disk] has no price for {', '.join(missing)}, only for {', '.join(prices.disk)}; "
                "add the price, 0 if there is none"
            )
        vars(self).update(page_bytes=parse_page(self.page), prices=prices, target_seconds=seconds)


class PlanKeywords(CommonKeywords, total=False):
    """Keywords of `plan_epochs`."""

    rows_in_memory: Sequence[str | int | Budget]
    disk: Sequence[str | Disk]
    lists_disk: str | Disk | None
    dtype: Sequence[str]
    step_seconds: float | None
    target: str | None
    price: str | Path | None
