"""Text of edges: quotes, comments, delimiters, against csv and pyarrow; matrices of text, against scipy."""

from __future__ import annotations

import gzip
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from generated_text import BLOCK_SIZES, Edges, edges_in_order, generate_text
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

import tiering.datasets.text as text_blocks
from tiering.datasets.open import open_dataset
from tiering.errors import InputError

NAMES = {"string_ids": True}


def read(folder: Path, text: str | bytes, **options: Any) -> Edges:
    path = folder / "e.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return edges_in_order(path, **options)


def test_generated_texts_have_the_edges_of_pythons_csv_module_and_of_pyarrow(tmp_path, monkeypatch):
    """A few of the campaign's (tests/faults), each read in blocks of two sizes."""
    for seed in range(40):
        rng = random.Random(seed)
        made = generate_text(rng)
        for size in rng.sample(BLOCK_SIZES, 2):
            monkeypatch.setattr(text_blocks, "BLOCK_BYTES", size)
            if made.expected is None:
                assert made.error is not None
                with pytest.raises(InputError, match=made.error):
                    read(tmp_path, made.data, **made.options)
                continue
            assert read(tmp_path, made.data, **made.options) == made.expected, (seed, size)
            if made.delimiter != " ":
                assert made.arrow_edges() == made.expected, seed


def test_tabs_know_no_quoting(tmp_path: Path) -> None:
    assert read(tmp_path, '0\t1\t"abc\n1\t2\t"def\n2\t0\tx\n') == [("0", "1"), ("1", "2"), ("2", "0")]
    count = 60_000
    lines = (f"{i}\t{i + 1}\t{chr(34) * (i % 1000 == 0)}x\n" for i in range(count))
    assert len(read(tmp_path, "".join(lines))) == count
    assert read(tmp_path, '"Ada" x\t"Bob"\n"Ada\tBob\n', **NAMES) == [('"Ada" x', '"Bob"'), ('"Ada', "Bob")]
    with pytest.raises(InputError, match="line 1: expected a whole number as source id, found '\"0\"'"):
        read(tmp_path, '"0"\t"1"\n1\t2\n')


def test_a_quoted_field_between_blanks_keeps_its_blanks_and_other_quotes_are_ordinary(tmp_path: Path) -> None:
    asked = {**NAMES, "delimiter": "space"}
    assert read(tmp_path, '"a  b" c\n"a b"   d\n', **asked) == [("a  b", "c"), ("a b", "d")]
    assert read(tmp_path, '"a\t b"\tc\n"""x"" y" z\n', **asked) == [("a\t b", "c"), ('"x" y', "z")]
    assert read(tmp_path, '"abc x\n5" "6\n "a"b  c\n', **asked) == [('"abc', "x"), ('5"', '"6'), ('"a"b', "c")]
    assert read(tmp_path, '0 1 "abc\n1 2 "def\n2 0 "x y"\n') == [("0", "1"), ("1", "2"), ("2", "0")]


BROKEN = "".join(f'{i},{i + 1},"text\n{i},{i + 2},x"\n' for i in range(60_000))


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_line_breaks_in_quotes_are_read_if_asked_for(tmp_path, monkeypatch, pack):
    monkeypatch.setattr(text_blocks, "BLOCK_BYTES", 1 << 18)
    text = pack(BROKEN.encode())
    edges = read(tmp_path, text, quoted_newlines=True)
    assert edges == [(str(i), str(i + 1)) for i in range(60_000)]
    with pytest.raises(InputError, match=r"line 1: a quote does not close on its line.*`quoted_newlines`"):
        read(tmp_path, text)


@pytest.mark.parametrize(("text", "options", "message"), [
    ('0,1,x\n1,2,"y\n2,3,z\n', {}, "line 2: a quote does not close on its line, found '\"y'"),
    ('0,1,x\n1,2,y\n2,3,"z\n', {}, "line 3: a quote does not close on its line"),
    ('0,1,x\n1,2,y\n2,3,"z', {}, "line 3: a quote does not close on its line"),
    ('0,1,"x\n1,2,y"\n', {}, "line 1: a quote does not close on its line"),
    ('"src,dst\n0,1\n', {}, "line 1: a quote does not close on its line"),
    ('a;"b\nc;d"\n', NAMES, "line 1: a quote does not close on its line"),
    ('a,b\n"c\n\n",d\n', NAMES, "line 2: a quote does not close on its line"),
    ('0,1,"a\nb"\n1,2,"y\n2,3,z\n', {"quoted_newlines": True}, "line 3: a quote does not close, found '\"y'"),
    ('0,1,"a\nb"\n1,x,y\n', {"quoted_newlines": True}, "line 3: expected a whole number as destination"),
    ('0,1,"a\rb"\n1,2,y\rz\n', {"quoted_newlines": True}, "line 2: expected lines that end in a line feed"),
    ("0\t1\n", {"quoted_newlines": True}, "--quoted-newlines: does not apply to delimiter"),
    ("0,1\n# c\n", {}, "line 2: expected 2 fields, found 1: '# c'; .* give --comment '#'"),
    ("0,1\n#,5\n", {}, "line 2: expected a whole number as source id, found '#'; .* give --comment '#'"),
    ("0,1\n%,5\n", {"comment": "#"}, "line 2: .* give --comment '%'"),
    ("#cats,#dogs\n", NAMES, r"the file has no edges, only 1 comments \(--comment none reads them as edges\)"),
    ("0,1\n", {"comment": "ab"}, "--comment: expected one character, none, found 'ab'"),
    ("0,1\n", {"comment": "1"}, "--comment: expected one character, none, found '1'"),
    ("Ada B\nC D\n", NAMES, "expected two names per line .* --delimiter, such as space"),
    ("Paris, F;London, U\nx, a;y, b\n", NAMES, "expected one delimiter, found , and ; in most lines; give"),
    ("a\tb\nc d\n", NAMES, "line 2: expected 2 fields, found 1: 'c d'"),
])  # fmt: skip
def test_text_that_is_refused(tmp_path: Path, text: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as told:
        read(tmp_path, text, **options)
    assert re.search(message, told.value.args[0])


@pytest.mark.parametrize(("text", "options", "edges", "comments"), [
    ("# a\n\n  % b\n0 1\n1 2\n", {}, [("0", "1"), ("1", "2")], 2),
    ("# a\nsrc,dst\n% b\n0,1\n", {}, [("0", "1")], 2),
    ("#cats,#dogs\na,b\n#c,d\n", {**NAMES, "comment": "#"}, [("a", "b")], 2),
    ("#cats\na,b\n#c,%d\n", NAMES, [("a", "b"), ("#c", "%d")], 1),
    ("#cats,#dogs\nsrc,dst\na,b\n", NAMES, [("a", "b")], 1),
    ("#cats,#dogs\na,b\n", {**NAMES, "comment": "none"}, [("#cats", "#dogs"), ("a", "b")], 0),
    ("#cats,#dogs\n% x\na,b\n%", {**NAMES, "comment": "%"}, [("#cats", "#dogs"), ("a", "b")], 2),
    ("x,0,1\n#y,1,2\n", {"src_column": 1, "dst_column": 2}, [("0", "1"), ("1", "2")], 0),
    ("% a\n# b\n0 1\n # c\n1 2\n#", {"comment": "#"}, [("0", "1"), ("1", "2")], 4),
    ('!,"\n0,1,\'\n!"\n1,2,"\n!x"\n', {"comment": "!", "quoted_newlines": True}, [("0", "1"), ("1", "2")], 2),
    ("c x\n0 1\nc y z\n1 2\n", {"comment": "c"}, [("0", "1"), ("1", "2")], 2),
])  # fmt: skip
def test_comments(tmp_path, capsys, text, options, edges, comments):
    assert read(tmp_path, text, num_nodes=None if "string_ids" in options else 3, **options) == edges
    said = re.findall(r"note: .*e\.csv: lines skipped as comments: (\d+)", capsys.readouterr().err)
    assert said == [str(comments)] * (comments > 0)


def test_comments_between_entries_of_a_matrix_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = "%%MatrixMarket matrix coordinate pattern general\n% head\n2 2 2\n1 2\n"
    (tmp_path / "m.mtx").write_text(head + "% between\n2 1\n")
    with open_dataset(tmp_path / "m.mtx") as data:
        assert data.edges[0].src.tolist() == [0, 1]
    assert "m.mtx: lines skipped as comments: 1\n" in capsys.readouterr().err
    (tmp_path / "m.mtx").write_text(head + "# 2 1\n")
    with pytest.raises(InputError, match="line 5: expected 2 fields, found 3"):
        open_dataset(tmp_path / "m.mtx")


@pytest.mark.parametrize(("text", "options", "edges"), [
    ("Ada Lovelace\tCharles Babbage\nx\ty\n", NAMES, [("Ada Lovelace", "Charles Babbage"), ("x", "y")]),
    ("Paris, France\tLondon, UK\nx, y\tz, w\n", NAMES, [("Paris, France", "London, UK"), ("x, y", "z, w")]),
    ('"Paris, F";"London, U"\n"x, a";"y, b"\n', NAMES, [("Paris, F", "London, U"), ("x, a", "y, b")]),
    ('"x\ty"\tz\n"a\tb"\tc\n', {**NAMES, "dst_column": "2"}, [('"x', "z"), ('"a', "c")]),
    ("Ada L|Bob\nx|y, z\n", NAMES, [("Ada L", "Bob"), ("x", "y, z")]),
    ("0\t1\tNew York, NY\n1\t2\tx\n", {}, [("0", "1"), ("1", "2")]),
    ("1 2\t0.5\n2 3\t0.25\n", {"weight_column": "2"}, [("1", "2"), ("2", "3")]),
    ("1\t\t2\n 2  3\n", {}, [("1", "2"), ("2", "3")]), ("1\t2\n2\t3\t\n", {}, [("1", "2"), ("2", "3")]),
])  # fmt: skip
def test_guessed_delimiters(tmp_path: Path, text: str, options: dict[str, Any], edges: Edges) -> None:
    assert read(tmp_path, text, **options) == edges


def test_comments_are_said_by_the_import_its_dry_run_tasks_and_chains(tmp_path: Path, tiering_cli: Any) -> None:
    (tmp_path / "e.csv").write_text('# head\n0,1,"a\nb"\n# between\n1,2,x\n')
    (tmp_path / "chain.toml").write_text(
        '[dataset]\npath = "e.csv"\ncomment = "#"\nquoted_newlines = true\n[score]\nmethod = "degree"\n'
        '[layout]\n[output]\ndir = "chain"\n'
    )
    asked = ("import", tmp_path / "e.csv", "--out", tmp_path / "g", "--quoted-newlines", "--comment", "#", "--force")
    for command in (
        asked,
        (*asked, "--dry-run"),
        (*asked, "--executor", "local", "--shards", "2"),
        ("run", tmp_path / "chain.toml", "--dry-run"),
        ("run", tmp_path / "chain.toml"),
    ):
        assert f"{tmp_path}/e.csv: lines skipped as comments: 2" in tiering_cli(*command).ok().err, command


def test_an_interpreter_that_read_text_ends_well(tmp_path):
    """Arrow's threads, which may outlive the interpreter, hold nothing of Python: that aborted a third of them."""
    (tmp_path / "e.txt").write_text("0 1\n")
    program = f"from tiering.datasets.open import open_dataset; open_dataset({str(tmp_path / 'e.txt')!r}).close()"
    for _ in range(4):
        subprocess.run([sys.executable, "-c", program], check=True)


HEAD = "%%MatrixMarket matrix coordinate {} {}\n"
PATTERN, REAL = HEAD.format("pattern", "general"), HEAD.format("real", "general")


def read_matrix(path: Path, **options: Any) -> tuple[int, list[tuple[float, ...]]]:
    """Nodes, and edges with their weights if there are some."""
    with open_dataset(path, **options) as dataset:
        assert dataset.format == "mtx"
        edges = dataset.edges[0]
        columns = [edges.src, edges.dst, *edges.data.values()]
        return dataset.nodes["node"].num_nodes, list(zip(*(column.tolist() for column in columns), strict=True))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_edges_are_those_that_scipy_reads(data: st.DataObject) -> None:
    nodes, count = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 40))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    dense = np.zeros((nodes, nodes))
    dense[tuple(random.integers(0, nodes, (2, count)))] = random.integers(1, 9, count)
    symmetry = data.draw(st.sampled_from(["general", "symmetric"]))
    if symmetry != "general":
        dense = np.tril(dense) + np.tril(dense, -1).T
    field = data.draw(st.sampled_from(["pattern", "real", "integer"]))
    if not dense.any():
        return
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "graph.mtx"
        matrix = scipy.sparse.coo_matrix(dense if field == "real" else dense.astype(np.int64))
        scipy.io.mmwrite(path, matrix, comment="made\nhere", field=field, symmetry=symmetry)
        expected = scipy.sparse.coo_matrix(scipy.io.mmread(path))
        if data.draw(st.booleans()):
            path.with_suffix(".mtx.gz").write_bytes(gzip.compress(path.read_bytes()))
            path = path.with_suffix(".mtx.gz")
        weighted = field != "pattern" and data.draw(st.booleans())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(text_blocks, "BLOCK_BYTES", data.draw(st.sampled_from([text_blocks.BLOCK_BYTES, 64])))
            found = read_matrix(path, **({"weight_column": "value"} if weighted else {}))
        columns = [expected.row, expected.col, *([expected.data] if weighted else [])]
        assert found[0] == nodes
        assert sorted(found[1]) == sorted(zip(*(column.tolist() for column in columns), strict=True))


def test_an_entry_of_a_symmetric_matrix_is_followed_by_its_reverse(tmp_path: Path) -> None:
    path = tmp_path / "a.mtx"
    path.write_text(HEAD.format("Real", "Symmetric") + "%\n\n  4 4 3\n3 1 0.5\n2 2 7\n4 1 1e1\n")
    assert read_matrix(path) == (4, [(2, 0), (0, 2), (1, 1), (3, 0), (0, 3)])
    assert read_matrix(path, weight_column="value")[1][:3] == [(2, 0, 0.5), (0, 2, 0.5), (1, 1, 7.0)]
    with open_dataset(path) as dataset:
        assert dataset.notes["matrix"]["ignored_columns"] == ["value"]


def test_a_file_of_another_name_is_recognized_by_its_first_line(tmp_path: Path) -> None:
    path = tmp_path / "edges.txt"
    path.write_text(PATTERN + "2 2 1\n1 2\n")
    assert read_matrix(path) == (2, [(0, 1)])
    refused("counts from 1; give --format mtx", path, "edgelist")


@pytest.mark.parametrize(("content", "options", "message"), [
    ("", {}, "expected a first line of %%MatrixMarket"), ("1 2\n", {}, "expected a first line of %%MatrixMarket"),
    ("%%MatrixMarket matrix array real general\n2 2\n1\n", {}, "expected a first line of .* found .* array"),
    (HEAD.format("complex", "general") + "1 1 1\n1 1 1 1\n", {}, "pattern/real/integer"),
    (HEAD.format("real", "hermitian") + "1 1 1\n1 1 1\n", {}, "general/symmetric, found .* hermitian"),
    (PATTERN, {}, "expected numbers of rows, columns and entries, found"),
    (PATTERN + "3 3\n", {}, "line 2: expected numbers of rows, columns and entries"),
    (PATTERN + "%\n3 4 1\n1 1\n", {}, "line 3: expected a square matrix.*3 x 4"),
    (PATTERN + "3 3 0\n", {}, "the file has no edges"),
    (PATTERN + "3 3 2\n1 1\n", {}, "expected 2 entries as its header says, found 1"),
    (PATTERN + "3 3 1\n1 1\n1 2\n", {}, "expected 1 entries .* found 2"),
    (PATTERN + "3 3 2\n1 1\n0 2\n", {}, "entry 2: expected a row of 1 to 3, found 0"),
    (PATTERN + "3 3 1\n1 4\n", {}, "entry 1: expected a column of 1 to 3, found 4"),
    (PATTERN + "3 3 1\n1 x\n", {}, "line 3: expected a whole number .*found 'x'"),
    (PATTERN + "%\n3 3 2\n1 2\n1 2 5\n", {}, "line 5: expected 2 fields, found 3"),
    (REAL + "3 3 1\n1 2 -1\n", {"weight_column": "value"}, "0 or more, found -1.0"),
    (HEAD.format("real", "skew-symmetric") + "3 3 1\n2 1 1\n", {}, "general/symmetric, found .* skew-symmetric"),
    (PATTERN + "3 3 1\n1 2\n", {"weight_column": "value"}, "the matrix has no values"),
    (REAL + "3 3 1\n1 2 1\n", {"weight_column": "w"}, "found 'w'; say value"),
    (PATTERN + "3 3 1\n1 2\n", {"num_nodes": 4}, "expected 4 nodes of type node as in --num-nodes, found 3"),
    (PATTERN + "999999999999999999 999999999999999999 1\n1 2\n", {}, "up to 2.48"),
])  # fmt: skip
def test_files_that_are_not_as_their_header_says(tmp_path, content, options, message):
    path = tmp_path / "a.mtx"
    path.write_text(content)
    refused(message, path, **options)
