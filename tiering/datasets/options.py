"""Options of an import: one frozen value for all formats, parsed and checked in one place."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Generic, TypeVar

from tiering.errors import InputError
from tiering.formats.features import FEATURE_DTYPES

T = TypeVar("T")
MOST_NODES = 1 << 48
"""More than any machine holds 8 bytes each of."""
SELF_LOOPS = ("keep", "remove", "add")


def option_name(name: str) -> str:
    """An option as the command line spells it; messages use it for Python callers too."""
    return "--" + name.replace("_", "-")


def shown(value: Any) -> str:
    """A value of the user's as messages quote it, cut if it is long."""
    if isinstance(value, int) and abs(value) >= 10**40:  # Python refuses to write numbers of many digits
        return f"a number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"


@dataclass(frozen=True)
class PerType(Generic[T]):
    """A value for every node type, with exceptions by type: ``1024`` or ``paper=1024,author=768``."""

    default: T | None = None
    by_type: Mapping[str, T] = field(default_factory=dict)

    def get(self, node_type: str) -> T | None:
        """Value for one type; ``None`` if nothing was said."""
        return self.by_type.get(node_type, self.default)


def _per_type(convert: Callable[[Any, str], T]) -> Callable[[Any, str], PerType[T]]:
    """Parser of a value per node type: one value, a mapping, or text such as ``1024`` or ``paper=1024,author=768``."""

    def parse(value: Any, what: str) -> PerType[T]:
        if isinstance(value, PerType):
            return value
        if isinstance(value, str) and "=" in value:
            pairs = [(name.strip(), text.strip()) for name, _, text in (p.partition("=") for p in value.split(","))]
            if not all(name and text for name, text in pairs):
                raise InputError(f"{what}: expected TYPE=VALUE separated by commas, found {shown(value)}")
            value = dict(pairs)
        if isinstance(value, Mapping):
            return PerType(None, {str(name): convert(one, what) for name, one in value.items()})
        return PerType(convert(value, what))

    return parse


def _count(value: Any, what: str) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{what}: expected a whole number, found {shown(value)}") from None
    if number < 0 or isinstance(value, bool) or (isinstance(value, float) and value != number):
        raise InputError(f"{what}: expected a whole number of 0 or more, found {shown(value)}")
    return number


def node_count(value: Any, what: str) -> int:
    """A number of nodes, from an option or a file."""
    number = _count(value, what)
    if number > MOST_NODES:
        raise InputError(f"{what}: expected a number of nodes up to 2^48, found {shown(value)}; correct it")
    return number


def _dim(value: Any, what: str) -> int:
    number = _count(value, what)
    if number == 0:
        raise InputError(f"{what}: expected 1 or more values per row, found 0")
    return number


def _dtype(value: Any, what: str) -> str:
    if str(value) not in FEATURE_DTYPES:
        raise InputError(f"{what}: expected one of {', '.join(FEATURE_DTYPES)}, found {value!r}")
    return str(value)


def _shares(value: Any, what: str) -> tuple[float, float, float]:
    parts = value.split(",") if isinstance(value, str) else list(value)
    try:
        shares = [float(part) for part in parts]
    except (TypeError, ValueError):
        shares = []
    # The tolerance lets 0.7 + 0.2 + 0.1 pass, which is more than 1 in binary.
    if len(shares) != 3 or not all(0 <= s <= 1 for s in shares) or sum(shares) > 1 + 1e-9 or shares[0] == 0:
        raise InputError(
            f"{what}: expected three shares for train, val, test with a sum of at most 1 and train above 0, "
            f"such as 0.6,0.2,0.2; found {value!r}"
        )
    return (shares[0], shares[1], shares[2])


def _label(value: Any, what: str) -> str:
    if str(value).upper() not in ("19", "2K"):
        raise InputError(f"{what}: expected 19 or 2K, found {value!r}")
    return str(value).upper()


def _names(value: Any, what: str) -> tuple[str, ...]:
    return tuple(value.split(",") if isinstance(value, str) else value)


def _self_loops(value: Any, what: str) -> str:
    if value not in SELF_LOOPS:
        raise InputError(f"{what}: expected {', '.join(SELF_LOOPS)}, found {value!r}")
    return str(value)


def _text(value: Any, what: str) -> str:
    return str(value)


_PARSERS: dict[str, Callable[[Any, str], Any]] = {
    "num_nodes": _per_type(node_count),
    "feature_dim": _per_type(_dim),
    "feature_dtype": _per_type(_dtype),
    "label": _label,
    "num_labelled": _count,
    "relations": _names,
    "split": _shares,
    "split_seed": _count,
    "self_loops": _self_loops,
    **dict.fromkeys(("src_column", "dst_column", "weight_column", "delimiter"), _text),
}
"""Option -> what turns a loose value into the one wanted; the others are taken as they are."""
_NOTHING_SAID: PerType[Any] = PerType()


@dataclass(frozen=True)
class ImportOptions:
    """Everything that an import may be told about its dataset. `parse` builds it from loose values."""

    num_nodes: PerType[int] = _NOTHING_SAID
    """Number of nodes (per type); checked against the files, needed where no file tells."""
    feature_dim: PerType[int] = _NOTHING_SAID
    """Values per row of a headerless feature file."""
    feature_dtype: PerType[str] = _NOTHING_SAID
    """Dtype of a headerless feature file, or ``bfloat16`` for one stored as uint16."""
    label: str = "19"
    """``19`` or ``2K``: which of IGB's label files."""
    num_labelled: int | None = None
    """Only the first so many nodes have labels; the rest is padding or missing (IGB full)."""
    relations: tuple[str, ...] = ()
    """Import only these relations (directory names or ``src:name:dst``); empty is all."""
    split: tuple[float, float, float] | None = None
    """Make splits with these shares of the labelled nodes, whatever files there are."""
    split_seed: int = 0
    """Seed of `split`."""
    src_column: str | None = None
    """Name or 0-based index of the column of sources (text, parquet)."""
    dst_column: str | None = None
    """Name or 0-based index of the column of destinations."""
    weight_column: str | None = None
    """Name or 0-based index of the column of edge weights."""
    delimiter: str | None = None
    """Delimiter of text; ``None`` finds out."""
    header: bool | None = None
    """Whether text has a header line; ``None`` finds out."""
    compact_ids: bool = False
    """Make sparse ids dense: 0..n-1 in ascending order of the ids that occur."""
    self_loops: str = "keep"
    """``keep``, ``remove``, or ``add`` where a node has none (relations from a type to itself)."""
    reverse_edges: bool = False
    """Add each edge reversed; between two types, as relation ``rev_NAME``."""
    deduplicate: bool = False
    """Keep the first of several equal edges of a relation."""
    work_dir: str | os.PathLike[str] | None = None
    """Where temporary files go."""

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> ImportOptions:
        """Check loose options (from Python or a command line) and convert them; ``None`` is the default of each.

        Raises
        ------
        InputError
            If an option is unknown or its value is none it can take.
        """
        known = [f.name for f in fields(cls)]
        values = {}
        for name, value in given.items():
            if name not in known:
                raise InputError(f"option {name}: unknown; sources take {', '.join(known)}")
            if value is not None:
                values[name] = _PARSERS[name](value, option_name(name)) if name in _PARSERS else value
        return cls(**values)


def given_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The loose options that differ from their defaults, JSON-ready, for the record."""
    defaults = {f.name: f.default for f in fields(ImportOptions)}
    record = {}
    for name, value in options.items():
        if value is None or name == "work_dir" or value == defaults.get(name):
            continue
        record[name] = value if isinstance(value, (bool, int, float, str, dict)) else list(value)
    return record
