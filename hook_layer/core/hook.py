"""The base of all hooks: what users call, and how its parts work together.

A framework's hook observes its training loop and calls

* `begin_step` when a step begins, which also ends a previous open step,
* `collector.plan` and `recorder.capture` for tensors that it finds,
* `recorder.step_is_captured` when usually everything of a step is captured,
* `recorder.end_step` when nothing of the step can follow.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, ClassVar

from typing_extensions import Self

from hook_layer.capture.byte_budget import DEFAULT_RUN_BYTES, DEFAULT_STEP_BYTES, ByteBudget
from hook_layer.configuration.collections import (
    Collection,
    CollectionKeys,
)
from hook_layer.configuration.hook_json import HookConfiguration, load_hook_configuration
from hook_layer.configuration.hook_setup import FrameworkDefaults, HookSetup
from hook_layer.configuration.job import hook_enabled
from hook_layer.configuration.save_config import save_config_changes
from hook_layer.core.clock import StepClock
from hook_layer.core.collector import AlsoDue, Collector
from hook_layer.core.earlier_hooks import EarlierHooks
from hook_layer.core.interruption import Interruption
from hook_layer.core.logged_values import LoggedValues
from hook_layer.core.own_tensors import OwnTensors
from hook_layer.core.recorder import Recorder
from hook_layer.core.session import Session
from hook_layer.core.state import HookState, Part
from hook_layer.core.stop_listener import StopListener
from hook_layer.core.tensor_capture import TensorCapture, TensorSource
from hook_layer.core.workers import Workers
from hook_layer.delivery.counters import WriterCounters
from hook_layer.errors import HookConfigurationError, TrainingStoppedError, nearest
from hook_layer.format.job_file import StopFile
from hook_layer.format.modes import ModeKeys
from hook_layer.guard import FailureLog, guarded
from hook_layer.process.inactive_copy import InactiveCopy
from hook_layer.process.process_end import ProcessEnd
from hook_layer.process.this_process import this_process
from hook_layer.process.uncaught_errors import about_to_stop
from hook_layer.report import HookReport

__all__ = ["BaseHook"]

logger = logging.getLogger("stepwatch")


class BaseHook(Part):
    """Base class of the hooks of all frameworks.

    Args:
        setup: Configuration of the hook.
        workers: The ranks of a distributed run.
        source: Creates the object that captures the framework's tensors.
        also_due: Returns further collections that are saved in a step.

    Attributes:
        collection_manager: Its collections.
        state: Its errors, run time and lifecycle.
        clock: Step numbers.
        collector: Decides what is saved in the open step.
        tensor_capture: Captures tensors.
        recorder: Tensors of the open step.
        session: The trial of the run.
        stop_listener: Decides whether the run stops.
        own_tensors: Tensors that the script saves itself.
        logged: Numbers that the script logs elsewhere.
        interruption: Stores captured tensors when a signal interrupts training.
        failures: Errors by part, and disabled parts.
        stopwatch: Time that the hook took from training.
    """

    _defaults: ClassVar[FrameworkDefaults]
    _has_warned_of_traces: ClassVar[bool] = False

    def __init__(
        self,
        setup: HookSetup,
        *,
        workers: Workers | None = None,
        source: Callable[[FailureLog], TensorSource] = TensorSource,
        also_due: AlsoDue | None = None,
    ) -> None:
        options, workers = setup.options, workers or Workers()
        self.collection_manager = setup.manager
        super().__init__(HookState())
        state = self.state
        self.clock = StepClock()
        self.collector = Collector(setup.manager, state.events, also_due)
        self.session = Session(setup, state, self.clock, workers, self._give_way)
        tensors = source(state.failures)
        budget = ByteBudget(options.max_step_bytes, options.max_run_bytes)
        self.tensor_capture = TensorCapture(
            tensors, state.failures, budget, with_statistics=options.statistics
        )
        self.recorder = Recorder(
            self.clock, self.collector, self.tensor_capture, self.session.hand_over, state.events
        )
        self.stop_listener = StopListener(options.stop, self.session.stop_request, workers)
        self.own_tensors = OwnTensors(
            state, setup.manager, self.recorder, tensors, self.session.may_write
        )
        self.logged = LoggedValues(
            state,
            setup.manager,
            self.recorder,
            lambda: workers.rank_and_size()[0],
        )
        self.interruption = Interruption(self.session, self.recorder, self.clock)
        self._earlier: EarlierHooks | None = None  # None: no earlier run of this process
        self._close_s = 0.0
        self._next_due = -1.0
        self._configuration: tuple[int, ...] = ()
        self._process_end = ProcessEnd(self) if state.is_enabled else None

    @classmethod
    def create_from_json_file(cls, json_file_path: str | os.PathLike[str] | None = None) -> Self:
        """Create a hook from a configuration file, which attaches to the first training.

        `docs/reference/hook-configuration.md` describes the file. A hook for PyTorch or MXNet
        watches the first model that trains, unless the script registers one.

        Args:
            json_file_path: The file. None: the file in `STEPWATCH_CONFIG`, or else in
                `SMDEBUG_CONFIG_FILE_PATH`, or else SageMaker's file in the container.

        Raises:
            ConfigurationFileNotFoundError: The file does not exist.
            HookConfigurationError: The file has a mistake.
        """
        is_on = hook_enabled()
        configuration = load_hook_configuration(json_file_path) if is_on else HookConfiguration()
        hook = cls(configuration=configuration)  # type: ignore[call-arg]  # of the frameworks' hooks
        hook.attach_to_first_model()
        return hook

    def attach_to_first_model(self) -> None:
        """Watch the first model that trains, if the framework's hook supports it."""

    # Steps and modes -----------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """Global step, counted over all modes from 0; -1 before the first."""
        return self.clock.step

    @property
    def mode(self) -> ModeKeys:
        """Mode of the current and later steps."""
        return self.clock.mode

    @property
    def mode_steps(self) -> Mapping[ModeKeys, int]:
        """Step of each mode; GLOBAL has the global step."""
        return self.clock.mode_steps

    def set_mode(self, mode: ModeKeys) -> None:
        """Set the mode of later steps; an open step of another mode ends now.

        Raises:
            HookConfigurationError: `mode` is not a mode.
        """
        _check_mode(mode)
        if mode is not self.clock.mode and self.is_active:
            self.recorder.end_step()
            self._next_due = -1
        self.clock.set_mode(mode)

    def count_unsaved_step(self) -> bool:
        """Count a step in which nothing is due but counting; return False for any other step."""
        clock, state, trial = self.clock, self.state, self.session.trial
        # Without calls, because this runs in every step.
        configuration = (save_config_changes.number, *map(len, self.collection_manager.counted))
        if clock.step + 1 >= self._next_due or configuration != self._configuration:
            return False
        is_active = not state.is_closed and this_process.pid == state.pid
        is_stopped = trial is None or trial.stop_signal.requested is not None
        if not is_active or is_stopped or self.failures.off:
            return False
        clock.count()
        self.recorder.skip_step()
        return True

    def _find_next_due(self) -> None:
        """Find the next step in which more than counting may be due."""
        clock, session = self.clock, self.session
        has_others = self.stop_listener.agreement is not None or self._earlier is not None
        if session.trial is None or has_others or session.resumption.looks_for_checkpoints:
            self._next_due = -1
            return
        mode_step = clock.mode_step
        in_mode = self.collector.next_step(clock.mode, mode_step)
        self._next_due = clock.step + in_mode - mode_step
        self._configuration = self.collection_manager.configuration()

    def begin_step(self) -> None:
        """Begin a step, and end the previous one if it is still open.

        Raises:
            TrainingStoppedError: A stop of this run was requested, and the hook is set to raise.
            HookConfigurationError: The collections are misconfigured (at the first step only).
        """
        session = self.session
        self.recorder.end_step()
        if session.resumption.looks_for_checkpoints:
            session.resumption.check_for_checkpoint()
        if session.is_writer is None:
            # A stopped session begins no run, no matter how its framework stops.
            refusal = self.stop_listener.refuse(session.place.stop_request)
            if refusal is not None:
                self.close()
                raise TrainingStoppedError(refusal.reason, refusal.rule_configuration_name)
        request = self.stop_listener.begin_step()
        if request is not None:
            self._stop(request)
        self._open()
        self.clock.count()
        if self._earlier is not None and not self._earlier.count_step():
            self._earlier = None
        if session.is_writer:
            self.recorder.begin_step()
        else:
            self.recorder.skip_step()
        self._find_next_due()

    def training_resumes_at(self, step: int) -> None:
        """Continue the step numbers of a training that its framework resumes.

        It does nothing after the first step has begun, or if a checkpoint's state has a later step.

        Args:
            step: The number of the next step, from 0.
        """
        self.session.resumption.framework_step = step

    @property
    def training_run(self) -> int:
        """How often this training was interrupted and resumed; known from the first step on."""
        start = self.session.resumption.start
        return 0 if start is None else start.training_run

    # Collections ---------------------------------------------------------------------------------

    def get_collection(self, name: str, create: bool = True) -> Collection:
        """Return a collection; create it if it does not exist and `create` is set."""
        return self.collection_manager.get(name, create=create)

    def get_collections(self) -> dict[str, Collection]:
        """Return all collections by name."""
        return self.collection_manager.collections

    def add_collection(self, collection: Collection) -> None:
        """Add a collection; it replaces one with the same name."""
        if not isinstance(collection, Collection):
            raise HookConfigurationError(f"collection={collection!r} must be a Collection")
        self.collection_manager.add(collection)

    @guarded("collections")
    def export_collections(self) -> None:
        """Write the collections file now, without waiting for a step."""
        with self.recorder.lock:
            if not self.session.needs_other_ranks:  # otherwise the first step writes the file
                self._open()
                self.session.write_collections()

    def has_default_hook_configuration(
        self, default_saved_collections: Iterable[str] | None = None
    ) -> bool:
        """Return whether exactly the default collections are saved.

        Args:
            default_saved_collections: Names of the default collections; None: the framework's.
        """
        if default_saved_collections is None:
            default_saved_collections = self._defaults.always_saved
        saved = self.collection_manager.include
        if CollectionKeys.ALL in saved:
            saved = set(self.collection_manager.collections)
        return saved == set(default_saved_collections)

    def has_default_configuration(self) -> bool:
        """Same as `has_default_hook_configuration`, because there is no profiler to configure."""
        return self.has_default_hook_configuration()

    def should_save_tensor_or_collection(self, tensor_name: str, collection_name: str) -> bool:
        """Return whether a tensor is saved in the step in progress; False before the first step.

        Args:
            tensor_name: Name of the tensor; for a gradient also the parameter's name.
            collection_name: A collection that contains the tensor regardless of its name, if the
                collection is saved and has no regular expressions.
        """
        for collection in self.collector.due:
            if collection.name == collection_name and not collection.include_regex:
                return True
            if collection.matches(tensor_name):
                return True
        is_gradient = collection_name == CollectionKeys.GRADIENTS
        gradient = f"gradient/{tensor_name}"
        return is_gradient and any(c.matches(gradient) for c in self.collector.due)

    # Tensors of the script -----------------------------------------------------------------------

    def save_scalar(
        self, name: str, value: Any, sm_metric: bool = False, timestamp: float | None = None
    ) -> None:
        """Save one number as `scalar/<name>` in the step in progress.

        If that step is not saved, the number is kept for the next saved step, where the newest
        value of a name wins. So a scalar never causes a step to be saved.

        Args:
            name: Name of the number.
            value: A number, or a tensor of one element.
            sm_metric: Accepted for compatibility; Stepwatch sends no metrics to SageMaker.
            timestamp: Time of the value, seconds since 1970 (default: when the step began).

        Raises:
            TypeError: `name` is not a string; `value` has several elements, or is not a number.
        """
        if sm_metric:
            logger.debug(
                "sm_metric of %s is ignored, because SageMaker's metrics file does not exist", name
            )
        self.own_tensors.save_scalar(name, value, timestamp)

    def save_tensor(
        self,
        tensor_name: str,
        tensor_value: Any,
        collections_to_write: str | Sequence[str] = CollectionKeys.DEFAULT,
    ) -> None:
        """Save a tensor of your own, if the step in progress is saved.

        Args:
            tensor_name: Its name.
            tensor_value: A tensor, an array, or anything that numpy converts to an array.
            collections_to_write: Collections that it becomes part of; they decide what is stored.

        Raises:
            TypeError: `tensor_name` is not a string.
        """
        self.own_tensors.save_tensor(tensor_name, tensor_value, collections_to_write)

    def record_trace_events(
        self,
        timestamp: float,
        training_phase: str = "",
        op_name: str = "",
        phase: str = "X",  # noqa: ARG002
        duration: float = 1,  # noqa: ARG002
        **kwargs: Any,  # noqa: ARG002
    ) -> None:
        """Accept an event of the original's profiler; store nothing."""
        if not BaseHook._has_warned_of_traces:
            BaseHook._has_warned_of_traces = True
            logger.warning(
                "record_trace_events stores nothing (first call: %r, %r at %s), because "
                "Stepwatch has no profiler; use the profiler of your framework",
                training_phase,
                op_name,
                timestamp,
            )

    # Stop requests -------------------------------------------------------------------------------

    @property
    def should_stop(self) -> bool:
        """Whether a stop of this run was requested and is possible now.

        If several ranks agree on stopping (`hook_layer.run.stop_agreement`), this turns True in all
        of them in the same training step. A rank that gets False must begin another step.
        """
        return self.stop_listener.request is not None

    @property
    def was_stopped(self) -> bool:
        """Whether a stop was requested and the hook is responsible for it."""
        return self.stop_listener.ending_request is not None

    @property
    def stop_reason(self) -> str | None:
        """Reason for stopping this run; None while `should_stop` is False."""
        request = self.stop_listener.request
        return None if request is None else request.reason

    # Lifecycle -----------------------------------------------------------------------------------

    @property
    def out_dir(self) -> str:
        """Folder or URI of the tensors: as given, unless the run got its own folder."""
        return self.session.place.targets.out_dir

    @property
    def tensorboard_dir(self) -> str | None:
        """Folder or URI of the TensorBoard files; None if none are written."""
        return self.session.place.targets.tensorboard_dir

    @property
    def trial_uri(self) -> str:
        """URI of the trial's root, such as `file:///home/me/runs/mnist/`."""
        return self.session.store.uri

    @property
    def is_refused(self) -> bool:
        """Whether this run is not watched because its session watches no further run."""
        return self.session.is_refused

    @property
    def dry_run(self) -> bool:
        """Whether the hook decides everything but stores nothing."""
        return self.session.dry_run

    @dry_run.setter
    def dry_run(self, value: bool) -> None:
        self.session.dry_run = value

    def follow(self, earlier: Iterable[BaseHook]) -> None:
        """Close the hooks of earlier runs of this process after those have ended."""
        self._earlier = EarlierHooks(earlier)

    def limit_values(self) -> None:
        """Limit the bytes of values, as for scripts without a hook; keep limits that are set."""
        options = self.session.options
        self.tensor_capture.budget = ByteBudget(
            options.max_step_bytes or DEFAULT_STEP_BYTES, options.max_run_bytes or DEFAULT_RUN_BYTES
        )

    def report(self) -> HookReport:
        """Return a report of the work so far."""
        trial = self.session.trial
        writer = WriterCounters() if trial is None else trial.writer.counters
        return HookReport(
            steps_seen=self.clock.num_steps,
            late_tensors=self.recorder.num_late,
            errors=dict(self.failures.errors),
            writer=replace(writer),
            training_s=self.stopwatch.seconds,
            close_s=self._close_s,
            training_run=self.training_run,
            cut=tuple(self.tensor_capture.budget.cut.values()),
            not_captured=self.failures.not_captured,
        )

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until everything handed over is stored; return False on timeout."""
        trial = self.session.trial
        if trial is None or self.state.is_forked:
            return True
        return trial.writer.wait_until_idle(timeout_s)

    def close(self, *, end_of_training: bool = True) -> None:
        """Write the remaining data and the end marker; further calls do nothing.

        A hook without a step and without saved values writes nothing, so there is no trial. Values
        that were saved after the last step become part of it.

        `close` runs automatically when the process ends, also after an exception, because training
        ended. A killed process (such as a spot instance) leaves no end marker, and neither does one
        that got SIGTERM. Data that could not be delivered is logged, and listed in `report()`.

        Args:
            end_of_training: False if training will be resumed later: then no end marker is written.
        """
        if not self.is_active:  # a forked child might wait for the lock forever
            return
        started = time.perf_counter()
        with self.recorder.lock:
            if self.state.is_closed:
                return
            self.recorder.end_step()
            self.session.resumption.check_for_checkpoint()
            self.logged.leave()
            self._save_pending()
            self.state.close()
            self.stop_listener.close()
        if self._process_end is not None:
            self._process_end.cancel()
        if self.failures.errors:
            logger.warning("errors while capturing, by part: %s", dict(self.failures.errors))
        is_interrupted = self.interruption.signal is not None
        self.session.close(end_of_training=end_of_training and not is_interrupted)
        self.interruption.close()
        self.session.place.end(*self._how_it_ended())
        self._close_s = time.perf_counter() - started

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return InactiveCopy, (type(self),)

    def __del__(self) -> None:
        # This must not take a lock or wait; the handler at process end does the rest.
        process_end = getattr(self, "_process_end", None)
        if process_end is None or self.state.is_closed or self.state.is_forked:
            return
        records = (self.recorder.record, self.recorder.pending_record())
        self.session.leave(
            [record for record in records if record is not None],
            process_end,
            end_of_training=self.interruption.signal is None,
        )

    # How the parts work together -----------------------------------------------------------------

    def _open(self) -> None:
        """Open the trial at the first call."""
        if self.session.is_writer is None:
            self.session.open()
            self.interruption.listen()

    def _stop(self, request: StopFile) -> None:
        self.close()
        about_to_stop()
        raise TrainingStoppedError(request.reason, request.rule_configuration_name)

    def _save_pending(self) -> None:
        """Save values after the last saved step as part of the last step."""
        names = self.recorder.pending_names
        if not names:
            return
        if self.session.needs_other_ranks:  # other ranks may be gone
            logger.warning("values outside of any step are not stored: %s", ", ".join(names))
            return
        self._open()
        record = self.recorder.take_pending()
        if self.session.is_writer and record is not None:
            self.session.hand_over(record)

    def _how_it_ended(self) -> tuple[str, str | None]:
        if self.interruption.signal is not None:
            return "Killed", self.interruption.signal.name
        return ("Stopped", self.stop_reason) if self.was_stopped else ("Completed", None)

    def _give_way(self) -> None:
        """Close, because a newer hook of this process writes to the same folder."""
        logger.warning(
            "a newer hook of this process writes to %s, so this one is closed at step %d",
            self.trial_uri,
            self.step,
        )
        try:
            self.close(end_of_training=False)
        except Exception as error:  # noqa: BLE001 - the newer hook must not fail
            self.failures.failed("close", error)


def _check_mode(mode: object) -> None:
    if not isinstance(mode, ModeKeys):
        names = [f"modes.{key.name}" for key in ModeKeys]
        raise HookConfigurationError(f"mode={mode!r}: {nearest(str(mode), names)}")
