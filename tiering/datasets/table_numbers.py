"""Ids of the nodes of a type from the ranks of its names: in the order of its table, or ascending."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from tiering.datasets.import_context import ImportContext
from tiering.datasets.name_ids import decode_numbers
from tiering.datasets.scratch import chunks
from tiering.errors import InputError
from tiering.formats.names import NameTable
from tiering.progress import note

Ids = npt.NDArray[np.int64]


@dataclass
class Numbering:
    """The nodes of a type: how many, the rank of each id in its columns, the id of each rank."""

    node_type: str
    where: str  # the table of nodes, or where else the number of nodes comes from
    ranks: Mapping[str, Ids]  # by column of ids: positions among `known`
    known: NameTable  # ids of the source, ascending
    is_text: bool
    count: int = 0
    ids: Ids | None = None  # of each rank, -1 for none; ``None``: the rank itself
    names: NameTable | None = None
    extra: dict[str, Ids] = field(default_factory=dict)

    def find_ids(self, column: str, where: str, context: ImportContext) -> Ids:
        """Return the ids of a column of edges; `InputError` on unknown ones, or -1 if option ``unknown_ids`` drops."""
        ranks = self.ranks[column]
        if self.ids is None:
            return ranks
        ids = _gather(self.ids, ranks, context)
        unknown = [int(np.count_nonzero(ids[part] < 0)) for part in chunks(ids.size)]
        if any(unknown) and context.options.unknown_ids == "error":
            row = next(part.start + int(np.argmax(ids[part] < 0)) for part in chunks(ids.size) if (ids[part] < 0).any())
            raise InputError(
                f"{where}: expected ids of {self.node_type} that {self.where} has, found {sum(unknown)} of {ids.size} "
                f"edges without, the first {self.spell(int(ranks[row]))} at row {row}; correct a file, or "
                "say --unknown-ids add or drop"
            )
        return ids

    def spell(self, rank: int) -> str:
        """Return an id of the source, for messages."""
        name = self.known.encoded(rank)
        if self.is_text:
            return repr(name.decode())
        return str(decode_numbers(NameTable(np.array([0, 8]), np.frombuffer(name, np.uint8)))[0])


def number_nodes(numbering: Numbering, column: str | None, context: ImportContext) -> None:
    """Set ids, names and extra arrays of the nodes of a type; `column`: of the ids in its table, if it has one."""
    known, asked = numbering.known, context.options.num_nodes.get(numbering.node_type)
    numbering.count = len(known)
    order = None if column is None else _order_by_table(numbering, numbering.ranks[column], context)
    if numbering.is_text:
        numbering.names = known if order is None else _names_by_table(numbering, order)
        return
    values = decode_numbers(known)
    if (
        asked is None
        and context.options.is_untyped
        and values.size
        and values[0] >= 0
        and values[-1] < 16 * values.size
    ):
        asked = int(values[-1]) + 1  # ids of one plain table stay as they are
    if order is None and asked is not None:
        for value in [values[-1], values[0]] if values.size else []:
            if not 0 <= value < asked:
                problem = f"--num-nodes says {asked}, ids 0..{asked - 1}, but id {value} occurs"
                raise InputError(f"{numbering.where}: {problem}; correct it, or leave it out")
        numbering.ids, numbering.count = values, asked
        return
    values = values if order is None else _gather(values, order, context)
    if any((values[part] != np.arange(part.start, part.stop)).any() for part in chunks(values.size)):
        numbering.extra = {"original_id": values}
        how = "in ascending order" if order is None else "in the order of their table"
        note(f"note: ids of {numbering.node_type} are numbered {how}; original_id holds those of the source")


def _order_by_table(numbering: Numbering, ranks: Ids, context: ImportContext) -> Ids:
    """Set the ids of ranks by the rows of the table; return the rank of each id."""
    size = len(numbering.known)
    numbering.ids = ids = context.scratch.array(size, np.int64)
    ids[:] = -1
    for part in chunks(ranks.size):
        ids[ranks[part]] = np.arange(part.start, part.stop)
    for part in chunks(ranks.size):
        if (twice := ids[ranks[part]] != np.arange(part.start, part.stop)).any():
            row = part.start + int(np.argmax(twice))
            problem = f"expected each id once, found {numbering.spell(int(ranks[row]))} at row {row} and again later"
            raise InputError(f"{numbering.where}: {problem}; remove one of the rows")
    numbering.count = ranks.size
    added = size - ranks.size
    if not added or context.options.unknown_ids != "add":
        return ranks
    note(f"note: {numbering.where}: {added} nodes of {numbering.node_type} were added, which edges alone name")
    order = context.scratch.array(size, np.int64)
    order[: ranks.size] = ranks
    for part in chunks(size):
        wanted = part.start + np.flatnonzero(ids[part] < 0)
        order[numbering.count : numbering.count + wanted.size] = wanted
        ids[wanted] = np.arange(numbering.count, numbering.count + wanted.size)
        numbering.count += wanted.size
    return order


def _names_by_table(numbering: Numbering, order: Ids) -> NameTable:
    """Return the names of the nodes, of which `order` are the ranks, without the others."""
    known, ids = numbering.known, numbering.ids
    assert ids is not None
    if numbering.count < len(known):
        keep = ids >= 0
        lengths = np.diff(known.offsets)
        data = np.concatenate(
            [known.data[known.offsets[p.start] : known.offsets[p.stop]][np.repeat(keep[p], lengths[p])]
             for p in chunks(keep.size)]
        )  # fmt: skip
        known = NameTable(np.concatenate([[0], np.cumsum(lengths[keep])]), data)
        ids, order = ids[keep], (np.cumsum(keep) - 1)[order]
    if all((ids[part] == np.arange(part.start, part.stop)).all() for part in chunks(ids.size)):
        return known
    return replace(known, ids=ids, ranks=order)


def _gather(values: Ids, positions: Ids, context: ImportContext) -> Ids:
    out = context.scratch.array(positions.size, np.int64)
    for part in chunks(positions.size):
        out[part] = values[positions[part]]
    return out
