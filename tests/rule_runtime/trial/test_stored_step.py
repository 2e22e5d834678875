"""What a step tells of itself, and where it lies."""

from __future__ import annotations

from pathlib import Path

import pytest

from hook_layer.format.paths import index_key
from hook_layer.storage.local import LocalStore
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.errors import InvalidWorker
from rule_runtime.trial.other_trials import OtherTrialError
from tests.rule_runtime.outcomes import make_run


@pytest.mark.parametrize("run", ["run-7", None])
def test_a_step_tells_its_run_and_its_files(run: str | None) -> None:
    trial = TrialBuilder(num_workers=2, run=run)
    for worker in ("worker_1", "worker_0"):
        trial.step(5, {"a": [1.0]}, worker=worker)
    (view,) = trial.views()
    assert view.run == run
    assert view.index_keys == [index_key(5, "worker_0"), index_key(5, "worker_1")]
    assert view.store is trial.store


def test_a_step_tells_the_collections_of_its_workers() -> None:
    trial = make_run({"a": [1.0]})
    (view,) = trial.views()
    assert view.collections_file("worker_0") is None
    trial.collections(mine=("^a",))
    file = view.collections_file("worker_0")
    assert file is not None
    assert file.collections["mine"].include_regex == ("^a",)
    assert view.collections_file("worker_1") is None


def test_records_of_a_worker_that_did_not_write_the_step_are_refused() -> None:
    (view,) = make_run({"a": [1.0]}).views()
    assert view.value_bytes("worker_0").keys() == {"a"}
    with pytest.raises(InvalidWorker):
        view.value_bytes("worker_1")


def test_the_root_of_another_trial_is_one_that_may_be_read(tmp_path: Path) -> None:
    trial = TrialBuilder(LocalStore(tmp_path / "jobs" / "mine"))
    trial.step(0, {"a": [1.0]})
    for folder in ("jobs/other", "elsewhere"):
        TrialBuilder(LocalStore(tmp_path / folder)).step(0, {"a": [1.0]})
    (view,) = trial.views()
    other = LocalStore(tmp_path / "jobs" / "other")
    assert view.store_of_other_trial("other").uri.rstrip("/") == other.uri.rstrip("/")
    with pytest.raises(OtherTrialError, match="may not be read"):
        view.store_of_other_trial(str(tmp_path / "elsewhere"))
