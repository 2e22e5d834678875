"""What happens while XGBoost boosts, and what is captured when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
from typing_extensions import Self
from xgboost import Booster
from xgboost.callback import TrainingCallback

from hook_layer.capture.captured_step import OwnedArray
from hook_layer.configuration.collection_manager import TensorPlan
from hook_layer.configuration.hook_setup import HookSetup
from hook_layer.core.events import HookCloses
from hook_layer.core.hook import BaseHook
from hook_layer.core.late_values import LateValues
from hook_layer.guard import guarded
from hook_layer.xgboost.directions import collection_of_direction, direction_of, said_directions
from hook_layer.xgboost.distributed import BoosterWorkers, RoundAgreement
from hook_layer.xgboost.evaluated_data import (
    arguments_of_training,
    collection_of_metric,
    data_to_predict,
    evaluated_data,
)
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
)
from hook_layer.xgboost.unavailable import UnavailableError

__all__ = ["BoosterEvents"]

_NO_TENSOR: Final = "?"
"""A name that no tensor has: only an expression for everything matches it."""


class BoosterEvents(BaseHook, TrainingCallback):
    """A hook that handles the callbacks of XGBoost."""

    def __init__(self, setup: HookSetup) -> None:
        workers = BoosterWorkers()
        super().__init__(setup, workers=workers, also_due=evaluated_metrics)
        self.stop_listener.raises = False  # boosting ends after a round, and keeps its model
        self.events.subscribe(HookCloses, self._release_data, "close")
        own_request = self.stop_listener.own_request
        self._agreement = RoundAgreement(self.state, own_request, workers)
        if self.session.all_write:
            self.stop_listener.agreement = self._agreement
        self._inputs = BoosterInputs()
        self._takes_inputs = setup.is_unconfigured
        self._taken: dict[str, Any] = {}
        self._wanted: dict[tuple[Any, ...], tuple[TensorGroup, ...]] = {}
        self._evaluations: EvaluationLog = {}
        self._evaluated: dict[str, bool] = {}
        self._directions: dict[str, bool] = {}
        self._num_boosted: int | None = None
        self._num_evaluated = 0
        self._in_round = self._ends_with_block = False

    def __enter__(self) -> Self:
        self._ends_with_block = True
        return super().__enter__()

    # Where the hook looks in ---------------------------------------------------------------------

    def before_training(self, model: Any) -> Any:
        """Get ready; called by XGBoost."""
        self._wanted.clear()
        self._num_boosted = None
        self._inputs.tree_steps.begin()
        self._note_evaluated()
        if self._takes_inputs:
            self._take_inputs()
        if self.state.is_closed:
            self.state.warn_once(
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

        What the script saves later becomes one more step, which the next `close` writes.
        """
        self._end_unseen_round(model)
        self._inputs.training_data.release()
        if self.is_active and not self._ends_with_block:
            self.close()
            if self.session.trial is not None:
                self.own_tensors.late = LateValues(self.recorder, self.session)
        return model

    def close(self, *, end_of_training: bool = True) -> None:
        """Write what is left, also what was saved after `xgboost.train`, see `BaseHook.close`."""
        super().close(end_of_training=end_of_training)
        late, self.own_tensors.late = self.own_tensors.late, None
        if late is not None:
            late.close()

    @guarded("metrics")
    def _note_evaluated(self) -> None:
        self._evaluated, self._directions = {}, {}
        self._inputs.training_data.begin(arguments_of_training())
        self._evaluated, self._directions = evaluated_data(), said_directions()

    @guarded("inputs")
    def _take_inputs(self) -> None:
        """Take what the script does not give from the arguments of the training."""
        inputs, known = self._inputs, arguments_of_training()
        params = known.get("params")
        taken: dict[str, Any] = {}
        if isinstance(params, Mapping):
            taken["hyperparameters"] = dict(params)
        if {"dtrain", "evals"} <= known.keys():
            taken["validation_data"] = data_to_predict(known["dtrain"], known["evals"])
        for name, value in taken.items():
            if getattr(inputs, name) is self._taken.get(name):  # none, or of an earlier training
                setattr(inputs, name, value)
                self._taken[name] = value

    @guarded("steps")
    def _begin_round(self, evaluations: EvaluationLog) -> None:
        self._in_round = False
        self.begin_step()
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
            if self.recorder.record is not None and self.collector.due:
                is_one = is_its_model and isinstance(model, Booster)
                self._capture_round(model if is_one else None, evaluations)
        finally:
            self.recorder.end_step()

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
            if group.name in self.failures.off:
                continue
            try:
                self._capture_group(group, round_tensors)
            except UnavailableError as error:
                lacking.setdefault(str(error), {})[group.collection] = None
        for reason, collections in lacking.items():
            self.state.warn_once(f"{', '.join(collections)} cannot be saved: {reason}")

    @guarded("metrics")
    def _capture_metrics(self, evaluations: EvaluationLog) -> None:
        wanted: dict[str, tuple[Any, TensorPlan]] = {}
        for name, metric, value in newest_metrics(evaluations):
            grows = direction_of(metric, evaluations, self._directions)
            plan = self.collector.plan(name, collections_of(metric, grows))
            if plan is not None:
                wanted[name] = OwnedArray(np.array([value], np.float64)), plan
                names = collection_of_metric(name, self._evaluated), collection_of_direction(grows)
                for each in filter(None, names):
                    self.collection_manager.get(each).add_tensor_name(name)
        self.recorder.capture(wanted)

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
                plan = self.collector.plan(name, (group.collection,) if is_member else ())
                if plan is not None:
                    key = id(value.array)
                    wanted[name] = replace(value, is_shared=key in arrays), plan
                    arrays.add(key)
            self.recorder.capture(wanted)
        except UnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, training continues
            self.failures.failed(group.name, error)
        else:
            self.failures.succeeded(group.name)

    def _wanted_groups(self, round_tensors: RoundTensors) -> Iterable[TensorGroup]:
        """Return the groups with anything due in this step."""
        key = self.collector.due_key
        if key not in self._wanted:
            self._wanted[key] = tuple(g for g in GROUPS if self._is_wanted(g, round_tensors))
        return self._wanted[key]

    def _is_wanted(self, group: TensorGroup, round_tensors: RoundTensors) -> bool:
        if self.collector.is_due(group.collection):
            return True
        due = [c for c in self.collector.due if not (group.has_own_names and c.matches(_NO_TENSOR))]
        try:
            return any(c.matches(name) for name in group.names(round_tensors) for c in due)
        except UnavailableError:
            return False

    def _release_data(self, _: HookCloses) -> None:
        self._inputs.train_data = self._inputs.validation_data = None  # they may be large
        self._inputs.training_data.release()

    # The way back --------------------------------------------------------------------------------

    def _ends_here(self, model: Any, epoch: int) -> bool:
        """Return whether training is to end behind this round; the same in all workers."""
        if self.session.all_write:
            self._agreement.request_of_rank_0()
        if not self.stop_listener.ends_loop(f"round {epoch}"):
            return False
        if not isinstance(model, Booster) and model.attr("best_iteration") is None:
            model.set_attr(best_iteration=str(epoch))  # xgboost.cv cuts its results there
        return True
