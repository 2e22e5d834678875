"""A hook among those of the other ranks of torch.distributed."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from functools import partial
from typing import Any, cast
from weakref import finalize, ref

from hook_layer.capture import CapturedTensor, TensorBackend
from hook_layer.configuration.hook_setup import HookSetup
from hook_layer.core.hook import BaseHook
from hook_layer.core.tensor_capture import CaptureTensors, PlannedTensors, TensorSource
from hook_layer.core.workers import Workers
from hook_layer.guard import FailureLog, guarded
from hook_layer.pytorch.distributed import (
    HookGroup,
    SharedText,
    let_reductions_end,
    rank_and_size,
)
from hook_layer.resuming.checkpoint import RunStart
from hook_layer.stop_agreement import StopAgreement

__all__ = ["TorchWorker"]

logger = logging.getLogger("stepwatch")

_ONE_WRITER = "one"


class _Bridge(BaseHook):
    """Gives attributes of the parts the names that the classes of this package use."""

    class _Of:
        def __init__(self, part: str, name: str) -> None:
            self._part, self._name = part, name

        def __get__(self, hook: Any, _: Any = None) -> Any:
            return getattr(getattr(hook, self._part), self._name)

        def __set__(self, hook: Any, value: Any) -> None:
            setattr(getattr(hook, self._part), self._name, value)

    class _Workers(Workers):
        supports_auto = True

        def __init__(self, hook: _Bridge) -> None:
            self._hook: Any = ref(hook)

        def rank_and_size(self) -> tuple[int, int]:
            return rank_and_size()

        def shared_start(self, start: RunStart) -> RunStart:
            return cast("RunStart", self._hook()._shared_start(start))  # noqa: SLF001

        def rank_groups(self) -> Iterable[int]:
            return cast("Iterable[int]", self._hook()._rank_groups())  # noqa: SLF001

        def pipeline_stage(self) -> int | None:
            return cast("int | None", self._hook()._pipeline_stage())  # noqa: SLF001

    class _Source(TensorSource):
        def __init__(self, hook: _Bridge, failures: FailureLog) -> None:
            super().__init__(failures)
            self._hook: Any = ref(hook)

        def backend_of(self, value: Any) -> TensorBackend:
            return cast("TensorBackend", self._hook()._backend_of(value))  # noqa: SLF001

        def capture(self, tensors: PlannedTensors, _: CaptureTensors) -> dict[str, CapturedTensor]:
            return cast("dict[str, CapturedTensor]", self._hook()._captured(tensors))  # noqa: SLF001

    _due, only_logs_mistakes = _Of("collector", "due"), _Of("collector", "only_logs_mistakes")
    _plan, _capture = _Of("collector", "plan"), _Of("recorder", "capture")
    _record, _lock = _Of("recorder", "record"), _Of("recorder", "lock")
    _is_captured = _Of("recorder", "is_captured")
    _saw_late_tensors = _Of("recorder", "saw_late_tensors")
    _end_step, _step_is_captured = _Of("recorder", "end_step"), _Of("recorder", "step_is_captured")
    _options, _all_workers = _Of("session", "options"), _Of("session", "all_write")
    _store, _is_writer = _Of("session", "store"), _Of("session", "is_writer")
    _agreement = _Of("stop_listener", "agreement")
    _is_training_step = _Of("stop_listener", "is_training_step")
    _names_losses = _Of("own_tensors", "has_losses")

    def __init__(self, setup: HookSetup) -> None:
        super().__init__(setup, workers=self._Workers(self), source=partial(self._Source, self))
        self.recorder.before_end(self._before_end_step)
        self.state.when_closed(self._detach)

    def _captured(self, tensors: PlannedTensors) -> dict[str, CapturedTensor]:
        return self.tensor_capture.capture_prepared(tensors)

    def _backend_of(self, value: Any) -> TensorBackend:
        return TensorSource.backend_of(self.tensor_capture.source, value)

    def _before_end_step(self) -> None: ...

    def _detach(self) -> None: ...


class TorchWorker(_Bridge):
    """A hook that begins and stops together with those of the other ranks.

    Args:
        setup: What the hook is made of.
    """

    def __init__(self, setup: HookSetup) -> None:
        super().__init__(setup)
        # What only the chief writes may have another URI in every rank, and so may a session.
        has_one_name = self.session.all_write and not self.session.place.is_in_session
        self._group = HookGroup(self.out_dir if has_one_name else _ONE_WRITER)
        self._announcement = SharedText(self._group)
        self._warned_of_fork = False

    def _announce_start(self) -> None:
        """Let other ranks that begin earlier than this one not wait."""
        if self.session.all_write:
            self._announcement.announce(lambda: self.session.chief_start().to_json())

    @guarded("stop agreement")
    def _join_the_others(self, name: str) -> None:
        """Take part in the agreement on when to stop, if there are other ranks.

        Args:
            name: What is trained; the same in all ranks.
        """
        group = self._group.stop_group(name)
        if group is None:
            return
        let_reductions_end()
        own_request = self.stop_listener.own_request
        poll_s = self.session.options.stop_poll_s
        self.stop_listener.agreement = agreement = StopAgreement(group, own_request, poll_s=poll_s)
        finalize(self, agreement.leave)

    def _warn_if_forked(self) -> None:
        """Log once that a model is called in a child process, where nothing is saved."""
        if self.state.is_enabled and not self.state.is_closed and not self._warned_of_fork:
            self._warned_of_fork = True
            logger.warning(
                "process %d, a fork, calls a registered model and saves nothing; create a "
                "hook in this process",
                os.getpid(),
            )

    def _shared_start(self, start: RunStart) -> RunStart:
        return RunStart.from_json(self._announcement.get(start.to_json))
