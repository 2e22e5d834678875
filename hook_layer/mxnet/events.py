"""What happens in a Gluon training loop, and what is captured when."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import ReferenceType, WeakKeyDictionary, ref

from mxnet import autograd
from mxnet.gluon import Block, Parameter, Trainer
from mxnet.ndarray import NDArray

from hook_layer.configuration.collections import CollectionKeys
from hook_layer.configuration.hook_setup import HookSetup
from hook_layer.core.events import HookCloses, StepEnds
from hook_layer.core.hook import BaseHook
from hook_layer.guard import guarded
from hook_layer.mxnet.blocks import name_of
from hook_layer.mxnet.calls import BlockCall, arrays_in
from hook_layer.mxnet.capturing import BlockCapture, MxnetTensors, MxnetWorkers
from hook_layer.mxnet.trainers import own_gradient, state_arrays, updated_gradient
from hook_layer.mxnet.watched_functions import (
    ARRAY_BACKWARD,
    BACKWARD,
    TRAINER_STEP,
    TRAINER_UPDATE,
    TRAINER_UPDATES,
)

__all__ = ["MxnetEvents"]

logger = logging.getLogger("stepwatch")

_LOSS_PREFIX = "Loss_output_"


@dataclass
class _Newest:
    """The model that was called last: the next backward pass is taken for its."""

    model: ReferenceType[Block] | None = None


_newest = _Newest()


class MxnetEvents(BaseHook):
    """A hook that knows what blocks, backward passes and Trainers do."""

    def __init__(self, setup: HookSetup) -> None:
        super().__init__(setup, workers=MxnetWorkers(), source=MxnetTensors)
        self.events.subscribe(StepEnds, self._on_step_end, "steps")
        self.events.subscribe(HookCloses, self._on_close, "close")
        self._blocks = BlockCapture(self.state, self.collector, self.recorder)
        self._handles: list[Any] = []
        self._passes: set[tuple[Block, Any]] = set()  # of this step: model and context
        self._is_over = False  # whether the next pass begins a step
        self._has_loss = self._awaits_update = False
        self._stepped: set[int] = set()  # Trainers, in this step and in the last that any did in
        self._stepped_before: set[int] = set()
        self._is_ours: WeakKeyDictionary[Trainer, bool] = WeakKeyDictionary()

    def _watch_model(self, model: Block) -> None:
        self._is_ours.clear()
        self._blocks.models_changed()
        if len(self._blocks.registered.models) == 1:
            self._handles += [
                BACKWARD.listen(self._on_backward),
                ARRAY_BACKWARD.listen(self._on_backward),
                TRAINER_UPDATES.listen(self._on_update, is_before_call=True),
            ]
            for function in (TRAINER_STEP, TRAINER_UPDATE):
                self._handles.append(function.listen(self._on_trainer, is_before_call=True))
                self._handles.append(function.listen(self._on_trained))
        self._handles += [
            BlockCall.before(model, self._on_forward),
            BlockCall.behind(model, self._on_forwarded),
        ]

    def _watch_loss(self, loss: Block) -> None:
        self._handles.append(BlockCall.behind(loss, self._on_loss))

    # Where the hook looks in ---------------------------------------------------------------------

    def _on_forward(self, model: Block, inputs: Any, _: Any) -> None:
        arrays = arrays_in(inputs)
        if not arrays:  # it is traced
            return
        _newest.model = ref(model)
        is_new = not self._continues(model, arrays[0])
        if is_new:
            self._blocks.refresh(model)
            self._try_to_begin_step()
        if not self.is_active:
            return
        self._passes.add((model, arrays[0].context))
        self._blocks.begin_pass(model, inputs, is_new=is_new)

    def _on_forwarded(self, model: Block, _: Any, __: Any) -> None:
        if self.collector.due:
            self._blocks.end_pass(model)

    def _continues(self, model: Block, first_input: NDArray) -> bool:
        """Return whether a pass is that of another context in a step of several ones."""
        if self._is_over or not self._passes or not self._is_parallel(model):
            return False
        context = first_input.context
        return all(known is model and other != context for known, other in self._passes)

    def _is_parallel(self, model: Block) -> bool:
        parameters = self._blocks.registered.parameters(model)
        try:
            return bool(parameters) and len(parameters[0].list_ctx()) > 1
        except RuntimeError:  # not initialised: what comes next fails, and says so
            return False

    @guarded("steps")
    def _try_to_begin_step(self) -> None:
        self._blocks.prepare_collections(is_first=not self.clock.num_steps)
        self.begin_step()
        self._blocks.begin_step()
        self._passes.clear()
        self._is_over = self._has_loss = self._awaits_update = False
        if self._stepped:
            self._stepped_before, self._stepped = self._stepped, set()

    @guarded("losses")
    def _on_loss(self, loss: Block, inputs: Any, outputs: Any) -> None:
        if not arrays_in(outputs):  # it is traced
            return
        self._has_loss = True
        if self.collector.due:
            self._blocks.capture(self._blocks.numbered(f"{name_of(loss)}_input_", inputs))
            losses = self._blocks.numbered(f"{name_of(loss)}_output_", outputs)
            self._blocks.capture(losses, member_of=(CollectionKeys.LOSSES,))

    @guarded("losses")
    def _on_backward(self, args: tuple[Any, ...], _: None) -> None:
        if not self._is_newest():
            return
        heads, *others = args
        has_gradients = bool(arrays_in(others))  # the rest are switches
        is_named = self._has_loss or self.own_tensors.has_losses or has_gradients
        if self.collector.due and not is_named:
            named = self._blocks.numbered(_LOSS_PREFIX, heads)
            self._blocks.capture(named, member_of=(CollectionKeys.LOSSES,))
        self._take_gradients()

    def _is_newest(self) -> bool:
        """Return whether the model that was called last is one of this hook."""
        newest = None if _newest.model is None else _newest.model()
        return newest in self._blocks.registered.models

    @guarded("gradients")
    def _take_gradients(self) -> None:
        """Capture the gradients that no Trainer is going to update parameters with."""
        trained, others = self._by_trainer()
        self._awaits_update = bool(trained)
        if self.collector.due:
            self._capture_gradients(others)
        if not trained and not any(
            self._is_parallel(model) for model in self._blocks.registered.models
        ):
            self.recorder.step_is_captured()

    def _by_trainer(self) -> tuple[list[Parameter], list[Parameter]]:
        """Return the parameters that have a Trainer, and those that have none."""
        trained: list[Parameter] = []
        others: list[Parameter] = []
        for parameter in self._blocks.registered.all_parameters():
            has_trainer = parameter._trainer is not None  # noqa: SLF001 - no public way
            (trained if has_trainer else others).append(parameter)
        return trained, others

    @guarded("optimizer variables")
    def _on_trainer(self, args: tuple[Any, ...], _: Any) -> None:
        trainer = args[0]
        is_due = CollectionKeys.OPTIMIZER_VARIABLES in self.collector.due_key
        if is_due and self._trains_our_parameters(trainer):
            names = (parameter.name for parameter in self._blocks.registered.all_parameters())
            self._blocks.capture(state_arrays(trainer, names))

    @guarded("gradients")
    def _on_update(self, args: tuple[Any, ...], _: Any) -> None:
        trainer = args[0]
        if self.collector.due and self._trains_our_parameters(trainer):
            ours = self._ids_of_parameters()
            trained = [p for p in trainer._params if id(p) in ours]  # noqa: SLF001 - no public way
            self._capture_gradients(trained, partial(updated_gradient, trainer))

    @guarded("steps")
    def _on_trained(self, args: tuple[Any, ...], _: Any) -> None:
        trainer = args[0]
        if not self._trains_our_parameters(trainer):
            return
        self._stepped.add(id(trainer))
        if self._stepped_before <= self._stepped:
            self._is_over = True
            self._awaits_update = False
            self.recorder.step_is_captured()

    # How -----------------------------------------------------------------------------------------

    def _on_step_end(self, _: StepEnds) -> None:
        if self.recorder.record is not None and self._awaits_update:
            self._capture_accumulated()
        self._is_over = True
        self._awaits_update = False

    @guarded("gradients")
    def _capture_accumulated(self) -> None:
        """Capture gradients of a step that ends without a Trainer's."""
        if self.collector.due:
            self._capture_gradients(self._by_trainer()[0])

    def _capture_gradients(
        self,
        parameters: list[Parameter],
        gradient_of: Callable[[Parameter], NDArray | None] = own_gradient,
    ) -> None:
        due = self._blocks.due_gradients(parameters).items()
        with autograd.pause():
            gradients = {name: gradient_of(parameter) for name, parameter in due}
        self._blocks.capture({name: g for name, g in gradients.items() if g is not None})

    def _ids_of_parameters(self) -> set[int]:
        return {id(parameter) for parameter in self._blocks.registered.all_parameters()}

    def _trains_our_parameters(self, trainer: Trainer) -> bool:
        known = self._is_ours.get(trainer)
        if known is None:
            ours = self._ids_of_parameters()
            known = any(id(p) in ours for p in trainer._params)  # noqa: SLF001 - no public way
            self._is_ours[trainer] = known
        return known

    def _replace_models(self) -> None:
        """Release the models, because the script registers another one; losses stay."""
        logger.warning(
            "the script registers a model after another one trained: from step %d on the hook "
            "watches only the registered one; register it earlier",
            self.step + 1,
        )
        self.recorder.end_step()
        losses = self._blocks.registered.losses
        self._release_models()
        for loss in losses:
            self._blocks.registered.add_loss(loss)
            self._watch_loss(loss)

    def _on_close(self, _: HookCloses) -> None:
        self._release_models()

    def _release_models(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        # Who keeps the closed hook, as `get_hook` does, must not keep models and Trainers.
        self._blocks.release()
        self._passes.clear()
