"""What happens while XGBoost boosts, and what is captured when; see `hook_layer.xgboost`."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
from typing_extensions import Self
from xgboost import Booster
from xgboost.callback import TrainingCallback

from hook_layer.capture import StepRecord, TensorBackend
from hook_layer.collection_manager import TensorPlan
from hook_layer.collections import Collection
from hook_layer.configuration.hook_setup import HookSetup
from hook_layer.format.job_file import StopFile, parse_stop_file
from hook_layer.guard import guarded
from hook_layer.hook import BaseHook
from hook_layer.resuming.checkpoint import RunStart
from hook_layer.session import TrialSession
from hook_layer.xgboost.arrays import ComputedArray, ComputedArrayBackend
from hook_layer.xgboost.directions import collection_of_direction, direction_of, said_directions
from hook_layer.xgboost.distributed import rank_and_size, shared_text
from hook_layer.xgboost.evaluated_data import collection_of_metric, evaluated_data
from hook_layer.xgboost.late_values import LateValues
from hook_layer.xgboost.metrics import (
    EvaluationLog,
    collections_of,
    evaluated_metrics,
    newest_metrics,
    num_evaluated_rounds,
)
from hook_layer.xgboost.tensors import (
    GROUPS,
    BoosterInputs,
    RoundTensors,
    TensorGroup,
    UnavailableError,
)

__all__ = ["BoosterEvents"]

logger = logging.getLogger("stepwatch")

_NO_TENSOR: Final = "?"
"""A name that no tensor has: only an expression for everything matches it."""


class BoosterEvents(BaseHook, TrainingCallback):
    """A hook that handles the callbacks of XGBoost.

    Args:
        setup: What the hook is made of.
    """

    def __init__(self, setup: HookSetup) -> None:
        super().__init__(setup)
        self._inputs = BoosterInputs()
        self._computed_backend = ComputedArrayBackend()
        self._wanted: dict[tuple[Any, ...], tuple[TensorGroup, ...]] = {}
        self._said: set[str] = set()
        self._identity: tuple[int, int] | None = None
        self._request: StopFile | None = None  # what all workers are asked, where they agree
        self._evaluations: EvaluationLog = {}
        self._evaluated: dict[str, bool] = {}
        self._directions: dict[str, bool] = {}
        self._num_boosted: int | None = None
        self._num_evaluated = 0
        self._in_round = self._ends_with_block = False
        self._late: LateValues | None = None

    def __enter__(self) -> Self:
        self._ends_with_block = True
        return super().__enter__()

    # Where the hook looks in ---------------------------------------------------------------------

    def before_training(self, model: Any) -> Any:
        """Get ready; called by XGBoost."""
        self._wanted.clear()
        self._num_boosted = None
        self._note_evaluated()
        if self._closed:
            self._say_once(
                "the hook was closed at the end of an earlier run and saves nothing of this one; "
                "create a new hook, or train in a block `with hook:`"
            )
        return model

    def before_iteration(
        self,
        model: Any,  # noqa: ARG002
        epoch: int,  # noqa: ARG002
        evals_log: EvaluationLog,
    ) -> bool:
        """Begin a step; called by XGBoost."""
        self._begin_round(evals_log)
        return False

    def after_iteration(self, model: Any, epoch: int, evals_log: EvaluationLog) -> bool:
        """Capture a round and hand it over; called by XGBoost.

        Returns:
            Whether training is to end here, since it was asked to stop.
        """
        if not self._in_round:
            self._begin_round(evals_log)
        self._end_round(model, evals_log)
        return self._ends_here(model, epoch)

    def after_training(self, model: Any) -> Any:
        """Close, unless the hook is used in a `with` block; called by XGBoost.

        What the script saves later becomes one more step, written at the next `close`.
        """
        self._end_unseen_round(model)
        if not self._ends_with_block:
            is_first_end = not self._closed
            self.close()
            if is_first_end and self._closed:
                self._late = self._late_values()
        return model

    def close(self, *, end_of_training: bool = True) -> None:
        """Write what is left, also what was saved after `xgboost.train`; as for other frameworks.

        Args:
            end_of_training: False when training must be resumed later: no end marker then.
        """
        super().close(end_of_training=end_of_training)
        late, self._late = self._late, None
        if late is not None:
            late.close()

    def _late_values(self) -> LateValues | None:
        """Return what takes values after the end of the run; None where this worker writes none."""
        session, start = self._session, self._run_start
        if session is None or start is None:
            return None
        targets, identity = self._place.targets, session.identity
        end = replace(
            start,
            step=self.step,
            saved_step=self._last_saved_step,
            sequence=session.writer.submitted_sequence,
        )
        return LateValues(
            StepRecord(self.step + 1, self.mode, self.mode_steps[self.mode] + 1),
            targets.out,
            identity.run_id,
            partial(TrialSession, targets, identity, end, self._place.job, self._options),
            self.collection_manager,
            self._options.close_timeout_s,
        )

    def _save(self, name: str, value: Any, plan: TensorPlan, timestamp: float | None) -> None:
        late = self._late
        if late is None:
            super()._save(name, value, plan, timestamp)
            return
        with self._lock:
            self.collection_manager.note(name)
            late.add(self._captured({name: (value, plan)}), timestamp)

    @guarded("metrics")
    def _note_evaluated(self) -> None:
        self._evaluated, self._directions = {}, {}
        self._evaluated, self._directions = evaluated_data(), said_directions()

    @guarded("steps")
    def _begin_round(self, evaluations: EvaluationLog) -> None:
        self._in_round = False
        self._begin_step()
        self._in_round = True
        self._evaluations = evaluations
        self._num_evaluated = num_evaluated_rounds(evaluations)

    @guarded("steps")
    def _end_round(
        self, model: Any, evaluations: EvaluationLog, *, is_its_model: bool = True
    ) -> None:
        self._in_round = False
        self._num_boosted = model.num_boosted_rounds()
        try:
            if self._record is not None and self._due:
                is_one = is_its_model and isinstance(model, Booster)
                self._capture_round(model if is_one else None, evaluations)
        finally:
            self._end_step()

    @guarded("steps")
    def _end_unseen_round(self, model: Any) -> None:
        """Capture the last round, if another callback ended training before this one was called."""
        if not self._in_round or num_evaluated_rounds(self._evaluations) == self._num_evaluated:
            return
        is_its_model = self._num_boosted in (None, model.num_boosted_rounds() - 1)
        self._end_round(model, self._evaluations, is_its_model=is_its_model)

    # How -----------------------------------------------------------------------------------------

    def _capture_round(self, model: Booster | None, evaluations: EvaluationLog) -> None:
        self._capture_metrics(evaluations)
        round_tensors = RoundTensors(self._inputs, model)
        lacking: dict[str, dict[str, None]] = {}
        for group in self._wanted_groups(round_tensors):
            if self.failures.is_off(group.name):
                continue
            try:
                self._capture_group(group, round_tensors)
            except UnavailableError as error:
                lacking.setdefault(str(error), {})[group.collection] = None
        for reason, collections in lacking.items():
            self._say_once(f"{', '.join(collections)} cannot be saved: {reason}")

    @guarded("metrics")
    def _capture_metrics(self, evaluations: EvaluationLog) -> None:
        wanted: dict[str, tuple[Any, TensorPlan]] = {}
        for name, metric, value in newest_metrics(evaluations):
            grows = direction_of(metric, evaluations, self._directions)
            plan = self._plan(name, collections_of(metric, grows))
            if plan is not None:
                wanted[name] = ComputedArray(np.array([value], np.float64)), plan
                names = collection_of_metric(name, self._evaluated), collection_of_direction(grows)
                for each in filter(None, names):
                    self.collection_manager.get(each).add_tensor_name(name)
        self._capture(wanted)

    def _capture_group(self, group: TensorGroup, round_tensors: RoundTensors) -> None:
        """Compute and capture a group; what goes wrong costs this group alone.

        Raises:
            UnavailableError: The group does not exist in this training.
        """
        try:
            wanted: dict[str, tuple[Any, TensorPlan]] = {}
            arrays: set[int] = set()
            for name, value in group.compute(round_tensors).items():
                is_member = group.is_member(name, round_tensors)
                plan = self._plan(name, (group.collection,) if is_member else ())
                if plan is not None:
                    key = id(value.array)
                    wanted[name] = replace(value, is_shared=key in arrays), plan
                    arrays.add(key)
            self._capture(wanted)
        except UnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, training continues
            self.failures.failed(group.name, error)
        else:
            self.failures.succeeded(group.name)

    def _due_collections(self, mode_step: int) -> tuple[Collection, ...]:
        """Return what is due; also metrics whose collection asks for this evaluation."""
        due = super()._due_collections(mode_step)
        evaluated = evaluated_metrics(self.collection_manager, self.mode, mode_step)
        known = {collection.name for collection in due}
        return (*due, *(each for each in evaluated if each.name not in known))

    def _wanted_groups(self, round_tensors: RoundTensors) -> Iterable[TensorGroup]:
        """Return the groups with anything due in this step."""
        key = (self.collection_manager.version, *(collection.name for collection in self._due))
        if key not in self._wanted:
            self._wanted[key] = tuple(g for g in GROUPS if self._is_wanted(g, round_tensors))
        return self._wanted[key]

    def _is_wanted(self, group: TensorGroup, round_tensors: RoundTensors) -> bool:
        if any(collection.name == group.collection for collection in self._due):
            return True
        due = [c for c in self._due if not (group.has_own_names and c.matches(_NO_TENSOR))]
        try:
            return any(c.matches(name) for name in group.names(round_tensors) for c in due)
        except UnavailableError:
            return False

    def _backend_of(self, value: Any) -> TensorBackend:
        is_ours = isinstance(value, ComputedArray)
        return self._computed_backend if is_ours else super()._backend_of(value)

    def _accepts(self, name: str) -> bool:
        if self._closed and self._late is None:
            self._say_once(
                "the hook is closed and stores nothing more; save values before `hook.close()`"
            )
        return super()._accepts(name)

    def _detach(self) -> None:
        super()._detach()
        self._inputs.train_data = self._inputs.validation_data = None  # they may be large

    def _say_once(self, message: str) -> None:
        if self._enabled and message not in self._said:
            self._said.add(message)
            logger.warning(message)

    # The other workers, and the way back ---------------------------------------------------------

    def _rank_and_size(self) -> tuple[int, int]:
        rank, size = rank_and_size()
        if size > 1:  # a hook may be closed when the workers have parted
            self._identity = rank, size
        return self._identity or (rank, size)

    def _shared_start(self, start: RunStart) -> RunStart:
        return RunStart.from_json(shared_text(start.to_json()))

    def _stop_if_asked(self) -> None:
        """Do nothing where a round begins: boosting ends behind one, and keeps its model."""

    def _stop_now(self) -> StopFile | None:
        if self._all_workers and self._rank_and_size()[1] > 1:
            return self._request
        return self._stop_request()

    def _ends_here(self, model: Any, epoch: int) -> bool:
        """Return whether training is to end behind this round; the same in all workers."""
        self._ask_rank_0()
        request = self._stop_now()
        if request is None or self._options.stop != "raise":
            return False
        if self._rank_and_size()[1] > 1 and not self._all_workers:
            self._say_once(
                "a stop request only sets hook.should_stop; to stop several ranks, create a hook "
                "in each with include_workers='all'"
            )
            return False
        logger.warning("training ends after round %d, as requested: %s", epoch, request.reason)
        if not isinstance(model, Booster) and model.attr("best_iteration") is None:
            model.set_attr(best_iteration=str(epoch))  # xgboost.cv cuts its results there
        return True

    def _ask_rank_0(self) -> None:
        """Learn from rank 0 whether all are to stop.

        All workers do this behind every round, whatever else failed in them.
        """
        if not self._enabled or not self._all_workers or self._request is not None:
            return
        if rank_and_size()[1] == 1:
            return
        own = self._stop_request()
        try:
            text = shared_text("" if own is None else own.encode().decode())
            if text:
                self._request = parse_stop_file(text.encode(), file="the word of worker 0")
        except Exception as error:  # noqa: BLE001 - training will meet what is wrong, too
            self.failures.failed("stop", error)
