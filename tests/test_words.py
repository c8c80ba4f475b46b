"""The vocabulary of code, docstrings and messages: words in private meanings that are gone stay away."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDERS = ("tiering", "cli", "benchmarks")
BEGINNINGS = re.compile(r"(Of|That|What|Who|Whose|Whether it|How much of|Those|It)\b")
"""A docstring begins with what the thing is ("Bytes read ...") or does ("Return ...") instead."""
PHRASES = re.compile(r"\b(hands? on|handed on|at the (most|least)|beside|elsewhere|who leads|in hand)\b", re.IGNORECASE)
NAMES = re.compile(
    r"""_*(
    Answer|Choice|Counted|Dealing|Exchange|Finding|Fit|Forecast|Foresight|Given|Grain|InHand|Included|Judge|JudgedEpochs|Left|Need
    |NodeStore|OwnArray|Questions?|Reading|ResidentRows|Room|SampledAhead|Sign|StagePlan|StageTasks|Tally|TensorInHand
    |TrainingReserve|(Relation|Reorder|Score)Maker
    |answer|beside|by_hop|contribute|deal_rows|dealing|elsewhere|even_bounds|foresee|foreseen|foresight|give_up|given
    |hand_on|handed|held_memory|in_hand|is_held|is_there|joined|made_rows|marks|opened|own_arrays|prefix_benefit|promoted
    |predict_\w+|promotion|ranked_together|shown|sized|sufficient|summed|swept|taken|told|touch_arena|victims|weigh|weighed_bounds
    )_*""",
    re.VERBOSE,
)
"""None of these is a class, function, parameter, annotated field or module."""


KINDS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.If, ast.arg, ast.AnnAssign, ast.Constant)


@pytest.fixture(scope="module")
def nodes(repository: Path) -> list[tuple[str, ast.AST]]:
    """Return what has a name, a body or a text in the source's syntax trees, with its file."""
    paths = [path for folder in FOLDERS for path in sorted((repository / folder).rglob("*.py"))]
    trees = [(str(path.relative_to(repository)), ast.parse(path.read_text())) for path in paths]
    return [(path, node) for path, tree in trees for node in ast.walk(tree) if isinstance(node, KINDS)]


def texts_of(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and text of the docstrings in a body: of the thing itself, and of attributes."""
    body = getattr(node, "body", None)
    for part in body if isinstance(body, list) else []:
        if isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant) and isinstance(part.value.value, str):
            yield part.lineno, part.value.value.strip()


def name_of(node: ast.AST) -> str:
    """Return the name that a node defines; "" if it defines none."""
    target = node.target if isinstance(node, ast.AnnAssign) else node
    return next((getattr(target, key) for key in ("name", "arg", "id") if isinstance(getattr(target, key, 0), str)), "")


def test_docstrings_begin_with_what_the_thing_is_or_does(nodes: list[tuple[str, ast.AST]]) -> None:
    texts = [(path, line, text) for path, node in nodes for line, text in texts_of(node)]
    assert len(texts) > 1000
    assert [f"{path}:{line}: {text[:60]}" for path, line, text in texts if BEGINNINGS.match(text)] == []


def test_messages_have_no_phrases_that_are_gone(nodes: list[tuple[str, ast.AST]]) -> None:
    texts = [(path, node.lineno, node.value) for path, node in nodes if isinstance(node, ast.Constant)]
    assert [
        f"{path}:{line}: {phrase.group()}"
        for path, line, text in texts
        if isinstance(text, str)
        for phrase in PHRASES.finditer(re.sub(r"\s+", " ", text))
    ] == []


def test_names_that_are_gone_stay_away(nodes: list[tuple[str, ast.AST]]) -> None:
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.arg, ast.AnnAssign)
    defined = {(path, node.lineno, name_of(node)) for path, node in nodes if isinstance(node, kinds)}
    defined |= {(path, 1, Path(path).stem) for path, _ in nodes}
    assert sorted(f"{path}:{line}: {name}" for path, line, name in defined if NAMES.fullmatch(name)) == []


BRITISH = re.compile(
    r"neighbour|label(led|ling)\b|optimis|quantis|colour|licence|modelled|\bspelt\b|initialis|recognis|behaviour",
    re.IGNORECASE,
)
KEPT = re.compile(r"neighbour_seconds|num[-_](labelled|neighbours)|quantised-rows|--colour|unlabell\?ed")
"""Names on disk, options, pages; the words that tests of unknown options use."""


def test_american_spelling(repository: Path) -> None:
    suffixes = {".py", ".md", ".hpp", ".cpp", ".cu", ".cuh", ".toml", ".yml", ".cmake"}
    folders = ("tiering", "cli", "ext", "benchmarks", "docs", "data_specs", "examples", "tests")
    paths = [path for folder in folders for path in (repository / folder).rglob("*") if "third_party" not in path.parts]
    paths = [p for p in (*paths, *repository.glob("*.md")) if p.suffix in suffixes and p != Path(__file__).resolve()]
    assert len(paths) > 500
    assert [
        f"{path.relative_to(repository)}:{number}: {found.group()}"
        for path in paths
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for found in BRITISH.finditer(KEPT.sub("", line))
    ] == []
