"""Options of an import: one frozen value for all formats, parsed and checked in one place."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Generic, TypedDict, TypeVar

from tiering.errors import InputError, shown
from tiering.formats.features import FEATURE_DTYPES

T = TypeVar("T")
Parser = Callable[[Any, str], T]
"""Makes the value wanted of a loose one; the text says which option it is, for messages."""
MAX_NODES = 1 << 48
"""More than any machine holds 8 bytes each of."""

COLUMN_OPTIONS = frozenset({"src_column", "dst_column", "weight_column", "compact_ids"})
TEXT_OPTIONS = frozenset({"delimiter", "header", "string_ids", "quoted_newlines", "comment"})
RAW_OPTIONS = frozenset({"feature_dim", "feature_dtype", "num_labelled"})
TREE_OPTIONS = frozenset({"label", "relations", "mean_features"})
FORMAT_OPTIONS = COLUMN_OPTIONS | TEXT_OPTIONS | RAW_OPTIONS | TREE_OPTIONS
"""Those that only some formats take; the others mean something for all."""


def option_name(name: str) -> str:
    """An option as the command line spells it; messages use it for Python callers too."""
    return "--" + name.replace("_", "-")


@dataclass(frozen=True)
class PerType(Generic[T]):
    """A value for every node type, or one by type: ``1024`` or ``paper=1024,author=768``."""

    default: T | None = None
    by_type: Mapping[str, T] = field(default_factory=dict)

    def get(self, node_type: str) -> T | None:
        """Value for one type; ``None`` if nothing was said."""
        return self.by_type.get(node_type, self.default)


def _per_type(parse: Parser[T]) -> Parser[PerType[T]]:
    def parse_each(value: Any, what: str) -> PerType[T]:
        if isinstance(value, PerType):
            return value
        if isinstance(value, str) and "=" in value:
            pairs = [(name.strip(), text.strip()) for name, _, text in (p.partition("=") for p in value.split(","))]
            if not all(name and text for name, text in pairs):
                raise InputError(f"{what}: expected TYPE=VALUE separated by commas, found {shown(value)}")
            value = dict(pairs)
        if isinstance(value, Mapping):
            return PerType(None, {str(name): parse(one, what) for name, one in value.items()})
        return PerType(parse(value, what))

    return parse_each


def _count(value: Any, what: str) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        number = -1
    if number < 0 or isinstance(value, bool) or (isinstance(value, float) and value != number):
        raise InputError(f"{what}: expected a whole number of 0 or more, found {shown(value)}")
    return number


def node_count(value: Any, what: str) -> int:
    """A number of nodes, from an option or a file."""
    number = _count(value, what)
    if number > MAX_NODES:
        raise InputError(f"{what}: expected a number of nodes up to 2^48, found {shown(value)}; correct it")
    return number


def _dim(value: Any, what: str) -> int:
    number = _count(value, what)
    if number == 0:
        raise InputError(f"{what}: expected 1 or more values per row, found 0")
    return number


NO_COMMENT = "none"


def _character(*words: str) -> Parser[str]:
    def parse(value: Any, what: str) -> str:
        text = {"tab": "\t", "\\t": "\t", " ": "space"}.get(str(value), str(value))
        if text not in words and (len(text) != 1 or not text.isascii() or text in '0123456789+-."\r\n\0'):
            raise InputError(f"{what}: expected one character, {' or '.join(words)}, found {value!r}")
        return text

    return parse


SPLIT_RULES: Mapping[str, tuple[float, ...]] = {"official": (), "igb": (0.6, 0.2, 0.2), "mlperf": (0.6, 0.005)}
"""Splits by name: those of the dataset's files; as IGB's loader and MLPerf's reference make them, with their shares."""


def _split(value: Any, what: str) -> str | tuple[float, float, float]:
    """A rule, or shares."""
    if isinstance(value, str) and re.fullmatch(r"\s*[A-Za-z]\w*\s*", value):
        return _one_of(*SPLIT_RULES, "or shares such as 0.6,0.2,0.2")(value.strip().lower(), what)
    return split_shares(value, what)


def split_shares(value: Any, what: str) -> tuple[float, float, float]:
    """Shares of train, val, test."""
    try:
        shares = [float(part) for part in (value.split(",") if isinstance(value, str) else value)]
    except (TypeError, ValueError):
        shares = []
    # The tolerance lets 0.7 + 0.2 + 0.1 pass, which is more than 1 in binary.
    if len(shares) != 3 or not all(0 <= s <= 1 for s in shares) or sum(shares) > 1 + 1e-9 or shares[0] == 0:
        raise InputError(
            f"{what}: expected three shares for train, val, test with a sum of at most 1 and train above 0, "
            f"such as 0.6,0.2,0.2; found {value!r}"
        )
    return (shares[0], shares[1], shares[2])


def _one_of(*choices: str) -> Parser[str]:
    def parse(value: Any, what: str) -> str:
        if str(value) not in choices:
            raise InputError(f"{what}: expected one of {', '.join(choices)}, found {value!r}")
        return str(value)

    return parse


_PARSERS: dict[str, Parser[Any]] = {
    "num_nodes": _per_type(node_count),
    "feature_dim": _per_type(_dim),
    "feature_dtype": _per_type(_one_of(*FEATURE_DTYPES)),
    "label": lambda value, what: _one_of("19", "2K")(str(value).upper(), what),
    "num_labelled": _count,
    "mean_features": _per_type(lambda value, what: str(value)),
    "relations": lambda value, what: tuple(value.split(",") if isinstance(value, str) else value),
    "split": _split,
    "split_seed": _count,
    "self_loops": _one_of("keep", "remove", "add"),
    "spec": lambda value, what: str(value),
    "delimiter": _character("tab", "space"),
    "comment": _character(NO_COMMENT),
    **dict.fromkeys(("src_column", "dst_column", "weight_column"), lambda value, what: str(value)),
}
"""Option -> what turns a loose value into the one wanted; the others are taken as they are."""
_NOTHING_SAID: PerType[Any] = PerType()


@dataclass(frozen=True)
class ImportOptions:
    """Everything that an import may be told about its dataset. `parse` builds it from loose values."""

    spec: str | None = None
    """Which published dataset it is, by name or by the TOML file of a specification: files are held against that, and
    its options count where none is given."""
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
    mean_features: PerType[str] = _NOTHING_SAID
    """Types without features that get the mean of their neighbours' rows, and along which relation, in this order:
    ``author=writes,institution=affiliated_with`` in MAG240M."""
    relations: tuple[str, ...] = ()
    """Import only these relations (directory names or ``src:name:dst``); empty is all."""
    split: str | tuple[float, float, float] | None = None
    """Make splits with these shares of the labelled nodes, whatever files there are; or a rule: ``igb``, ``mlperf``,
    see `tiering.datasets.splits.make_splits`; ``official``: there must be files of them. ``None``: there may be."""
    split_seed: int = 0
    """Seed of `split` by shares, and of ``igb``."""
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
    string_ids: bool = False
    """Ids in text are names, numbered in ascending order."""
    quoted_newlines: bool = False
    """Fields of text that are in quotes may hold line breaks."""
    comment: str | None = None
    """Character that begins a comment on any line of text; ``None``: lines before the first edge that begin with ``#``
    or ``%`` are comments; ``none``: there are no comments."""
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

    @property
    def changes_edges(self) -> bool:
        """Whether edges are added or removed."""
        return self.self_loops != "keep" or self.reverse_edges or self.deduplicate

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> ImportOptions:
        """Check loose options (from Python or a command line) and convert them; ``None`` is the default of each."""
        values = {}
        for name, value in given.items():
            if name not in OPTIONS:
                raise InputError(f"option {name}: unknown; sources take {', '.join(OPTIONS)}")
            if value is not None:
                values[name] = _PARSERS[name](value, option_name(name)) if name in _PARSERS else value
        return cls(**values)


class ImportKeywords(TypedDict, total=False):
    """Fields of `ImportOptions` as users give them, for editors; ``None`` is the default of each."""

    spec: str | None
    num_nodes: int | str | Mapping[str, int] | None
    feature_dim: int | str | Mapping[str, int] | None
    feature_dtype: str | Mapping[str, str] | None
    label: str | None
    num_labelled: int | None
    mean_features: str | Mapping[str, str] | None
    relations: str | Sequence[str] | None
    split: str | tuple[float, float, float] | None
    split_seed: int | None
    src_column: str | int | None
    dst_column: str | int | None
    weight_column: str | int | None
    delimiter: str | None
    header: bool | None
    string_ids: bool
    quoted_newlines: bool
    comment: str | None
    compact_ids: bool
    self_loops: str | None
    reverse_edges: bool
    deduplicate: bool
    work_dir: str | os.PathLike[str] | None
    checksum_features: bool
    """Of the import, not of the source: read feature files whole, and record a checksum of each block of 64 MiB."""


OPTIONS = {option.name: option.default for option in fields(ImportOptions)}
"""Every option and its default."""


def given_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The loose options that differ from their defaults, JSON-ready, for the record."""
    given = {
        name: value
        for name, value in options.items()
        if value is not None and name != "work_dir" and value != OPTIONS.get(name)
    }
    return {name: v if isinstance(v, (bool, int, float, str, dict)) else list(v) for name, v in given.items()}
