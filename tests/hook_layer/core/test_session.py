"""The trial of a run: which ranks open it, and how it is closed."""

from __future__ import annotations

import pytest

from hook_layer.configuration.collection_manager import CollectionManager
from hook_layer.configuration.collections import Collection
from hook_layer.configuration.hook_options import HookOptions
from hook_layer.configuration.hook_setup import HookSetup
from hook_layer.configuration.job import HookTargets
from hook_layer.core.clock import StepClock
from hook_layer.core.session import Session
from hook_layer.core.state import HookState
from hook_layer.core.workers import Workers
from hook_layer.format.paths import JOB_FILE
from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.fixed_workers import FixedWorkers


class OneWriter(FixedWorkers):
    """Ranks of a framework in which only rank 0 can write."""

    supports_all = False
    framework = "Tiny"


class Owner:
    """Owns a session, which knows weakly how to close it."""

    def __init__(
        self,
        trial: WrittenTrial,
        workers: Workers | None = None,
        include_workers: str = "one",
        *,
        dry_run: bool = False,
    ) -> None:
        manager = CollectionManager({"mine": Collection("mine", ["w"])}, {"mine"})
        setup = HookSetup(
            HookTargets(trial.store),
            manager,
            HookOptions(),
            dry_run=dry_run,
            include_workers=include_workers,
        )
        self.clock = StepClock()
        self.session = Session(setup, HookState(), self.clock, workers or Workers(), self.give_way)

    def give_way(self) -> None:
        pass


@pytest.mark.parametrize("rank", [0, 1])
def test_all_ranks_open_the_trial_together(trial: WrittenTrial, rank: int) -> None:
    session = Owner(trial, FixedWorkers(rank, 2), "all").session
    assert session.needs_other_ranks
    session.open()
    assert not session.needs_other_ranks
    assert session.trial is not None
    assert session.trial.identity.worker == f"worker_{rank}"
    session.close(end_of_training=True)
    assert trial.collections(f"worker_{rank}").num_workers == 2


@pytest.mark.parametrize(("rank", "is_writer"), [(0, True), (1, False)])
def test_a_framework_may_have_one_writer(
    trial: WrittenTrial, rank: int, is_writer: bool, caplog: pytest.LogCaptureFixture
) -> None:
    session = Owner(trial, OneWriter(rank, 2), "all").session
    session.open()
    assert session.is_writer is is_writer
    assert "the Tiny hook does not support include_workers='all'; only rank 0" in caplog.text
    session.close(end_of_training=True)


def test_auto_is_one_where_the_framework_has_it_not(trial: WrittenTrial) -> None:
    class Auto(Workers):
        supports_auto = True

    assert not Owner(trial, Workers(), "auto").session.all_write
    assert Owner(trial, Auto(), "auto").session.all_write


def test_a_run_that_its_framework_resumes_continues_its_numbers(trial: WrittenTrial) -> None:
    owner = Owner(trial)
    owner.session.resumption.framework_step = 5
    owner.session.open()
    owner.clock.count()
    assert owner.clock.step == 5
    owner.session.close(end_of_training=False)
    assert trial.store.exists(JOB_FILE)
    assert trial.end_marker() is None
