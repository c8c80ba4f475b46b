"""How neighbours are drawn, in the words of PyG and DGL."""

from __future__ import annotations

from typing import Any

from tiering.errors import InputError


def chosen_sampler(options: dict[str, Any], replace: bool, weight: str | None, weight_option: str) -> str:
    """Name of the sampler: what is asked for by `replace` and by a weight, or by ``sampler``, which is taken out of
    `options`. Fanouts and frontier have words of their own: `TypeError` if they are among them.
    """
    if taken := [name for name in ("fanouts", "frontier") if name in options]:
        raise TypeError(f"unexpected keyword argument {taken[0]!r}: it follows from the library that batches are for")
    if weight not in (None, "weight"):
        raise InputError(f"{weight_option}: neighbours are drawn by the edge data 'weight', found {weight!r}")
    asked = {"replace": replace, weight_option: weight, "sampler": options.get("sampler")}
    if len(both := [name for name, value in asked.items() if value]) > 1:
        raise InputError(f"{', '.join(both)}: each chooses how neighbours are drawn; leave one out")
    return str(options.pop("sampler", None) or ("weighted" if weight else "replacement" if replace else "uniform"))
