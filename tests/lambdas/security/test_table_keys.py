"""Names that others choose never lead to an item of the table that is not theirs."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from hook_layer.format.job_file import JobFile
from lambdas.contracts.events import (
    attempts_partition,
    notice_partition,
    registration_partition,
    stop_partition,
)
from lambdas.notify.sent_notices import NoticeKey
from lambdas.shared.registration import RUN_ID, Registration
from lambdas.shared.state_table import StateKey

PIECES = st.sampled_from(["#", "/", "job#", "stop#", "s3://b/", "..", "a", "b", "01J"])
NAMES = st.lists(PIECES, max_size=6).map("".join)
ROOTS = NAMES.map(lambda name: f"s3://tensors/{name}/")
RUNS = NAMES.filter(lambda name: name == "" or RUN_ID.fullmatch(name) is not None)


@given(ROOTS, RUNS, ROOTS, RUNS)
@example("s3://tensors/a/", "b", "s3://tensors/a/#b/", "")
def test_no_two_runs_share_a_partition(
    root: str, run: str, other_root: str, other_run: str
) -> None:
    mine, other = StateKey(root, run, "R"), StateKey(other_root, other_run, "R")
    assert (mine.run == other.run) == ((root, run) == (other_root, other_run))


@given(ROOTS, RUNS, NAMES)
def test_items_of_different_kinds_never_meet(root: str, run: str, name: str) -> None:
    kinds = [
        StateKey(root, run, "R").run,
        registration_partition(name),
        attempts_partition(root),
        stop_partition(name),
        notice_partition(NoticeKey((name, root)).digest),
    ]
    beginnings = [kind.partition("#")[0] for kind in kinds[1:]]
    assert len(set(kinds)) == len(kinds)
    assert len(set(beginnings)) == len(beginnings)
    assert kinds[0].startswith("s3://")


@given(st.lists(NAMES, max_size=4), st.lists(NAMES, max_size=4))
def test_no_two_messages_share_a_note(mine: list[str], other: list[str]) -> None:
    are_equal = NoticeKey(tuple(mine)).digest == NoticeKey(tuple(other)).digest
    assert are_equal == (mine == other)


@given(
    st.text() | NAMES,
    st.text() | NAMES,
    st.text() | st.just("sagemaker"),
    st.none() | st.text(),
)
@example("mnist-7", "a#b", "sagemaker", None)
@example("x" * 5000, "x" * 5000, "x" * 5000, "x" * 5000)
@example("job\n#registration", "\x00", "SageMaker", "arn:aws:sagemaker:x")
def test_what_job_json_says_is_bounded_before_it_is_a_key(
    name: str, run: str, platform: str, arn: Any
) -> None:
    root = "s3://tensors/mnist-7/debug-output/"
    job = JobFile(name, run, platform, "", training_job_arn=arn)
    registration = Registration.of_job_file(root, job)
    assert 0 < len(registration.training_job_name) <= 256
    assert registration.training_job_name.isprintable()
    assert registration.run_id == "" or RUN_ID.fullmatch(registration.run_id)
    assert "#" not in registration.run_id
    assert len(registration.platform) <= 64
    assert registration.root_uri == root, "where the file lies, whatever it says"
    if registration.is_sagemaker_job:
        assert registration.training_job_name == "mnist-7"
