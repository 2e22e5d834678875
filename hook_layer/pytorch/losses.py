"""Finds the losses of a step: from loss modules, loss functions, and names that a script gives."""

from __future__ import annotations

from typing import Any, Final

from torch import Tensor, nn

from hook_layer.configuration.collections import LOSS_INPUTS, CollectionKeys
from hook_layer.core import events
from hook_layer.core.hook import BaseHook
from hook_layer.format.known_collections import (
    LOSS_MATCHES,
    MINIMISED,
    NOT_FINITE,
    STANDARD_LOSS,
)
from hook_layer.guard import guarded
from hook_layer.process.script_lines import script_line
from hook_layer.pytorch.calls import ModuleHooks, tensors_in
from hook_layer.pytorch.loop_state import LoopState, TorchPart
from hook_layer.pytorch.loss_calls import UNNAMED, FunctionalLosses, outputs_first
from hook_layer.pytorch.loss_operations import LossOperations
from hook_layer.pytorch.standard_losses import FormulaMatches, standard_losses
from hook_layer.pytorch.watched_functions import LOSS_FUNCTIONS, WatchedLoss

__all__ = ["LossTracer"]

_MOST_INPUTS: Final = 4
_MANY_LOSSES: Final = 64
"""Number of losses in a step from which on each loss checks the step's size."""


class LossTracer(TorchPart):
    """Finds the losses of a step, and the tensors that they compare.

    Attributes:
        captures_unnamed_too: Whether a function's loss is saved as `Loss_output_{i}` as well.
    """

    def __init__(self, hook: BaseHook, loop: LoopState) -> None:
        super().__init__(hook, loop)
        self.captures_unnamed_too = False
        self._clock = hook.clock
        self._own_tensors = hook.own_tensors
        self._functional = FunctionalLosses()
        self._operations = LossOperations(hook.failures)
        self._formulas = FormulaMatches()
        self._has_loss = False  # from a module, or named by the script
        self._listening: list[Any] = []
        self._needed: dict[tuple[Any, ...], bool] = {}
        self._lines: set[str] = set()  # names of losses whose lines are known
        self._modules = ModuleHooks(self._on_loss)
        subscribe = self.events.subscribe
        subscribe(events.ModelCompiles, self._on_compile, "losses")
        subscribe(events.StepBegins, self._on_step_begins, "losses")
        subscribe(events.ListeningChanges, self._listen, "losses")
        subscribe(events.PassBegins, self._on_pass_begins, "losses")
        subscribe(events.PassEnds, self._on_pass_ends, "losses")
        subscribe(events.BackwardBegins, self._on_backward_begins, "losses")
        subscribe(events.BackwardEnds, self._on_backward_ends, "losses")
        subscribe(events.OptimizerBegins, self._forget_calls, "losses")
        subscribe(events.StepEnds, self._forget_operations, "losses")
        subscribe(events.SavingPauses, self._forget_calls, "losses")
        subscribe(events.ModelsRelease, self._on_release, "losses")

    # Events --------------------------------------------------------------------------------------

    def _on_compile(self, _: events.ModelCompiles) -> None:
        self._listen(events.ListeningChanges(is_on=bool(self._collector.due)))

    def _on_step_begins(self, _: events.StepBegins) -> None:
        self._has_loss = False
        if self._operations.is_wanted:
            self._operations.begin_step()
        self._loop.scaling.newest_scale = None
        self._functional.forget()

    def _on_pass_begins(self, event: events.PassBegins) -> None:
        """Note that the following losses use a model's outputs."""
        self._functional.pass_begins()
        if self._operations.is_wanted:
            self._operations.pause()
            if self._loop.steps.is_training:
                self._operations.pass_begins(event.model)

    def _on_pass_ends(self, event: events.PassEnds) -> None:
        if self._operations.is_wanted and self._loop.steps.is_training:
            self._operations.pass_ends(event.model, event.outputs)

    def _on_backward_begins(self, event: events.BackwardBegins) -> None:
        """Capture the tensor that a backward pass starts from, unless it has a name already."""
        if self._operations.is_wanted:
            self._operations.pause()
        self._capture_roots(event.roots[:1])
        self._forget_operations()
        self._loop.scaling.newest_scale = None

    def _on_backward_ends(self, _: events.BackwardEnds) -> None:
        self._capture_origin("gradient", self._operations.gradient)
        self._operations.gradient = None

    def _forget_calls(self, _: events.OptimizerBegins | events.SavingPauses) -> None:
        """Forget calls without a backward pass: this step has no further loss."""
        self._functional.forget()
        self._forget_operations()

    def _forget_operations(self, _: events.StepEnds | None = None) -> None:
        if self._operations.is_wanted:
            self._operations.forget()

    def _on_release(self, event: events.ModelsRelease) -> None:
        self._functional.forget_all()
        self._forget_operations()
        self._stop_listening()
        if event.is_final:
            self._modules.stop()

    @property
    def _ignores_losses(self) -> bool:
        """Whether a loss that is computed now belongs to no step."""
        return self._loop.steps.leaves_losses_out(self._clock.mode)

    def divides_sum(self, loss: Tensor) -> bool:
        """Return whether a loss is a multiple of a sum that a function of this pass returned."""
        return self._functional.divides_sum(loss)

    # Listening -----------------------------------------------------------------------------------

    def _listen(self, event: events.ListeningChanges) -> None:
        """Start or stop listening to losses.

        A compiled model is recompiled if a function that it calls changes. So for compiled models,
        functions are listened to until the end.
        """
        if not event.is_on and not self._loop.has_compiled:
            self._stop_listening()
            return
        self._modules.watch_only(set(self._registered.losses) if event.is_on else frozenset())
        if not self._listening:
            self._listening = [LOSS_FUNCTIONS.listen(self._on_function)]

    def _stop_listening(self) -> None:
        self._modules.watch_only(frozenset())
        while self._listening:
            self._listening.pop().remove()

    @guarded("losses")
    def _on_loss(self, loss: nn.Module, inputs: Any, outputs: Any) -> None:
        if not self._loop.ownership.owns_module(outputs):
            return
        name = self._registered.losses[loss]
        if self._loop.steps.is_training:
            self._functional.note_module(name, outputs)
        elif self._functional.is_found(outputs):
            self._has_loss = True
            return
        self.capture(name, inputs, outputs)

    @guarded("losses")
    def _on_function(self, given: tuple[WatchedLoss, Any, Any], value: Any) -> None:
        if self._loop.steps.is_outside_steps:
            self._loop.counts.loss_outside_steps()
        if not self._collector.due or not self._loop.ownership.owns(value):
            return
        function, args, kwargs = given
        call = function, function.arguments(args, kwargs)
        if self._loop.steps.is_training:
            self._note_line(function.class_name)
            with_inputs = self._needs_inputs(function.class_name)
            self._functional.note(call, value, with_inputs=with_inputs)
        elif self._clock.is_evaluating and not self._ignores_losses:
            found = self._functional.of_validation(call, value)
            if found is not None:
                self._capture_named(found.name, found.inputs, found.value)

    # Capturing -----------------------------------------------------------------------------------

    @guarded("losses")
    def capture(self, name: str, inputs: Any, outputs: Any) -> None:
        """Capture a loss of a loss module, or one that the script reports."""
        if self._ignores_losses:
            self._loop.counts.loss_outside_steps()
            return
        self._has_loss = True
        self._functional.forget_functions()
        if not self._collector.due:
            return
        has_many = self._tensors.count(f"{name}_output_") >= _MANY_LOSSES
        if not (has_many and self._loop.size.end_if_full()):
            self._capture_named(name, inputs, outputs)

    def _capture_roots(self, roots: Any) -> None:
        has_names = self._own_tensors.has_losses and not self.captures_unnamed_too
        if not self._collector.due or has_names or self._has_loss:
            return
        if self._ignores_losses or not self._loop.ownership.owns(roots):
            return
        for loss in tensors_in(roots):
            if loss.numel() == 1:
                self._capture_root(loss)

    def _capture_root(self, loss: Tensor) -> None:
        """Capture a loss under the name of its function, or as one without a name."""
        unscaled, is_scaled = self._loop.scaling.unscaled_loss(loss)
        operations = self._operations
        compared = operations.only_comparison(loss) if operations.is_wanted else None
        targets = None if compared is None else compared.targets
        call = self._functional.of_training(loss, unscaled, is_scaled=is_scaled, targets=targets)
        is_named = call is not None and call.name != UNNAMED
        if call is not None and is_named:
            self._capture_named(call.name, call.inputs, call.value)
            if call.has_others:
                at = self._tensors.count(f"{call.name}_output_") - 1
                total = {f"{MINIMISED}{call.name}_{at}": unscaled}
                self._tensors.capture(total, member_of=(LOSS_INPUTS,))
        if not self._own_tensors.has_losses and (not is_named or self.captures_unnamed_too):
            inputs: Any = () if call is None or is_named else call.inputs
            self._capture_named(UNNAMED, inputs or self._compared(loss, unscaled), unscaled)

    def _compared(self, loss: Tensor, unscaled: Tensor) -> tuple[Tensor, ...]:
        """Return what an unknown loss compares, and capture usual losses of that.

        Nothing is known of the first one: it makes later saved steps be observed.
        """
        is_first = not self._tensors.count(f"{UNNAMED}_output_")
        if not is_first or not self._needs_inputs(UNNAMED):
            return ()
        if not self._operations.is_observing:
            self._operations.want()
            return ()
        self._capture_origin("value", self._operations.origin(loss))
        compared = self._operations.compared(loss)
        if compared is None:
            return ()
        standard = standard_losses(compared)
        matches = self._formulas.count(unscaled, standard, compared.outputs)
        for prefix, values in ((STANDARD_LOSS, standard), (LOSS_MATCHES, matches)):
            named = {f"{prefix}{name}": value for name, value in values.items()}
            self._tensors.capture(named, member_of=(LOSS_INPUTS,))
        return compared.outputs, compared.targets

    def _capture_origin(self, of: str, number: Tensor | None) -> None:
        """Capture the number of the operation with the first value that is not finite."""
        if number is None:
            return
        named = self._tensors.numbered(f"{NOT_FINITE}{of}_", [number])
        self._tensors.capture(named, member_of=(LOSS_INPUTS,))
        known = self._collector.manager.script_lines.setdefault("operations", {})
        if len(known) < len(self._operations.numbers):
            known.update((str(at), text) for text, at in self._operations.numbers.items())

    def _capture_named(self, name: str, inputs: Any, outputs: Any) -> None:
        if name != UNNAMED or not self._lines:  # a trainer computes it far from the script's loss
            self._note_line(name)
        given, results = tensors_in(inputs), tensors_in(outputs)
        compared = self._tensors.numbered(f"{name}_input_", outputs_first(name, given))
        self._tensors.capture(compared, member_of=(LOSS_INPUTS,))
        losses = self._tensors.numbered(f"{name}_output_", results)
        self._tensors.capture(losses, member_of=(CollectionKeys.LOSSES,))

    def _note_line(self, name: str) -> None:
        """Note where the script computes a loss, at its first saved call."""
        if name not in self._lines:
            self._lines.add(name)
            self._collector.manager.note_line("losses", name, script_line())

    def _needs_inputs(self, name: str) -> bool:
        """Return whether any collection contains a loss's inputs, with or without its name."""
        key = (self._collector.due_key, name)
        if key not in self._needed:
            names = [f"{each}_input_{n}" for each in (name, UNNAMED) for n in range(_MOST_INPUTS)]
            self._needed[key] = any(
                collection.name == LOSS_INPUTS or any(map(collection.matches, names))
                for collection in self._collector.due
            )
        return self._needed[key]
