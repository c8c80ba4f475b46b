"""Fanouts as users give them, resolved to numbers per hop and relation."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from tiering.artifacts.manifest import named_relations
from tiering.errors import InputError, quoted
from tiering.sampling.graph import Relation
from tiering.sampling.options import Fanout


def resolve_fanouts(relations: Sequence[Relation], fanouts: Sequence[Fanout]) -> list[list[int]]:
    """Return fanouts as hop x relation, checked: numbers in range, mappings that name every relation and no other."""
    if isinstance(fanouts, (str, bytes)) or not isinstance(fanouts, Sequence) or not fanouts:
        raise InputError(f"fanouts: expected one entry per hop such as [10, 10, 10], found {fanouts!r}")
    return [_hop_fanouts(relations, fanout, f"fanouts of hop {hop}") for hop, fanout in enumerate(fanouts)]


def _hop_fanouts(relations: Sequence[Relation], fanout: Fanout, what: str) -> list[int]:
    if not isinstance(fanout, Mapping):
        return [_fanout(fanout, what, lowest=1)] * len(relations)
    numbers: dict[Relation, int] = {}
    for key, value in fanout.items():
        relation = match_relation(relations, key, what)
        if relation in numbers:
            raise InputError(f"{what}: relation {':'.join(relation)} comes twice")
        numbers[relation] = _fanout(value, f"{what}, relation {key!r}", lowest=0)
    if missing := [":".join(r) for r in relations if r not in numbers]:
        raise InputError(
            f"{what}: expected a number for each of {len(relations)} relations, none for {', '.join(missing)}; "
            "give 0 to skip a relation"
        )
    return [numbers[r] for r in relations]


def match_relation(relations: Sequence[Relation], key: Any, what: str) -> Relation:
    """Return the relation that `key` names, as of `tiering.artifacts.manifest.named_relations`; `what` holds it."""
    named = named_relations(relations, key)
    if len(named) != 1:
        known = ", ".join(":".join(r) for r in relations)
        raise InputError(f"{what}: no single relation {key!r}; relations: {known}")
    return named[0]


def _fanout(value: Any, what: str, lowest: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise InputError(f"{what}: expected a whole number, found {value!r}") from None
    if number != -1 and not lowest <= number < 2**31:
        raise InputError(
            f"{what}: expected {lowest} or more, or -1 for all neighbours, and below 2^31, found {quoted(number)}"
        )
    return number
