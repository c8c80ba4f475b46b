"""Whether a document fits a schema of the manifests: a yes without jsonschema, whose loading outlasts a short command.

Schemas have their references replaced (`tiering.artifacts.document`). Keywords that are not in the table never fit, so
that a schema that uses new ones is left to jsonschema, which also words what is wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

_TYPES: dict[str, Any] = {
    "object": dict, "array": list, "string": str, "null": type(None), "boolean": bool, "integer": int,
    "number": (int, float),
}  # fmt: skip


def fits(value: Any, rules: Any) -> bool:
    """Return whether a value of JSON fits a schema."""
    if isinstance(rules, bool):
        return rules
    return all(keyword in _TABLE and _TABLE[keyword](value, rule, rules) for keyword, rule in rules.items())


def _is(value: Any, name: str) -> bool:
    return isinstance(value, _TYPES[name]) and (name == "boolean" or not isinstance(value, bool))


def _same(value: Any, other: Any) -> bool:
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def _of(name: str, check: Callable[[Any, Any, Any], bool]) -> Callable[[Any, Any, Any], bool]:
    """Return a check of values of one type; others fit."""
    return lambda value, rule, rules: not _is(value, name) or check(value, rule, rules)


def _others(value: dict[str, Any], rule: Any, rules: Any) -> bool:
    known = rules.get("properties", {})
    return all(fits(member, rule) for name, member in value.items() if name not in known)


_TABLE: dict[str, Callable[[Any, Any, Any], bool]] = {
    **dict.fromkeys(("$schema", "$id", "$defs", "title", "description", "then", "else"), lambda v, rule, rules: True),
    "type": lambda v, rule, _: any(_is(v, name) for name in ([rule] if isinstance(rule, str) else rule)),
    "const": lambda v, rule, _: _same(v, rule),
    "enum": lambda v, rule, _: any(_same(v, other) for other in rule),
    "allOf": lambda v, rule, _: all(fits(v, part) for part in rule),
    "anyOf": lambda v, rule, _: any(fits(v, part) for part in rule),
    "oneOf": lambda v, rule, _: sum(fits(v, part) for part in rule) == 1,
    "not": lambda v, rule, _: not fits(v, rule),
    "if": lambda v, rule, rules: fits(v, rules.get("then" if fits(v, rule) else "else", True)),
    "minimum": _of("number", lambda v, rule, _: v >= rule),
    "maximum": _of("number", lambda v, rule, _: v <= rule),
    "minLength": _of("string", lambda v, rule, _: len(v) >= rule),
    "pattern": _of("string", lambda v, rule, _: re.search(rule, v) is not None),
    "items": _of("array", lambda v, rule, _: all(fits(item, rule) for item in v)),
    "contains": _of("array", lambda v, rule, _: any(fits(item, rule) for item in v)),
    "minItems": _of("array", lambda v, rule, _: len(v) >= rule),
    "maxItems": _of("array", lambda v, rule, _: len(v) <= rule),
    "uniqueItems": _of("array", lambda v, _, __: len({json.dumps(x, sort_keys=True) for x in v}) == len(v)),
    "properties": _of("object", lambda v, rule, _: all(fits(v[name], rule[name]) for name in rule if name in v)),
    "additionalProperties": _of("object", _others),
    "propertyNames": _of("object", lambda v, rule, _: all(fits(name, rule) for name in v)),
    "required": _of("object", lambda v, rule, _: all(name in v for name in rule)),
    "dependentRequired": _of("object", lambda v, rule, _: all(o in v for n in rule if n in v for o in rule[n])),
    "minProperties": _of("object", lambda v, rule, _: len(v) >= rule),
}
