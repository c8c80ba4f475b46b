"""The journal of a run: what was recorded is found again, torn lines are not."""

from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tiering.artifacts.journal import JOURNAL, Journal
from tiering.errors import StorageError

IDENTITY = {"stage": "import", "options": {"a": 1}, "inputs": {"x": "digest"}}


def test_what_was_recorded_is_found_again(tmp_path):
    journal = Journal.begin(tmp_path, IDENTITY)
    assert journal.done == 0 and journal.get("block 0") is None
    journal.record("block 0", digest="ab")
    journal.record("counts", total=3, list=[1, 2])
    journal.close()
    again = Journal.reopen(tmp_path / JOURNAL)
    assert again is not None and again.identity == IDENTITY
    assert again.get("block 0") == {"digest": "ab"} and again.get("counts") == {"total": 3, "list": [1, 2]}
    again.record("block 1", digest="cd")
    again.record("block 0", digest="ef")
    again.record("block 2", digest="cd")
    again.forget("block 1", "block 2", "never")
    again.record("block 1", digest="gh")
    again.close()
    last = Journal.reopen(tmp_path / JOURNAL)
    assert last is not None and last.keys("block") == ["block 0", "block 1"]
    assert last.keys() == ["block 0", "counts", "block 1"] and last.done == 3
    assert [last.get(key) for key in last.keys("block")] == [{"digest": "ef"}, {"digest": "gh"}]
    last.close()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 400))
def test_a_torn_line_is_as_if_it_had_not_been_written(tmp_path, cut):
    (tmp_path / JOURNAL).unlink(missing_ok=True)
    journal = Journal.begin(tmp_path, IDENTITY)
    begun = (tmp_path / JOURNAL).stat().st_size
    ends = [begun]
    for number in range(6):
        journal.record(f"k{number}", value=number)
        ends.append((tmp_path / JOURNAL).stat().st_size)
    journal.close()
    data = (tmp_path / JOURNAL).read_bytes()[:cut]
    (tmp_path / JOURNAL).write_bytes(data)
    again = Journal.reopen(tmp_path / JOURNAL)
    if cut < begun:
        assert again is None
        return
    assert again is not None
    whole = sum(end <= cut for end in ends) - 1
    assert again.keys() == [f"k{number}" for number in range(whole)]
    again.record("next", value=1)
    again.close()
    more = Journal.reopen(tmp_path / JOURNAL)
    assert more is not None and more.keys() == [*again.keys()]
    more.close()


@pytest.mark.parametrize("torn", [b"\0" * 30 + b"}\n", b'{"identity": {}}\n', b"[]\n", b'"a\n', b"\xff\n"])
def test_what_a_power_cut_tore_is_passed_over(tmp_path, torn):
    """The end of a line may be on disk where its beginning is not."""
    journal = Journal.begin(tmp_path, IDENTITY)
    journal.record("first", value=1)
    journal.close()
    whole = (tmp_path / JOURNAL).read_bytes()
    (tmp_path / JOURNAL).write_bytes(whole + torn)
    again = Journal.reopen(tmp_path / JOURNAL)
    assert again is not None and again.keys() == ["first"]
    again.close()
    assert (tmp_path / JOURNAL).read_bytes() == whole


def test_of_a_line_that_a_full_disk_took_a_part_of_nothing_stays(tmp_path):
    journal = Journal.begin(tmp_path, IDENTITY)
    whole, file = (tmp_path / JOURNAL).read_bytes(), journal._file
    journal._file = SimpleNamespace(write=lambda line: file.write(line[:9]), close=file.close)
    with pytest.raises(StorageError, match="no space left"):
        journal.record("first", value=1)
    journal.close()
    assert (tmp_path / JOURNAL).read_bytes() == whole


@pytest.mark.parametrize("content", [b"", b"\n", b"nonsense\n", b'{"key": "a", "facts": {}}\n', b"[]\n"])
def test_what_is_no_journal(tmp_path, content):
    assert Journal.reopen(tmp_path / JOURNAL) is None
    (tmp_path / JOURNAL).write_bytes(content)
    assert Journal.reopen(tmp_path / JOURNAL) is None
