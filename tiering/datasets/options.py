"""Options of an import: one value for all formats, parsed and checked in one place."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

from tiering.errors import InputError
from tiering.formats.features import FEATURE_DTYPES

T = TypeVar("T")


def option_name(name: str) -> str:
    """An option as the command line spells it; messages use it for Python callers too."""
    return "--" + name.replace("_", "-")


MOST_NODES = 1 << 48
"""More than any machine holds 8 bytes each of."""
SELF_LOOPS = ("keep", "remove", "add")


@dataclass(frozen=True)
class PerType(Generic[T]):
    """A value for every node type, with exceptions by type: ``1024`` or ``paper=1024,author=768``."""

    default: T | None
    by_type: Mapping[str, T]

    def get(self, node_type: str) -> T | None:
        """Value for one type; ``None`` if nothing was said."""
        return self.by_type.get(node_type, self.default)

    def __bool__(self) -> bool:
        return self.default is not None or bool(self.by_type)


def per_type(value: Any, what: str, convert: Callable[[Any, str], T]) -> PerType[T]:
    """Parse a value per node type.

    Parameters
    ----------
    value
        ``None``, one value, a mapping, or text such as ``1024`` or ``paper=1024,author=768``.
    what
        Name of the option, for messages.
    convert
        Turns one value into the type wanted, or raises `InputError`; gets the name of the option too.
    """
    if value is None:
        return PerType(None, {})
    if isinstance(value, PerType):
        return value
    if isinstance(value, Mapping):
        return PerType(None, {str(k): convert(v, what) for k, v in value.items()})
    if isinstance(value, str) and "=" in value:
        by_type: dict[str, T] = {}
        for part in value.split(","):
            name, _, text = part.partition("=")
            if not name.strip() or not text.strip():
                raise InputError(f"{what}: expected TYPE=VALUE separated by commas, found {shown(value)}")
            by_type[name.strip()] = convert(text.strip(), what)
        return PerType(None, by_type)
    return PerType(convert(value, what), {})


def shown(value: Any) -> str:
    """A value of the user's as messages quote it, cut if it is long."""
    if isinstance(value, int) and abs(value) >= 10**40:  # Python refuses to write numbers of many digits
        return f"a number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"


def count(value: Any, what: str) -> int:
    """A whole number of 0 or more."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{what}: expected a whole number, found {shown(value)}") from None
    if number < 0 or isinstance(value, bool) or (isinstance(value, float) and value != number):
        raise InputError(f"{what}: expected a whole number of 0 or more, found {shown(value)}")
    return number


def node_count(value: Any, what: str) -> int:
    """A number of nodes."""
    number = count(value, what)
    if number > MOST_NODES:
        raise InputError(f"{what}: expected a number of nodes up to 2^48, found {shown(value)}; correct it")
    return number


def _dim(value: Any, what: str) -> int:
    number = count(value, what)
    if number == 0:
        raise InputError(f"{what}: expected 1 or more values per row, found 0")
    return number


def _dtype(value: Any, what: str) -> str:
    if str(value) not in FEATURE_DTYPES:
        raise InputError(f"{what}: expected one of {', '.join(FEATURE_DTYPES)}, found {value!r}")
    return str(value)


def _fractions(value: Any, what: str) -> tuple[float, float, float] | None:
    if value is None:
        return None
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


@dataclass(frozen=True)
class SourceOptions:
    """Everything a source may be told. `parse_options` builds it from loose values."""

    num_nodes: PerType[int]
    """Number of nodes (per type); checked against the files, needed where no file tells."""
    feature_dim: PerType[int]
    """Values per row of a headerless feature file."""
    feature_dtype: PerType[str]
    """Dtype of a headerless feature file, or ``bfloat16`` for one stored as uint16."""
    label: str
    """``19`` or ``2K``: which of IGB's label files."""
    num_labelled: int | None
    """Only the first so many nodes have labels; the rest is padding or missing (IGB full)."""
    relations: tuple[str, ...]
    """Import only these relations (directory names or ``src:name:dst``); empty is all."""
    split: tuple[float, float, float] | None
    """Make splits with these shares of the labelled nodes, whatever files there are."""
    split_seed: int
    """Seed of `split`."""
    src_column: str | None
    """Name or 0-based index of the column of sources (text, parquet)."""
    dst_column: str | None
    """Name or 0-based index of the column of destinations."""
    weight_column: str | None
    """Name or 0-based index of the column of edge weights."""
    delimiter: str | None
    """Delimiter of text; ``None`` finds out."""
    header: bool | None
    """Whether text has a header line; ``None`` finds out."""
    compact_ids: bool
    """Make sparse ids dense: 0..n-1 in ascending order of the ids that occur."""
    self_loops: str
    """``keep``, ``remove``, or ``add`` where a node has none (relations from a type to itself)."""
    reverse_edges: bool
    """Add each edge reversed; between two types, as relation ``rev_NAME``."""
    deduplicate: bool
    """Keep the first of several equal edges of a relation."""
    work_dir: str | os.PathLike[str] | None
    """Where temporary files go."""


_COLUMNS = {"src_column", "dst_column", "weight_column", "compact_ids"}
_TEXT = {"delimiter", "header"}
_RAW = {"feature_dim", "feature_dtype", "num_labelled"}
_IGB = {"label", "relations"}
NOT_FOR: dict[str, set[str]] = {
    "npy": _COLUMNS | _TEXT | _IGB,
    "igb": _COLUMNS | _TEXT,
    "edgelist": _RAW | _IGB,
    "parquet": _RAW | _IGB | _TEXT,
}
"""Format -> options that say nothing about it."""

DEFAULTS: dict[str, Any] = {
    "label": "19",
    "relations": (),
    "split_seed": 0,
    "compact_ids": False,
    "self_loops": "keep",
    "reverse_edges": False,
    "deduplicate": False,
}
"""Option -> default; ``None`` for all others."""


def parse_options(given: Mapping[str, Any]) -> SourceOptions:
    """Check loose options (from Python or a command line) and convert them.

    Raises
    ------
    InputError
        If an option is unknown or its value is none it can take.
    """
    known = [f.name for f in fields(SourceOptions)]
    for name in given:
        if name not in known:
            raise InputError(f"option {name}: unknown; sources take {', '.join(known)}")
    value: dict[str, Any] = {name: DEFAULTS.get(name) for name in known}
    value.update({k: v for k, v in given.items() if v is not None})
    value["num_nodes"] = per_type(value["num_nodes"], "--num-nodes", node_count)
    value["feature_dim"] = per_type(value["feature_dim"], "--feature-dim", _dim)
    value["feature_dtype"] = per_type(value["feature_dtype"], "--feature-dtype", _dtype)
    value["split"] = _fractions(value["split"], "--split")
    value["split_seed"] = count(value["split_seed"], "--split-seed")
    if value["num_labelled"] is not None:
        value["num_labelled"] = count(value["num_labelled"], "--num-labelled")
    value["label"] = str(value["label"]).upper()
    if value["label"] not in ("19", "2K"):
        raise InputError(f"--label: expected 19 or 2K, found {given['label']!r}")
    relations = value["relations"]
    value["relations"] = tuple(relations.split(",") if isinstance(relations, str) else relations)
    if value["self_loops"] not in SELF_LOOPS:
        raise InputError(f"--self-loops: expected {', '.join(SELF_LOOPS)}, found {value['self_loops']!r}")
    for name in ("src_column", "dst_column", "weight_column", "delimiter"):
        if value[name] is not None:
            value[name] = str(value[name])
    return SourceOptions(**value)


def given_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that differ from their defaults, JSON-ready, for the record."""
    record = {}
    for name, value in options.items():
        if value is None or name == "work_dir" or value == DEFAULTS.get(name):
            continue
        record[name] = value if isinstance(value, (bool, int, float, str, dict)) else list(value)
    return record


def refuse_foreign_options(options: Mapping[str, Any], format_name: str) -> None:
    """Raise `InputError` for a given option that says nothing about this format: it would be ignored."""
    for name in given_options(options):
        if name in NOT_FOR[format_name]:
            others = [f for f, names in NOT_FOR.items() if name not in names]
            raise InputError(
                f"{option_name(name)}: has no meaning for format {format_name}; it is for {', '.join(others)}"
            )
