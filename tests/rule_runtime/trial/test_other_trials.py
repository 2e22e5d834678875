from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hook_layer.format.modes import ModeKeys
from hook_layer.storage.base import Store, StoreRefusedError
from hook_layer.storage.local import LocalStore
from hook_layer.storage.memory import MemoryStore
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.other_trials import OtherTrialError, open_other_trial
from rule_runtime.trial.step_index import load_step_files
from rule_runtime.trial.step_view import StepReader, StepView
from tests.rule_runtime.counting_store import CountingStore

_numbers = itertools.count()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for job in ("jobs/one", "jobs/other", "elsewhere/other"):
        trial = TrialBuilder(LocalStore(tmp_path / job / "debug-output"))
        trial.step(0, {"a": [1.0 if job.endswith("one") else 2.0]})
    return tmp_path


def view_of(store: Store, reader: StepReader | None = None, step: int = 0) -> StepView:
    files = load_step_files(store, [key for key in store.list("index/") if f"{step:012}" in key])
    return (reader or StepReader(store)).view(step, files, num_workers=1)


def opened_as(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    monkeypatch.setattr("rule_runtime.trial.other_trials.open_store", lambda _: store)


def root(folder: Path, job: str) -> Path:
    return folder / "jobs" / job / "debug-output"


# ------------------------------------------------------------------------------ which may be read


def test_a_job_beside_is_found_by_its_name_path_or_uri(folder: Path) -> None:
    view = view_of(LocalStore(root(folder, "one")))
    uri = LocalStore(root(folder, "other")).uri
    for name in ("other", f" {uri} ", uri.rstrip("/"), str(root(folder, "other"))):
        other = view.in_other_trial(name)
        assert other is not None
        assert other.tensors().column("mean").tolist() == [2.0]


def test_names_with_spaces_are_found(tmp_path: Path) -> None:
    for job in ("my job", "other job"):
        TrialBuilder(LocalStore(tmp_path / job)).step(0, {"a": [1.0]})
    assert view_of(LocalStore(tmp_path / "my job")).in_other_trial("other job") is not None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("one", "is the evaluated trial itself"),
        ("gone", "no step is stored at file:"),
        ("{folder}/elsewhere/other/debug-output", "may not be read; give the name of a job"),
        ("{folder}/jobs/../elsewhere/other/debug-output", "may not be read"),
        ("file://{folder}/jobs/%2e%2e/elsewhere/other/debug-output", "may not be read"),
        ("memory://other", "may not be read"),
        ("..", "cannot be found by its name"),
        ("", "cannot be found by its name"),
        ("ftp://host/other", "no store for ftp://"),
    ],
)
def test_other_places_are_refused(folder: Path, name: str, message: str) -> None:
    view = view_of(LocalStore(root(folder, "one")))
    with pytest.raises(OtherTrialError, match=message):
        view.in_other_trial(name.format(folder=folder))


@pytest.mark.parametrize(
    ("uri", "beside", "is_allowed"),
    [
        ("s3://bucket/jobs/one/debug-output/", "s3://bucket/jobs/two/debug-output/", True),
        ("s3://bucket/one/", "s3://bucket/two/", True),
        ("s3://bucket/one/", "s3://other/two/", False),
        ("s3://bucket/jobs/one/", "s3://bucket/jobs-of-others/two/", False),
        ("s3://bucket/", "s3://bucket/two/", False),
        ("s3://bucket/", "s3://other/", False),
        ("file:///one/", "file:///two/", False),
        ("file:///a/one/", "file:///a/two/", True),
    ],
)
def test_the_folder_of_jobs_bounds_what_may_be_read(
    uri: str, beside: str, is_allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Named(MemoryStore):
        def __init__(self, uri: str) -> None:
            super().__init__("named")
            self.uri = uri

    def open_named(uri: str) -> Store:
        store = Named(uri)
        TrialBuilder(store).step(0, {"a": [1.0]})
        return store

    monkeypatch.setattr("rule_runtime.trial.other_trials.open_store", open_named)
    if is_allowed:
        assert open_other_trial(f" {beside}", beside=uri).store.uri == beside
        name = beside.removesuffix("debug-output/").rstrip("/").rpartition("/")[2]
        assert open_other_trial(name, beside=uri).store.uri == beside
    else:
        with pytest.raises(OtherTrialError):
            open_other_trial(beside, beside=uri)


def test_another_trial_is_opened_once(folder: Path) -> None:
    reader = StepReader(LocalStore(root(folder, "one")))
    assert reader.other("other") is reader.other("other")


def test_a_store_that_refuses_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(MemoryStore):
        def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:  # noqa: ARG002
            raise StoreRefusedError(f"allow s3:GetObject on {key}")

    refusing = Refusing(f"refusing-{next(_numbers)}")
    TrialBuilder(refusing).step(0, {"a": [1.0]})
    own = MemoryStore("own")
    TrialBuilder(own).step(0, {"a": [1.0]})
    opened_as(monkeypatch, refusing)
    with pytest.raises(OtherTrialError, match="allow s3:GetObject"):
        view_of(own).in_other_trial("any")


# ------------------------------------------------------------------------------ where steps are


Schedule = list[tuple[ModeKeys, int]]
"""Mode and mode step of each global step."""


def schedule(train: int, evaluate: int, rounds: int) -> Schedule:
    found: Schedule = []
    for turn in range(rounds):
        found += [(ModeKeys.TRAIN, turn * train + i) for i in range(train)]
        found += [(ModeKeys.EVAL, turn * evaluate + i) for i in range(evaluate)]
    return found


def written(places: Schedule, *, interval: int = 1) -> TrialBuilder:
    trial = TrialBuilder(MemoryStore.from_uri(f"memory://steps/{next(_numbers)}"))
    for step, (mode, mode_step) in enumerate(places):
        if mode_step % interval == 0:
            trial.step(step, {"a": [float(step)]}, mode=mode, mode_step=mode_step)
    return trial


modes = st.lists(
    st.sampled_from([ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT]), min_size=1, max_size=25
)


def numbered(names: list[ModeKeys]) -> Schedule:
    counts = dict.fromkeys(ModeKeys, -1)
    found = []
    for mode in names:
        counts[mode] += 1
        found.append((mode, counts[mode]))
    return found


@given(modes, modes)
@settings(max_examples=60, deadline=None)
def test_a_step_of_a_mode_is_found_wherever_it_is(
    ours: list[ModeKeys], theirs: list[ModeKeys]
) -> None:
    one, other = written(numbered(ours)), written(numbered(theirs))
    where = {place: step for step, place in enumerate(numbered(theirs))}
    for view in one.views():
        found = view.in_other_trial(other.store.uri)
        expected = where.get((view.mode, view.mode_step))
        assert (None if found is None else found.step) == expected


def test_steps_are_found_by_halving(monkeypatch: pytest.MonkeyPatch) -> None:
    store = CountingStore(f"steps/{next(_numbers)}")
    other = TrialBuilder(store)
    for step, (mode, mode_step) in enumerate(schedule(10, 3, 60)):
        other.step(step, {"a": [1.0]}, mode=mode, mode_step=mode_step)
    one = written(schedule(7, 1, 80))
    opened_as(monkeypatch, other.store)
    reader = StepReader(one.store)
    view = view_of(one.store, reader, step=603)
    assert view.in_other_trial("other") is not None  # the first look finds out about the run
    store.reset()
    found = view_of(one.store, reader, step=620).in_other_trial("other")
    assert found is not None
    assert (found.mode, found.mode_step) == one_place(one, 620)
    assert len(store.gets("index/")) < 40


def test_the_search_for_a_step_is_bounded() -> None:
    """Among very many steps of another mode it is given up."""
    far = [(ModeKeys.TRAIN, 0), *((ModeKeys.EVAL, i) for i in range(700)), (ModeKeys.TRAIN, 1)]
    other, one = written(far), written([(ModeKeys.TRAIN, 0), (ModeKeys.TRAIN, 1)])
    assert view_of(one.store, step=0).in_other_trial(other.store.uri) is not None
    assert view_of(one.store, step=1).in_other_trial(other.store.uri) is None


def one_place(trial: TrialBuilder, step: int) -> tuple[ModeKeys, int]:
    view = view_of(trial.store, step=step)
    return view.mode, view.mode_step


def test_runs_without_modes_are_compared_by_global_step() -> None:
    places = [(ModeKeys.GLOBAL, step) for step in range(6)]
    without, with_modes = written(places), written(schedule(2, 1, 2))
    for one, other in ((without, with_modes), (with_modes, without), (without, written(places))):
        for view in one.views():
            found = view.in_other_trial(other.store.uri)
            assert found is not None
            assert found.step == view.step
    (late,) = [view for view in written(schedule(3, 1, 2)).views() if view.step == 7]
    assert late.in_other_trial(without.store.uri) is None


def test_all_workers_of_the_current_run_are_seen_and_no_other_run() -> None:
    store = MemoryStore.from_uri(f"memory://steps/{next(_numbers)}")
    TrialBuilder(store, run="run-0").step(0, {"a": [9.0]}, worker="worker_2")
    other = TrialBuilder(store, run="run-1", num_workers=3)
    for worker in (0, 1):
        other.step(0, {"a": [float(worker)]}, worker=f"worker_{worker}")
    (view,) = written([(ModeKeys.TRAIN, 0)]).views()
    found = view.in_other_trial(store.uri)
    assert found is not None
    assert (found.workers, found.is_complete) == (("worker_0", "worker_1"), False)
    assert found.tensors().column("mean").tolist() == [0, 1]
    assert float(found.value("a", "worker_1")[0]) == 1


def test_files_of_the_original_client_are_compared_too() -> None:
    store = MemoryStore.from_uri(f"memory://steps/{next(_numbers)}")
    TrialBuilder(store, run=None).step(0, {"a": [3.0]})
    (view,) = written([(ModeKeys.TRAIN, 0)]).views()
    found = view.in_other_trial(store.uri)
    assert found is not None
    assert found.tensors().column("mean").tolist() == [3]
    assert found.is_complete


def test_from_another_trial_the_way_leads_back() -> None:
    one, other = written([(ModeKeys.TRAIN, 0)]), written([(ModeKeys.TRAIN, 0)])
    (view,) = one.views()
    there = view.in_other_trial(other.store.uri)
    assert there is not None
    back = there.in_other_trial(one.store.uri)
    assert back is not None
    assert back.tensors().names == ("a",)
