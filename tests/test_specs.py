"""Spec, schema, example and code say the same: examples open, regenerate byte for byte, and every damage is named."""

from __future__ import annotations

import copy
import filecmp
import importlib.util
import json
import shutil
from functools import reduce
from operator import getitem
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator, validators
from referencing import Registry
from referencing.jsonschema import DRAFT202012
from sealed import edit_manifest

from tiering.artifacts.document import KINDS, document_problems
from tiering.artifacts.schema_check import _CHECKS, schema, schema_problems
from tiering.errors import FormatError
from tiering.formats.registry import check_artifact, open_artifact

ROOT = Path(__file__).resolve().parent.parent
SPECS = ROOT / "data_specs"
EXAMPLES = sorted(path for path in (SPECS / "examples").iterdir())


def _files(folder: Path) -> list[Path]:
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def _make_examples(folder: Path) -> None:
    spec = importlib.util.spec_from_file_location("make_examples", ROOT / "tests" / "make_examples.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.make_examples(folder)


def test_every_kind_has_page_schema_and_example():
    for kind in KINDS:
        assert (SPECS / f"{kind}.md").is_file()
        Draft202012Validator.check_schema(schema(kind))
        assert (SPECS / "examples" / kind).is_dir()


def test_schemas_in_the_tree_are_those_the_code_applies():
    for kind in KINDS:
        assert schema(kind) == json.loads((SPECS / "schemas" / f"{kind}.schema.json").read_text())


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_examples_are_sound_at_every_level(path):
    assert check_artifact(path, "full") == []
    assert open_artifact(path).summary()["kind"] in KINDS


def test_examples_regenerate_byte_for_byte(tmp_path):
    _make_examples(tmp_path)
    for example in EXAMPLES:
        names = _files(example)
        assert names == _files(tmp_path / example.name)
        same, different, errors = filecmp.cmpfiles(example, tmp_path / example.name, map(str, names), shallow=False)
        assert not different and not errors and len(same) == len(names)


def _paths(document, prefix=()):
    for key, value in document.items():
        yield (*prefix, key)
        if isinstance(value, dict):
            yield from _paths(value, (*prefix, key))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_a_manifest_without_any_one_field_is_refused(path):
    document = json.loads((path / "manifest.json").read_text())
    optional = {("provenance", "options"), ("provenance", "inputs"), ("provenance", "seed")}
    for where in _paths(document):
        if where in optional or (where[0] in {"files", "parts", "external"} and len(where) == 2):
            continue
        if (where[0] == "provenance" and len(where) > 2) or (where[:2] == ("body", "changes") and len(where) > 2):
            continue
        damaged = copy.deepcopy(document)
        owner = damaged
        for key in where[:-1]:
            owner = owner[key]
        del owner[where[-1]]
        keyed = {("body", "node_types"), ("body", "tables"), ("body", "adjacency"), ("body", "edge_tables")}
        # That a codec is missing shows in the bytes of a row: `Layout` refuses it.
        names_only = where[:2] in keyed and (len(where) == 3 or where[3:] == ("codec",))
        problems = document_problems(damaged)
        assert problems or names_only, where


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_every_byte_of_every_file_is_covered_by_a_checksum(path, tmp_path):
    copied = shutil.copytree(path, tmp_path / "a")
    for name in _files(path):
        whole = (path / name).read_bytes()
        if name.name == "manifest.json" or not whole:
            continue
        data = bytearray(whole)
        data[len(data) // 2] ^= 1
        (copied / name).write_bytes(data)
        assert check_artifact(copied, "full"), name
        (copied / name).write_bytes(whole)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
@pytest.mark.parametrize("change", ["truncate", "grow", "remove"])
def test_a_file_of_another_size_is_seen_at_open(path, change, tmp_path):
    copied = shutil.copytree(path, tmp_path / "a")
    for name in _files(path):
        file, whole = copied / name, (path / name).read_bytes()
        if name.name == "manifest.json" or (not whole and change == "truncate"):
            continue
        if change == "remove":
            file.unlink()
        else:
            file.write_bytes(whole[:-1] if change == "truncate" else whole + b"\0")
        problems = check_artifact(copied, "structure")
        assert problems, name
        assert any(str(name.name) in str(problem) for problem in problems)
        file.write_bytes(whole)


def test_a_newer_major_and_an_unknown_feature_are_refused_by_name(tmp_path):
    copied = tmp_path / "scores"
    shutil.copytree(SPECS / "examples" / "scores", copied)
    for change, words in (({"version": "2.0"}, "2.0"), ({"version": "1.2", "requires": ["zstd-rows"]}, "zstd-rows")):
        edit_manifest(copied, lambda document, change=change: document.update(change))
        with pytest.raises(FormatError, match=words):
            open_artifact(copied)


def test_paths_cannot_leave_the_artifact():
    document = json.loads((SPECS / "examples" / "scores" / "manifest.json").read_text())
    entry = document["files"].popitem()[1]
    for name in ("../x", "/etc/passwd", "a/../../x"):
        assert document_problems({**document, "files": {name: entry}})
    for name in ("../x", "a/../../x"):
        bad = {"ssd-0": {"path": name, "bytes": 0, "digest": "xxh3-64-sampled:" + "0" * 16}}
        assert document_problems({**document, "external": bad})


ODD = (None, True, 0, -1, 1, 1.0, 2**70, "", "a:b:c", "no such", [], [1, 1], ["a", "a"], {}, {"a": {}})


def reference_validator(kind):
    """Return jsonschema's validator of a kind; to it 10.0 is a whole number, to Python a float."""
    documents = [json.loads(path.read_text()) for path in sorted((SPECS / "schemas").glob("*.json"))]
    resources = [(one["$id"], DRAFT202012.create_resource(one)) for one in documents if "$id" in one]
    known = Registry().with_resources(resources)
    whole = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
    return validators.extend(Draft202012Validator, type_checker=whole)(schema(kind), registry=known)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_the_check_of_schemas_says_what_jsonschema_says(path):
    """Each member of an example in turn is another value, missing, and beside an unknown one; files follow one rule."""
    document = json.loads((path / "manifest.json").read_text())
    kind = document["format"].removeprefix("tiering.")
    reference, verdicts = reference_validator(kind), set()
    document["files"] = dict(list(document["files"].items())[:2])
    for where in _paths(document):
        for value in (*ODD, KeyError):
            damaged = copy.deepcopy(document)
            parent = reduce(getitem, where[:-1], damaged)
            parent |= {where[-1] if value != "no such" else "unknown": value}
            if value is KeyError:
                del parent[where[-1]]
            verdicts.add(fits := not schema_problems(damaged, kind))
            assert fits == reference.is_valid(damaged), (where, value)
    assert not schema_problems(document, kind) and verdicts == {True, False}


def test_every_keyword_of_the_schemas_is_known():
    silent = {"$schema", "$id", "$defs", "title", "description", "then", "else"}
    parts = {"$ref", "if", "allOf", "items", "propertyNames", "properties", "additionalProperties", "required",
             "dependentRequired"}  # fmt: skip
    names = {"properties", "$defs", "dependentRequired"}

    def keywords(rules):
        for keyword, rule in rules.items() if isinstance(rules, dict) else ():
            inner = rule.values() if keyword in names else rule if isinstance(rule, list) else [rule]
            yield from (keyword, *(word for part in inner for word in keywords(part)))

    for path in (SPECS / "schemas").glob("*.json"):
        assert set(keywords(json.loads(path.read_text()))) <= {*silent, *parts, *names, *_CHECKS}
