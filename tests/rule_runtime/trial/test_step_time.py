from __future__ import annotations

from rule_runtime.testing import TrialBuilder


def test_the_time_of_a_step_is_that_of_the_worker_that_began_first() -> None:
    trial = TrialBuilder(num_workers=3)
    trial.step(0, {"w": [1.0]}, worker="worker_0", time=1012.5)
    trial.step(0, {"w": [1.0]}, worker="worker_1", time=1010.25)
    trial.step(0, {"w": [1.0]}, worker="worker_2")
    assert [view.time for view in trial.views()] == [1010.25]


def test_a_step_that_no_file_gives_a_time_has_none() -> None:
    for trial in (TrialBuilder(), TrialBuilder(run=None)):
        trial.step(0, {"w": [1.0]})
        assert [view.time for view in trial.views()] == [None]
    original = TrialBuilder(run=None)
    original.step(0, {"w": [1.0]}, time=1000.0)
    assert [view.time for view in original.views()] == [None]
