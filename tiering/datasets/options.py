"""Options of an import: one frozen value for all formats, parsed and checked in one place."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Generic, TypedDict, TypeVar

from tiering.datasets.table_specs import TableSpec, parse_tables
from tiering.errors import InputError, quoted
from tiering.formats.arrow import ArrowStream, name_type
from tiering.formats.features import FEATURE_DTYPES
from tiering.text.options import choice, option, parse_options, spell_flag
from tiering.text.units import parse_bytes, parse_size

T = TypeVar("T")
Parser = Callable[[Any, str], T]  # from a loose value, and the option's name for messages, to the checked value
NO_COMMENT = "none"
MAX_NODES = 1 << 48  # more than any machine holds 8 bytes each of

TIME_OPTIONS = frozenset({"time", "time_sorted"})
COLUMN_OPTIONS = frozenset({"src_column", "dst_column", "weight_column", "compact_ids", "first_id"})
TEXT_OPTIONS = frozenset({"delimiter", "header", "string_ids", "quoted_newlines", "comment"})
RAW_OPTIONS = frozenset({"feature_dim", "feature_dtype", "num_labelled"}) | TIME_OPTIONS
TREE_OPTIONS = frozenset({"label", "relations", "mean_features"})
RANDOM_OPTIONS = frozenset({"random_features", "random_labels", "random_train"})
TABLE_OPTIONS = frozenset({
    "relation", "nodes", "id_column", "features", "split_column", "type_column", "edge_data", "unknown_ids", "no_label",
})  # fmt: skip
FORMAT_OPTIONS = (
    COLUMN_OPTIONS | TEXT_OPTIONS | RAW_OPTIONS | TREE_OPTIONS | TABLE_OPTIONS
)  # the others mean something for all formats


@dataclass(frozen=True)
class PerType(Generic[T]):
    """A value for every node type, or one by type: ``1024`` or ``paper=1024,author=768``."""

    default: T | None = None
    by_type: Mapping[str, T] = field(default_factory=dict)

    def get(self, node_type: str) -> T | None:
        """Return the value for one type; ``None`` by default."""
        return self.by_type.get(node_type, self.default)


def _as_text(value: Any) -> Any:
    """Return a list of texts such as ``paper=1024`` as one text, as the command line has it."""
    listed = isinstance(value, (list, tuple)) and any("=" in str(one) for one in value)
    return ",".join(map(str, value)) if listed else value


def _per_type(parse: Parser[T]) -> Parser[PerType[T]]:
    def parse_each(value: Any, what: str) -> PerType[T]:
        if isinstance(value, PerType):
            return value
        value = _as_text(value)
        if isinstance(value, str) and "=" in value:
            pairs = [(name.strip(), text.strip()) for name, _, text in (p.partition("=") for p in value.split(","))]
            if not all(name and text for name, text in pairs):
                raise InputError(f"{what}: expected TYPE=VALUE separated by commas, found {quoted(value)}")
            value = dict(pairs)
        if isinstance(value, Mapping):
            return PerType(None, {str(name): parse(one, what) for name, one in value.items()})
        return PerType(parse(value, what))

    return parse_each


def _count(value: Any, what: str, least: int = 0) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        number = -1
    if number < least or isinstance(value, bool) or (isinstance(value, float) and value != number):
        raise InputError(f"{what}: expected a whole number of {least} or more, found {quoted(value)}")
    return number


def node_count(value: Any, what: str) -> int:
    """Return a number of nodes, from an option or a file."""
    number = _count(value, what)
    if number > MAX_NODES:
        raise InputError(f"{what}: expected a number of nodes up to 2^48, found {quoted(value)}; correct it")
    return number


def _percent(value: Any, what: str) -> float:
    fraction = parse_size(value, what).fraction
    if not fraction:
        raise InputError(f"{what}: expected a percentage above 0%, such as 1%, found {quoted(value)}")
    return fraction


def _character(*words: str) -> Parser[str]:
    def parse(value: Any, what: str) -> str:
        text = {"tab": "\t", "\\t": "\t", " ": "space"}.get(str(value), str(value))
        if text not in words and (len(text) != 1 or not text.isascii() or text in '0123456789+-."\r\n\0'):
            raise InputError(f"{what}: expected one character, {' or '.join(words)}, found {value!r}")
        return text

    return parse


# Splits by name: those of the dataset's files; as IGB's loader and MLPerf's reference make them.
SPLIT_RULES: Mapping[str, tuple[float, ...]] = {"official": (), "igb": (0.6, 0.2, 0.2), "mlperf": (0.6, 0.005)}


def _split(value: Any, what: str) -> str | tuple[float, float, float]:
    if isinstance(value, str) and re.fullmatch(r"\s*[A-Za-z]\w*\s*", value):
        return choice(*SPLIT_RULES, "or fractions such as 0.6,0.2,0.2")(value.strip().lower(), what)
    return split_fractions(value, what)


def split_fractions(value: Any, what: str) -> tuple[float, float, float]:
    """Return the fractions of train, val, test."""
    try:
        parts = [float(part) for part in (value.split(",") if isinstance(value, str) else value)]
    except (TypeError, ValueError):
        parts = []
    # The tolerance lets 0.7 + 0.2 + 0.1 pass, which is more than 1 in binary.
    if len(parts) != 3 or not all(0 <= p <= 1 for p in parts) or sum(parts) > 1 + 1e-9 or parts[0] == 0:
        raise InputError(
            f"{what}: expected three fractions for train, val, test with a sum of at most 1 and train above 0, "
            f"such as 0.6,0.2,0.2; found {value!r}"
        )
    return (parts[0], parts[1], parts[2])


_NO_VALUE: PerType[Any] = PerType()
_SHAPE, _TABLE, _CHANGE = "Headerless files, labels, splits", "Edge lists and parquet", "Change the edges"
_RANDOM, _TYPED, _REMOTE = "Graphs without features", "Tables of several types", "Object stores"
_PLACES = ("cache", "cache_size", "work_dir")  # options that do not change the graph


def _text(value: Any, what: str) -> str:
    return str(value)


def _texts(value: Any, what: str) -> tuple[str, ...]:
    return tuple(value.split(",") if isinstance(value, str) else map(str, value))


def _texts_by_type(value: Any, what: str) -> PerType[tuple[str, ...]]:
    """Return lists by type: ``a,b`` for all, or ``movie=a,b,user=c``."""
    value = _as_text(value)
    if isinstance(value, str) and "=" in value.split(",")[0]:
        lists: dict[str, list[str]] = {}
        for token in value.split(","):
            name, is_type, column = token.rpartition("=")
            lists.setdefault(name if is_type else list(lists)[-1], []).append(column)
        value = lists
    return _per_type(_texts)(value, what)


# fmt: off
@dataclass(frozen=True)
class ImportOptions:
    """Options of an import that concern its dataset. `parse` builds it from loose values."""

    spec: str | None = option(
        None, "Published dataset, by name or TOML file: its files are checked first, and its options "
        "are the defaults (see tiering datasets).", "NAME|FILE.toml", parse=_text)
    num_nodes: PerType[int] = option(
        _NO_VALUE, "Number of nodes (per type).", "N|TYPE=N,..", panel=_SHAPE, cli=str | None,
        parse=_per_type(node_count))
    feature_dim: PerType[int] = option(
        _NO_VALUE, "Values per row of a headerless feature file.", "D|TYPE=D,..", panel=_SHAPE, cli=str | None,
        parse=_per_type(lambda value, what: _count(value, what, 1)))
    feature_dtype: PerType[str] = option(
        _NO_VALUE, "Dtype of a headerless feature file: float32, float16 or bfloat16.", "NAME|TYPE=NAME,..",
        panel=_SHAPE, cli=str | None, parse=_per_type(choice(*FEATURE_DTYPES)))
    label: PerType[str] = option(
        _NO_VALUE, "IGB's label file, or the column of labels in tables of nodes.", "19|2K|[TYPE=]COLUMN",
        panel=_SHAPE, cli=str | None, parse=_per_type(_text))
    num_labelled: int | None = option(
        None, "Number of labels, if only the first N nodes have labels.", "N", panel=_SHAPE, parse=_count,
        flags=("--num-labelled", "--num-labeled"))
    mean_features: PerType[str] = option(
        _NO_VALUE, "Features of a type: the mean of its neighbors' features along a relation; in this order.",
        "TYPE=RELATION,..", panel=_SHAPE, cli=str | None, parse=_per_type(_text))
    relations: tuple[str, ...] = option(
        (), "Import only these relations (directory names, or source, name and destination).", "SRC:NAME:DST,..",
        panel=_SHAPE, cli=str | None,
        parse=_texts)
    split: str | tuple[float, float, float] | None = option(
        None, "Create splits of these fractions of the labeled nodes, or by a rule.", "A,B,C|igb|mlperf|official",
        panel=_SHAPE, cli=str | None, parse=_split)
    split_seed: int = option(0, "Seed of --split.", "N", panel=_SHAPE, parse=_count)
    random_features: PerType[int] = option(
        _NO_VALUE, "Create D random features per node, where there are none.", "D|TYPE=D,..", panel=_RANDOM,
        cli=str | None, parse=_per_type(lambda value, what: _count(value, what, 1)))
    random_labels: PerType[int] = option(
        _NO_VALUE, "Create random labels of K classes.", "K|TYPE=K,..", panel=_RANDOM, cli=str | None,
        parse=_per_type(lambda value, what: _count(value, what, 1)))
    random_train: PerType[float] = option(
        _NO_VALUE, "Create a random train split of this percentage of the nodes.", "1%|TYPE=1%,..", panel=_RANDOM,
        cli=str | None, parse=_per_type(_percent))
    seed: int = option(0, "Seed of random features, labels and splits.", "N", panel=_RANDOM, parse=_count)
    src_column: str | None = option(None, "Column of the edges' sources.", "NAME|INDEX", panel=_TABLE, parse=_text)
    dst_column: str | None = option(None, "Column of the edges' destinations.", "NAME|INDEX", panel=_TABLE, parse=_text)
    weight_column: str | None = option(None, "Column of edge weights.", "NAME|INDEX", panel=_TABLE, parse=_text)
    delimiter: str | None = option(
        None, "Delimiter of text. Default: detected.", "CHAR", panel=_TABLE, parse=_character("tab", "space"))
    header: bool | None = option(
        None, "Text has a header line, or has none. Default: detected.", panel=_TABLE, flags=("--header/--no-header",))
    string_ids: bool = option(False, "Read ids in text as names.", panel=_TABLE)
    quoted_newlines: bool = option(False, "Allow line breaks in quoted text.", panel=_TABLE)
    comment: str | None = option(
        None, "Character that begins a comment on any line. Default: # and % before the first edge.", "CHAR|none",
        panel=_TABLE, parse=_character(NO_COMMENT))
    compact_ids: bool = option(False, "Renumber ids (any whole numbers) 0, 1, 2... in ascending order.", panel=_TABLE)
    first_id: int = option(0, "Id of the first node, if ids do not begin at 0.", "N", panel=_TABLE, parse=_count)
    relation: tuple[TableSpec, ...] = option(
        (), "Table of edges between two types; repeatable. Id columns may follow the file: FILE:SRC,DST.",
        "SRC:NAME:DST=FILE,..", panel=_TYPED, cli=list[str] | None, parse=parse_tables)
    nodes: tuple[TableSpec, ...] = option(
        (), "Table of the nodes of a type, in the order of their ids; repeatable. An id column may follow: FILE:ID.",
        "TYPE=FILE,..", panel=_TYPED, cli=list[str] | None, parse=parse_tables)
    id_column: PerType[str] = option(
        _NO_VALUE, "Column of the ids of nodes.", "[TYPE=]NAME|INDEX", panel=_TYPED, cli=str | None,
        flags=("--id", "--id-column"), parse=_per_type(_text))
    features: PerType[tuple[str, ...]] = option(
        _NO_VALUE, "Columns of the features of nodes, as float32.", "[TYPE=]NAME,NAME,..", panel=_TYPED,
        cli=str | None, parse=_texts_by_type)
    split_column: PerType[str] = option(
        _NO_VALUE, "Column of the splits of nodes: train, val (or valid, validation), test, or nothing.",
        "[TYPE=]NAME|INDEX", panel=_TYPED, cli=str | None, parse=_per_type(_text))
    type_column: str | None = option(
        None, "Column of edge types; each of its values becomes a relation.", "NAME|INDEX", panel=_TYPED, parse=_text)
    edge_data: tuple[str, ...] = option(
        (), "Columns of numbers or times (as seconds since 1970) that are kept as edge data.", "NAME,NAME,..",
        panel=_TYPED, cli=str | None, parse=_texts)
    time: str | None = option(
        None, "Times of edges or nodes: a column, or an array (edge_NAME.npy, node_NAME.npy).", "NAME",
        panel=_TYPED, parse=_text)
    time_sorted: bool = option(
        False, "Each node's in-edges are in order of time already; the import checks this.", panel=_TYPED)
    unknown_ids: str = option(
        "error", "Refuse edges whose node is missing in its table, or add the node with features 0.", "error|add",
        panel=_TYPED, parse=choice("error", "add"))
    no_label: tuple[str, ...] = option(
        (), "Values in the label column that mean no label.", "VALUE,..", panel=_TYPED, cli=str | None,
        parse=_texts)
    self_loops: str = option(
        "keep", "Keep self loops, remove them, or add one where a node has none.", "keep|remove|add", panel=_CHANGE,
        parse=choice("keep", "remove", "add"))
    reverse_edges: bool = option(
        False, "Add the reverse of each edge; between two types, as relation rev_NAME.", panel=_CHANGE,
        flags=("--reverse-edges", "--add-reverse"))
    deduplicate: bool = option(False, "Remove duplicate edges; keep the first.", panel=_CHANGE)
    cache: str | os.PathLike[str] | None = option(
        None, "Directory of copies of remote files that cannot be read in place; later imports use them again.", "DIR",
        panel=_REMOTE, cli=str | None)
    cache_size: int | None = option(
        None, "Maximum size of --cache; the least recently used copies are removed.", "SIZE", panel=_REMOTE,
        cli=str | None, parse=parse_bytes)
    work_dir: str | os.PathLike[str] | None = None  # directory of temporary files

    @property
    def changes_edges(self) -> bool:
        """Whether edges are added or removed."""
        return self.self_loops != "keep" or self.reverse_edges or self.deduplicate

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> ImportOptions:
        """Check loose options (from Python or a command line) and convert them; ``None`` is the default of each."""
        raw = {_canonical_name(name, value): value for name, value in raw.items()}
        for name in raw:
            if name not in OPTIONS:
                raise InputError(f"option {name}: unknown; the import's options are {', '.join(OPTIONS)}")
        values = {name: value for name, value in raw.items() if value is not None}
        folder = {"work_dir": values.pop("work_dir")} if "work_dir" in values else {}
        return cls(**folder, **parse_options(cls, values, spell_flag))


# fmt: on
class ImportKeywords(TypedDict, total=False):
    """Fields of `ImportOptions` as users give them, for editors; ``None`` is the default of each."""

    spec: str | None
    num_nodes: int | str | Mapping[str, int] | None
    feature_dim: int | str | Mapping[str, int] | None
    feature_dtype: str | Mapping[str, str] | None
    label: str | Mapping[str, str] | None
    num_labelled: int | None
    mean_features: str | Mapping[str, str] | None
    relations: str | Sequence[str] | Mapping[str | tuple[str, str, str], Any] | None
    split: str | tuple[float, float, float] | None
    split_seed: int | None
    random_features: int | str | Mapping[str, int] | None
    random_labels: int | str | Mapping[str, int] | None
    random_train: str | Mapping[str, str] | None
    seed: int
    src_column: str | int | None
    dst_column: str | int | None
    weight_column: str | int | None
    delimiter: str | None
    header: bool | None
    string_ids: bool
    quoted_newlines: bool
    comment: str | None
    compact_ids: bool
    first_id: int
    relation: str | Sequence[str] | Mapping[str | tuple[str, str, str], Any] | None
    nodes: str | Sequence[str] | Mapping[str, Any] | None
    id_column: str | Mapping[str, str] | None
    features: str | Sequence[str] | Mapping[str, Sequence[str]] | None
    split_column: str | Mapping[str, str] | None
    type_column: str | int | None
    edge_data: str | Sequence[str] | None
    time: str | None
    time_sorted: bool
    unknown_ids: str | None
    no_label: str | Sequence[str] | None
    self_loops: str | None
    reverse_edges: bool
    deduplicate: bool
    cache: str | os.PathLike[str] | None
    cache_size: int | str | None
    work_dir: str | os.PathLike[str] | None
    checksum_features: bool  # read feature files whole, and record checksums: an option of the import itself


OPTIONS = {entry.name: entry.default for entry in fields(ImportOptions)}  # option -> its default


def given_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the loose options that differ from their defaults, JSON-ready, for the record."""
    return {
        _canonical_name(name, value): value if isinstance(value, (bool, int, float, str)) else _plain(value)
        for name, value in options.items()
        if value is not None and name not in _PLACES and value != OPTIONS.get(name)
    }


def _canonical_name(name: str, value: Any) -> str:
    """Return the name of an option: relations with tables are ``relation``; the American spelling is accepted."""
    if name == "num_labeled":
        return "num_labelled"
    return "relation" if name == "relations" and isinstance(value, Mapping | ArrowStream) else name


def _plain(value: Any) -> Any:
    """Return a value of lists, and mappings whose keys are text: keys of relations with colons."""
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else ":".join(key): _plain(one) for key, one in value.items()}
    if isinstance(value, ArrowStream):
        return name_type(value)
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else value
