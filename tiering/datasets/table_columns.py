"""Columns of tables by role: those that a table or an option names, else those with usual names."""

from __future__ import annotations

from collections.abc import Sequence

from tiering.datasets.edge_sink import find_end_names
from tiering.datasets.options import ImportOptions, PerType
from tiering.datasets.table_files import TableFile
from tiering.datasets.table_specs import ROW, TableSpec, neo4j_columns, strip_type, usual_columns
from tiering.errors import InputError
from tiering.options import spell_flag

_OPTIONS = {  # role of a column -> option that names it, for every table that has it
    "src": "src_column", "dst": "dst_column", "weight": "weight_column", "type": "type_column", "data": "edge_data",
    "id": "id_column", "features": "features", "label": "label",
}  # fmt: skip
_IDS = {"src": "sources", "dst": "destinations", "id": "ids"}


class ColumnChooser:
    """A chooser of the columns of all tables of an import, which refuses options that name a column of none."""

    def __init__(self, options: ImportOptions) -> None:
        self._options = options
        self._listed: list[str] = []  # the columns of each file
        self._seen: set[tuple[str, str]] = set()  # roles and columns of options that a table has

    def _named(self, role: str, spec: TableSpec) -> tuple[str, ...]:
        value = spec.columns.get(role)
        value = getattr(self._options, _OPTIONS[role]) if value is None else value
        return _as_tuple(value.get(spec.described) if isinstance(value, PerType) else value)

    def is_header(self, fields: Sequence[str], spec: TableSpec) -> bool:
        """Return whether a first line of text names columns that are wanted, or usual for ids."""
        wanted = {name for role in spec.roles for name in self._named(role, spec) if not name.isdecimal()}
        usual = any(_find_usual(role, spec, fields) for role in _IDS.keys() & set(spec.roles))
        return usual or any(strip_type(field) in wanted or field in wanted for field in fields)

    def choose(self, spec: TableSpec, file: TableFile) -> dict[str, list[str]]:
        """Return the columns of a file by role."""
        by_place = {str(k): name for k, name in enumerate(file.names)}
        known = by_place | {strip_type(name): name for name in file.names} | {name: name for name in [*file.names, ROW]}
        listed, chosen = ", ".join(file.names)[:500], {}
        self._listed.append(f"{file.path} ({spec.described}) has {listed}")
        for role in spec.roles:
            columns = self._named(role, spec)
            chosen[role] = [known[column] for column in columns if column in known]
            for column in columns:
                if role not in spec.columns:
                    self._seen.update([(role, column)] if column in known else [])
                elif column not in known:
                    raise InputError(f"{file.path}: {column}: no such column; there are: {listed}")
            chosen[role] = chosen[role] or _find_usual(role, spec, file.names)
        used = {name for names in chosen.values() for name in names}
        free = [name for name in file.names if name not in used]
        placed = len(file.names) == 2 if file.header else len(free) == 2
        if placed and "src" in chosen and not (chosen["src"] or chosen["dst"]):
            certain = file.is_sure or any(name in by_place for name in used)
            chosen |= {"src": free[:1], "dst": free[1:]} if certain else {}
        for role in [role for role in _IDS if role in chosen]:
            if len(chosen[role]) != 1:
                form = "TYPE=FILE:ID" if role == "id" else "SRC:NAME:DST=FILE:SRC,DST"
                header = "" if file.header else " (a header? then say --header, else --no-header)"
                raise InputError(
                    f"{file.path}: expected a column of {_IDS[role]} of {spec.described}, found "
                    f"{', '.join(file.first)[:500]}{header}; name it with {spell_flag(_OPTIONS[role])}, or as {form}"
                )
        return chosen

    def refuse_unseen(self) -> None:
        """Refuse options that name a column which no table has."""
        for role, option in _OPTIONS.items():
            value = getattr(self._options, option)
            values = (value.default, *value.by_type.values()) if isinstance(value, PerType) else (value,)
            for column in [column for one in values for column in _as_tuple(one)]:
                if (role, column) not in self._seen:
                    problem = f"no table has this column; {'; '.join(self._listed)[:1000]}"
                    raise InputError(f"{spell_flag(option)} {column}: {problem}; correct it, or name its table")


def _as_tuple(value: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value or ()


def _find_usual(role: str, spec: TableSpec, names: Sequence[str]) -> list[str]:
    """Return the columns that a role may have by their names: one, unless it would be a guess."""
    if role == "weight":
        return [name for name in names if name.lower() == role][:1]
    if role not in _IDS:
        return []
    if role in (header := neo4j_columns(names)):
        return [header[role][0]]
    owner = spec.owner
    if isinstance(owner, str):
        return [name for name in names if name.lower() == "id"] or usual_columns(names, owner)
    place, pair = ("src", "dst").index(role), find_end_names(names)
    if pair is not None:
        return [name for name in names if name.lower() == pair[place].lower()]
    return usual_columns(names, owner[2 * place]) if owner[0] != owner[2] else []
