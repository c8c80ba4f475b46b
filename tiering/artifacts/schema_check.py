"""Schemas of ``data_specs/schemas``, and a document's differences from one: a table of the keywords that they use."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache, reduce
from itertools import islice
from operator import getitem
from pathlib import Path
from typing import Any, cast

from tiering.errors import MissingError, quoted

_MOST_PROBLEMS = 100  # problems that are listed of one document: a foreign one has as many as it has lines
_MOST_WORDS = 200  # characters of a problem, and of its place
_TYPES: dict[str, Any] = {
    "object": dict, "array": list, "string": str, "null": type(None), "boolean": bool, "integer": int,
    "number": (int, float),
}  # fmt: skip
_CHECKS: dict[str, tuple[str, str, Callable[[Any, Any, Callable[[Any, Any], bool]], bool]]] = {
    "type": ("", "is not of type", lambda v, r, _: any(_is(v, t) for t in ([r] if isinstance(r, str) else r))),
    "const": ("", "is not", lambda v, rule, _: _same(v, rule)),
    "enum": ("", "is not one of", lambda v, rule, _: any(_same(v, other) for other in rule)),
    "anyOf": ("", "matches none of", lambda v, rule, fits: any(fits(v, part) for part in rule)),
    "oneOf": ("", "does not match exactly one of", lambda v, rule, fits: sum(fits(v, part) for part in rule) == 1),
    "not": ("", "matches", lambda v, rule, fits: not fits(v, rule)),
    "minimum": ("number", "is less than", lambda v, rule, _: v >= rule),
    "maximum": ("number", "is more than", lambda v, rule, _: v <= rule),
    "minLength": ("string", "is shorter than", lambda v, rule, _: len(v) >= rule),
    "pattern": ("string", "does not match", lambda v, rule, _: re.search(rule, v) is not None),
    "contains": ("array", "has no item that matches", lambda v, rule, fits: any(fits(item, rule) for item in v)),
    "minItems": ("array", "is shorter than", lambda v, rule, _: len(v) >= rule),
    "maxItems": ("array", "is longer than", lambda v, rule, _: len(v) <= rule),
    "uniqueItems": ("array", "has equal items:", lambda v, *_: len(set(map(json.dumps, v))) == len(v)),
    "minProperties": ("object", "is shorter than", lambda v, rule, _: len(v) >= rule),
}
"""By keyword: the type of the values that it is for, the words of a problem, and whether a value fits its rule."""


def schema_problems(document: Any, name: str) -> list[tuple[str, str]]:
    """Return the first problems of a document by the schema of that name: where, and what."""
    problems = islice(_problems(document, schema(name), name, ""), _MOST_PROBLEMS)
    return [(shorten(where.removeprefix(".")) or "document", shorten(text)) for where, text in problems]


@lru_cache
def schema(name: str) -> dict[str, Any]:
    """Return the JSON schema of that name, from the package or, in a source tree, from ``data_specs``."""
    package, file = Path(__file__).resolve().parent.parent, f"{name}.schema.json"
    for path in (package / "schemas" / file, package.parent / "data_specs" / "schemas" / file):
        if path.is_file():
            return cast("dict[str, Any]", json.loads(path.read_text()))
    raise MissingError(f"{file}: not found in the package's directory; reinstall tiering")


def shorten(text: str) -> str:
    """Return a text, cut if it is long."""
    return text if len(text) <= _MOST_WORDS else f"{text[:_MOST_WORDS]}..."


def _problems(value: Any, rules: Any, name: str, where: str) -> Iterator[tuple[str, str]]:
    def fits(part: Any, rule: Any) -> bool:
        return next(_problems(part, rule, name, ""), None) is None

    if rules is False:
        yield where, "is an unknown key"
    for keyword, rule in rules.items() if isinstance(rules, dict) else ():
        if keyword == "$ref":
            file, _, path = rule.partition("#/")
            owner = file.removesuffix(".schema.json") or name
            yield from _problems(value, reduce(getitem, path.split("/"), schema(owner)), owner, where)
        elif keyword == "if":
            yield from _problems(value, rules.get("then" if fits(value, rule) else "else", True), name, where)
        elif keyword == "required" and isinstance(value, dict):
            yield from ((where, f"{member!r} is missing") for member in rule if member not in value)
        elif keyword == "dependentRequired" and isinstance(value, dict):
            missing = ((one, member) for one in rule if one in value for member in rule[one] if member not in value)
            yield from ((where, f"{member!r} is missing, which {one!r} needs") for one, member in missing)
        elif keyword in _CHECKS:
            kind, words, check = _CHECKS[keyword]
            if (not kind or _is(value, kind)) and not check(value, rule, fits):
                yield where, f"{quoted(value)} {words} {rule!r}"
        else:
            for place, part, inner in _parts(value, keyword, rule, rules):
                yield from _problems(part, inner, name, where + place)


def _parts(value: Any, keyword: str, rule: Any, rules: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield parts of a value to which a keyword applies rules: their place in it, themselves, the rules."""
    if keyword == "allOf":
        yield from (("", value, part) for part in rule)
    elif keyword == "items" and isinstance(value, list):
        yield from ((f".{number}", item, rule) for number, item in enumerate(value))
    elif keyword == "propertyNames" and isinstance(value, dict):
        yield from ((f".{name}", name, rule) for name in value)
    elif keyword in ("properties", "additionalProperties") and isinstance(value, dict):
        others = {name: rule for name in value if name not in rules.get("properties", {})}
        chosen = rule if keyword == "properties" else others
        yield from ((f".{name}", value[name], inner) for name, inner in chosen.items() if name in value)


def _is(value: Any, name: str) -> bool:
    return isinstance(value, _TYPES[name]) and (name == "boolean" or not isinstance(value, bool))


def _same(value: Any, other: Any) -> bool:
    return value == other and isinstance(value, bool) == isinstance(other, bool)
