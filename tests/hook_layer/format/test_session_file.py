from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hook_layer.format.errors import SessionFileError
from hook_layer.format.session_file import SessionFile, SessionRun, parse_session_file

TEXTS = st.text(max_size=20).filter(lambda text: text.isprintable())
RUNS = st.builds(
    SessionRun,
    name=TEXTS,
    uri=TEXTS,
    run_id=TEXTS,
    started_at=TEXTS,
    process=st.integers(0, 1 << 22),
    attempt=st.integers(1, 9),
    ended_at=st.none() | TEXTS,
    end=st.none() | TEXTS,
    details=st.none() | TEXTS,
)
SESSIONS = st.builds(
    SessionFile,
    command=st.lists(TEXTS, max_size=4).map(tuple),
    working_directory=TEXTS,
    started_at=TEXTS,
    runs=st.lists(RUNS, max_size=3).map(tuple),
    runs_not_watched=st.integers(0, 9),
    stopped_by=st.none() | TEXTS,
    ended_at=st.none() | TEXTS,
    exit_status=st.none() | st.integers(0, 255),
)


@given(SESSIONS)
def test_what_is_written_is_read(session: SessionFile) -> None:
    assert parse_session_file(session.encode(), file="session.json") == session


@given(SESSIONS, st.integers(0, 200))
def test_a_half_written_file_is_an_error(session: SessionFile, length: int) -> None:
    data = session.encode()
    with pytest.raises(SessionFileError, match=r"session\.json"):
        parse_session_file(data[: min(length, len(data) - 1)], file="session.json")


@given(st.binary(max_size=100))
def test_other_bytes_are_an_error(data: bytes) -> None:
    with pytest.raises(SessionFileError):
        parse_session_file(data, file="session.json")


def test_another_version_is_named() -> None:
    content = {**json.loads(SessionFile((), "", "").encode()), "SchemaVersion": 2}
    with pytest.raises(SessionFileError, match="SchemaVersion=2 is not 1: another version"):
        parse_session_file(json.dumps(content).encode(), file="session.json")
