"""The options of an evaluation: what is counted, and what is reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tiering.errors import InputError
from tiering.sampling.options import SamplingKeywords, SubgraphKeywords
from tiering.text.options import option, parse_options, whole
from tiering.text.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    from tiering.evaluation.cache_order import RowBytes
    from tiering.formats.user_arrays import Train, UserValues
    from tiering.layout.tiers import Capacities
    from tiering.memory import Budget
    from tiering.readahead.disk_speed import DiskSpeed

COUNTED, TIERS = "What is counted", "Traffic of a tier plan, sizes as in `tiering layout`"
_READING = "Seconds of reading from SSD, simulated"
SHARES = (0.01, 0.02, 0.05, 0.10, 0.20, 0.40)
"""Capacities reported by default, as fractions of the bytes of all feature rows."""
MAX_SHARES = 50


def _parse_shares(shares: Sequence[float] | str, name: str) -> Sequence[float]:
    if isinstance(shares, str):
        parts = shares.replace(" ", "").split(",")
        try:
            shares = [float(part.removesuffix("%")) / (100 if part.endswith("%") else 1) for part in parts]
        except ValueError:
            raise InputError(f"{name}: expected shares such as 1%,5%,20%, found {shares!r}") from None
    if not 1 <= len(shares) <= MAX_SHARES:
        raise InputError(f"{name}: expected 1 to {MAX_SHARES} capacities, found {len(shares)}")
    if bad := [share for share in shares if not 0 <= share <= 1]:
        raise InputError(f"{name}: expected values between 0 and 1, found {bad[0]}")
    return shares


@dataclass(frozen=True)
class EvaluationOptions:
    """Options of what is counted and reported; `InputError` where a number does not fit."""

    epochs: int = option(3, "Epochs to count.", "N", panel=COUNTED, parse=whole(1, 1 << 62, "1 or more"))
    first_epoch: int | None = option(
        None, "Number of the first. Default: the first that no score has counted.", "N", panel=COUNTED,
        parse=lambda value, name: None if value is None else whole(0, 1 << 62, "0 or more")(value, name),
    )  # fmt: skip
    shares: Sequence[float] = option(
        SHARES, "Capacities, such as 1%,5%. Default: 1,2,5,10,20,40%.", "P,P,..", panel=COUNTED, cli=str | None,
        parse=_parse_shares,
    )  # fmt: skip
    resamples: int = option(
        200, "Draws behind the ±; 0 for none.", "N", panel=COUNTED, parse=whole(0, 1 << 62, "0 or more")
    )
    page: str | int = option("4KiB", "Page of the SSD tier.", "SIZE", panel=TIERS, cli=str, cli_default="4KiB")
    block: str | int = option(
        "512", "Where SSD reads begin and end: 512, or 4KiB on some drives.", "SIZE", panel=TIERS, cli=str,
        cli_default="512",
    )  # fmt: skip
    row_bytes: RowBytes = option(
        None, "Bytes of a row of types without features, such as learned embeddings.", "SIZE|TYPE=SIZE,..",
        panel=TIERS, cli=str | None,
    )  # fmt: skip
    rows_in_memory: Sequence[str | int] = option(
        (), "Memory for rows: 4GiB, or 10% of all; repeatable. All rows lie on SSD, in the order of each score. "
        "(--memory is what this command itself may take.)", "SIZE", panel=_READING, cli=list[str] | None,
    )  # fmt: skip
    ssd_model: DiskSpeed | str | Path | None = option(
        None, "The disk's speed: a JSON file with reads_per_second (of 4 KiB, at random) and bytes_per_second, or that "
        "of the directory's disk, measured now by a file written there for a while.", "FILE|measured:DIR",
        panel=_READING, cli=str | None,
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


class EvaluationKeywords(SamplingKeywords, SubgraphKeywords, total=False):
    """Keywords of `evaluate`, for editors."""

    seed: int
    train: Train
    seed_time: UserValues | None
    tiers: Capacities | None
    threads: int | str | None
    memory: str | int | Budget | None
    epochs: int
    first_epoch: int | None
    shares: Sequence[float]
    resamples: int
    page: str | int
    block: str | int
    row_bytes: RowBytes
    rows_in_memory: Sequence[str | int]
    ssd_model: DiskSpeed | str | Path | None
