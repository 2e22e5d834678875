"""Connects the parts of the hook for PyTorch."""

from __future__ import annotations

from functools import partial
from typing import cast

from hook_layer.configuration.hook_setup import HookSetup
from hook_layer.core.hook import BaseHook
from hook_layer.pytorch.events import TorchEvents
from hook_layer.pytorch.gradient_stops import GradientStops
from hook_layer.pytorch.loop_state import LoopState
from hook_layer.pytorch.losses import LossTracer
from hook_layer.pytorch.modules import RegisteredModules
from hook_layer.pytorch.overridden_methods import OverriddenMethods
from hook_layer.pytorch.ranks import TorchRanks
from hook_layer.pytorch.tensor_source import TorchSource
from hook_layer.pytorch.torch_capture import TorchCapture
from hook_layer.pytorch.trainer_driver import TrainerDriver

__all__ = ["TorchHook"]

_ONE_WRITER = "one"


class TorchHook(BaseHook):
    """A hook with the parts for PyTorch.

    Attributes:
        loop: Turns torch's callbacks into events.
        loop_state: What its parts share about the training loop.
        trainer: Begins and ends steps when a trainer's callback says so.
    """

    _overridden = OverriddenMethods()

    def __init__(self, setup: HookSetup) -> None:
        options = setup.options
        self._registered = registered = RegisteredModules()
        self._ranks = ranks = TorchRanks(registered)
        is_alone = setup.include_workers == "one" or (
            setup.include_workers == "auto" and not options.statistics
        )
        make_source = partial(
            TorchSource,
            registered=registered,
            queue_bytes=int(options.queue_bytes),
            is_only_writer=is_alone,
        )
        super().__init__(setup, workers=ranks, source=make_source)
        # If only the chief writes, or if it is in a session, the URI may differ between ranks.
        has_one_name = self.session.all_write and not self.session.place.is_in_session
        ranks.form_group(self.session.store.uri if has_one_name else _ONE_WRITER)
        source = cast("TorchSource", self.tensor_capture.source)
        self.loop_state = loop = LoopState(self, registered, self._overridden, options.queue_bytes)
        self._modes, self._tensors = loop.modes, loop.tensors
        # The parts subscribe to events in this order.
        self._torch_capture = TorchCapture(self, loop, source)
        self._losses = LossTracer(self, loop)
        self._gradient_stops = GradientStops(self, loop)
        self.loop = TorchEvents(self, loop, ranks)
        self.trainer = TrainerDriver(self, loop, self.loop, self._losses)
