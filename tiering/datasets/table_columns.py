"""The columns of a table of edges: which hold sources, destinations and weights."""

from __future__ import annotations

from collections.abc import Sequence

from tiering.datasets.options import ImportOptions
from tiering.errors import InputError

_END_NAMES = (
    ("src", "dst"),
    ("source", "target"),
    ("source", "destination"),
    ("from", "to"),
    ("head", "tail"),
    ("u", "v"),
)


def choose_columns(columns: Sequence[str], options: ImportOptions, where: str) -> dict[str, int]:
    """Return positions of the columns ``src``, ``dst`` and, if asked for or a column has that name, ``weight``.

    Columns without names go by "0", "1"...
    """
    if len(columns) < 2:
        raise InputError(f"{where}: expected two or more columns (source, destination), found {len(columns)}")
    names = [name.strip().lower() for name in columns]
    wanted = {"src": options.src_column, "dst": options.dst_column, "weight": options.weight_column}
    chosen = {"src": 0, "dst": 1}
    pair = find_end_names(names)
    if pair is not None and (wanted["src"] is None or wanted["dst"] is None):
        chosen = {end: _find_once(name, names, where) for end, name in zip(chosen, pair, strict=True)}
    if "weight" in names and wanted["weight"] is None:
        chosen["weight"] = _find_once("weight", names, where)
    chosen |= {end: _find_column(name, columns, end, where) for end, name in wanted.items() if name is not None}
    if chosen["src"] == chosen["dst"]:
        raise InputError(f"{where}: source and destination are the same column {chosen['src']}; name two")
    if chosen.get("weight") in (chosen["src"], chosen["dst"]):
        raise InputError(
            f"{where}: expected ids and weights in columns of their own, found column {chosen['weight']} to be both; "
            "name them with --src-column, --dst-column and --weight-column"
        )
    return chosen


def find_end_names(columns: Sequence[str]) -> tuple[str, str] | None:
    """Return the names of the columns of sources and destinations, if they have usual ones."""
    names = [name.strip().lower() for name in columns]
    return next((pair for pair in _END_NAMES if pair[0] in names and pair[1] in names), None)


def require_once(column: str, columns: Sequence[str], where: str) -> None:
    """Refuse a column whose name others have too."""
    times = list(columns).count(column)
    if times > 1:
        raise InputError(f"{where}: expected one column {column}, found it {times} times; give each its own name")


def _find_column(wanted: str, columns: Sequence[str], end: str, where: str) -> int:
    if wanted in columns:
        return _find_once(wanted, columns, where)
    if wanted.isdecimal() and len(wanted) < 10 and int(wanted) < len(columns):
        return int(wanted)
    known = ", ".join(columns)
    raise InputError(f"{where}: --{end}-column {wanted[:80]}: no such column; there are: {known[:500]}")


def _find_once(name: str, columns: Sequence[str], where: str) -> int:
    require_once(name, columns, where)
    return list(columns).index(name)
