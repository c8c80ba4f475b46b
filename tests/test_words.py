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
KEPT = re.compile(
    r"neighbour_seconds|num[-_](labelled|neighbours)|\bneighbours(: InitVar|: bool|=False| is not|\)$)"
    r"|['\"]licence['\"]|quantised-rows|--colour|unlabell\?ed"
)
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


ELLIPSES = re.compile(
    r"\b(that of|those of|as of|of such|the same of|(hold|held|holds) against|anew|(go|goes|going|went) on"
    r"|leaves? (it|them|this|these) out)\b",
    re.IGNORECASE,
)
"""Plain English repeats the noun (or has 's) instead, and the field's verbs: compare with, start over, resume, omit."""
DRAWS = re.compile(r"\b(re)?(draws?|drawn)\b(?! (with|without|by) matplotlib)", re.IGNORECASE)
DRAWING = ("cli/evaluate.py", "tiering/evaluation/figures.py", "tiering/pipeline/html_report.py")
MOST_WORDS = 40  # of a sentence in a page


def phrases_of(text: str, *patterns: re.Pattern[str]) -> list[str]:
    """Return the phrases of a text that patterns match, outside code in backquotes."""
    plain = re.sub(r"\s+", " ", re.sub(r"(`+).*?\1", "CODE", text, flags=re.DOTALL))
    return [found.group() for pattern in patterns for found in pattern.finditer(plain)]


def test_messages_repeat_nouns_and_have_the_verbs_of_the_field(nodes: list[tuple[str, ast.AST]]) -> None:
    """Docstrings of private functions are exempt, and benchmarks."""
    sources = [(path, node) for path, node in nodes if path.startswith(("tiering/", "cli/"))]
    private = {(p, line) for p, node in sources if re.match("_[^_]", name_of(node)) for line, _ in texts_of(node)}
    texts = [(p, node.lineno, str(node.value)) for p, node in sources if isinstance(node, ast.Constant)]
    texts = [(path, line, text) for path, line, text in texts if len(text.split()) >= 3]
    assert len(texts) > 4000
    assert [
        f"{path}:{line}: {phrase}"
        for path, line, text in texts
        if (path, line) not in private
        for phrase in phrases_of(text, ELLIPSES, *(() if path.startswith(DRAWING) else (DRAWS,)))
    ] == []


def sentences_of(page: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of the sentences of a page outside code, and of its table rows and headings."""
    code = re.compile(r"^( *)(```|~~~).*?^ *\2|<!--.*?-->", re.MULTILINE | re.DOTALL)
    page = code.sub(lambda match: "\n" * match[0].count("\n"), page)
    start, words = 1, ""
    for number, line in enumerate([*page.splitlines(), ""], 1):
        text = re.sub(r"^(> ?)+", "", line.strip())
        item, other = re.match(r"([-*+]|\d+\.) ", text), re.match(r"[|#!<]|---", text)
        if not text or item or other:
            yield from ((start, sentence) for sentence in re.split(r"(?<=[.!?;])[)*_\"]*\s+", words) if sentence)
            start, words = number, ""
        if other:
            yield number, text
        elif words or not line.startswith("    "):  # else indented code
            words = f"{words} {text[item.end() :] if item else text}".strip()


def test_pages_repeat_nouns_and_have_short_sentences(repository: Path) -> None:
    pages = [*(repository / "docs").rglob("*.md"), *(repository / "data_specs").glob("*.md")]
    pages += [repository / "README.md", repository / "CONTRIBUTING.md"]
    texts = [(str(page.relative_to(repository)), page.read_text()) for page in pages]
    sentences = [(page, *sentence) for page, text in texts for sentence in sentences_of(text)]
    assert len(sentences) > 1000
    found = [f"{p}:{n}: {phrase}" for p, n, text in sentences for phrase in phrases_of(text, ELLIPSES, DRAWS)]
    long = [(page, line, text) for page, line, text in sentences if text[0] != "|" and len(text.split()) > MOST_WORDS]
    assert found + [f"{page}:{line}: {len(text.split())} words: {text[:60]}" for page, line, text in long] == []
