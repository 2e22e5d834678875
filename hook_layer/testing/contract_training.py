"""Creates hooks for the contract tests, trains with them, and reads their output."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import pytest

from hook_layer.configuration.save_config import SaveConfig
from hook_layer.core.hook import BaseHook
from hook_layer.errors import TrainingStoppedError
from hook_layer.format.job_file import StopFile
from hook_layer.format.paths import STOP_FILE
from hook_layer.testing.training_under_test import PROPERTIES, OnStep, TrainingUnderTest
from hook_layer.testing.written_trial import WrittenTrial

__all__ = [
    "EVERY_STEP",
    "REASON",
    "ContractTraining",
    "ScriptError",
    "contract_property",
    "failing_in",
    "new_uri",
]

EVERY_STEP: Final = SaveConfig(save_interval=1)
REASON: Final = "the loss grows"

_Test = TypeVar("_Test", bound=Callable[..., None])

_VARIABLES: Final = (
    "CHECKPOINT_CONFIG_FILE_PATH",
    "SMDEBUG_CONFIG_FILE_PATH",
    "STEPWATCH_CONFIG",
    "STEPWATCH_OUT_DIR",
    "TENSORBOARD_CONFIG_FILE_PATH",
    "TRAINING_JOB_ARN",
    "TRAINING_JOB_NAME",
    "USE_SMDEBUG",
)
_numbers = itertools.count()


def contract_property(name: str) -> Callable[[_Test], _Test]:
    """Mark a test as one of a property.

    Raises:
        ValueError: The property does not exist.
    """
    if name not in PROPERTIES:
        raise ValueError(f"{name!r} is no property, add it to PROPERTIES")

    def mark(test: _Test) -> _Test:
        vars(test)["contract_property"] = name
        return test

    return mark


class ScriptError(Exception):
    """An error of the training script."""


class ContractTraining(TrainingUnderTest):
    """Creates hooks, trains with them, and returns their output."""

    @pytest.fixture(autouse=True)
    def _environment(
        self,
        request: pytest.FixtureRequest,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path_factory: pytest.TempPathFactory,
    ) -> None:
        reason = self.missing.get(getattr(request.function, "contract_property", ""))
        if reason is not None:
            pytest.skip(reason)
        temporary = str(tmp_path_factory.mktemp("system"))
        monkeypatch.setattr("tempfile.tempdir", temporary)
        monkeypatch.setenv("TMPDIR", temporary)
        for name in _VARIABLES:
            monkeypatch.delenv(name, raising=False)

    def new_hook(self, **arguments: Any) -> BaseHook:
        return self.make_hook(new_uri(), **{"save_config": EVERY_STEP, **arguments})

    def trained(self, hook: BaseHook, **arguments: Any) -> WrittenTrial:
        self.train(hook, **arguments)
        return self.closed(hook)

    def closed(self, hook: BaseHook) -> WrittenTrial:
        hook.close()
        report = hook.report()
        assert not report.errors, report
        assert not report.late_tensors, report
        return WrittenTrial(hook.trial_uri)

    @staticmethod
    def ask_to_stop(hook: BaseHook, run_id: str) -> None:
        request = StopFile(REASON, "2026-01-01T00:00:00Z", run_id)
        WrittenTrial(hook.trial_uri).store.put(STOP_FILE, request.encode())
        trial = hook.session.trial
        assert trial is not None
        trial.stop_signal.check()  # instead of waiting for its next check

    @contextmanager
    def ending(self) -> Iterator[None]:
        if not self.stop_raises:
            yield
            return
        with pytest.raises(TrainingStoppedError, match=REASON):
            yield


def failing_in(step: int) -> OnStep:
    """Return a callback that raises in one step of the training script."""

    def on_step(current: int) -> None:
        if current == step:
            raise ScriptError

    return on_step


def new_uri() -> str:
    """Return a URI without content."""
    return f"memory://hook-contract-{next(_numbers)}/"
