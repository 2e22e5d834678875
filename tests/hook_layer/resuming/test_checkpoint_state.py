"""The state file: what is written can be read, by the original client too, and nothing else can."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hook_layer.format.modes import ModeKeys
from hook_layer.resuming.checkpoint_state import (
    CheckpointStateError,
    SavedRun,
    SavedState,
    encode_states,
    parse_states,
)

steps = st.integers(-1, 2**53 - 1)
counts = st.integers(0, 2**63 - 1)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
runs = st.builds(
    SavedRun,
    run_id=st.from_regex(r"[0-9A-Za-z._-]{1,64}", fullmatch=True),
    training_job_name=text,
    started_at=text,
    sequence=st.integers(0, 2**53 - 1),
    has_ended=st.booleans(),
)
modes = st.dictionaries(st.sampled_from([mode.name for mode in ModeKeys]), steps)
original = st.builds(
    SavedState, step=steps, saved_step=steps, mode_steps=modes, training_run=counts
)
ours = st.builds(
    SavedState,
    step=steps,
    saved_step=steps,
    mode_steps=modes,
    training_run=counts,
    run=runs,
    files=st.dictionaries(text, counts, max_size=3),
)


@given(st.lists(original | ours, max_size=4))
def test_what_is_written_is_read(states: list[SavedState]) -> None:
    assert parse_states(encode_states(states), file="metadata.json") == states


def test_the_original_finds_its_keys() -> None:
    state = SavedState(12, 10, {"GLOBAL": 12, "TRAIN": 9}, 1, SavedRun("RUN", "job", "now", 6))
    (item,) = json.loads(encode_states([state]))
    assert {key: item[key] for key in list(item)[:4]} == {
        "training-run": 1,
        "latest-global-step-saved": 10,
        "latest-global-step-seen": 12,
        "latest-mode-step": {"GLOBAL": 12, "TRAIN": 9},
    }


def test_a_file_of_the_original_is_read() -> None:
    data = (
        b'[{"training-run": 0, "latest-global-step-saved": null, "latest-global-step-seen": 4,'
        b' "latest-mode-step": {"GLOBAL": 4, "EVAL": -1}}]'
    )
    assert parse_states(data, file="f") == [SavedState(4, -1, {"GLOBAL": 4, "EVAL": -1})]


GOOD = json.loads(
    encode_states([SavedState(2, 2, {"GLOBAL": 2}, 0, SavedRun("RUN", "job", "now", 1), {"a": 1})])
)[0]


@pytest.mark.parametrize(
    "change",
    [
        {"latest-global-step-seen": None},
        {"latest-global-step-seen": "2"},
        {"latest-global-step-seen": 2.5},
        {"latest-global-step-seen": True},
        {"latest-global-step-seen": -2},
        {"latest-global-step-seen": 2**53},
        {"latest-global-step-saved": []},
        {"latest-mode-step": {"TRAINING": 2}},
        {"latest-mode-step": {"TRAIN": 2**70}},
        {"latest-mode-step": None},
        {"training-run": -1},
        {"stepwatch": []},
        {"stepwatch": {**GOOD["stepwatch"], "run-id": "a/../b"}},
        {"stepwatch": {**GOOD["stepwatch"], "run-id": "x" * 65}},
        {"stepwatch": {**GOOD["stepwatch"], "sequence": None}},
        {"stepwatch": {**GOOD["stepwatch"], "ended": 1}},
        {"stepwatch": {**GOOD["stepwatch"], "files": {"a": -1}}},
        {"stepwatch": {**GOOD["stepwatch"], "started-at": 3}},
    ],
)
def test_a_damaged_state_is_refused(change: dict[str, object]) -> None:
    assert parse_states(json.dumps([GOOD]).encode(), file="f")
    with pytest.raises(CheckpointStateError, match=r"^metadata\.json"):
        parse_states(json.dumps([GOOD, {**GOOD, **change}]).encode(), file="metadata.json")


@given(st.binary(max_size=200))
@example(b"{}")
@example(b"[1]")
@example(b"[" * 100_000)
@example(b" " * (1 << 20) + b"[]")
@example(b'[{"latest-global-step-seen": 1' + b"0" * 5000 + b"}]")
@example(b'["\\ud800"]')
def test_hostile_bytes_are_refused(data: bytes) -> None:
    try:
        states = parse_states(data, file="f")
    except CheckpointStateError as error:
        assert len(str(error)) < 300
    else:
        assert data.strip() == b"[]"
        assert states == []
