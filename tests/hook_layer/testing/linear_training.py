"""An adapter for a framework of a few lines, which numpy computes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hook_layer.configuration.hook_json import HookConfiguration, load_hook_configuration
from hook_layer.configuration.hook_setup import FrameworkDefaults, HookArguments, set_up
from hook_layer.core.hook import BaseHook
from hook_layer.core.tensor_capture import TensorSource
from hook_layer.format.modes import ModeKeys
from hook_layer.testing.hook_contract import HookContract, OnStep, Trained, digest_of, nothing

DEFAULTS = FrameworkDefaults(
    {
        "default": (),
        "all": (),
        "weights": ("^weight",),
        "gradients": ("^gradient",),
        "losses": ("^loss",),
    },
    ("losses",),
)


class LinearHook(BaseHook):
    """Receives each step from the training."""

    _defaults = DEFAULTS
    source: type[TensorSource] = TensorSource

    def __init__(
        self,
        out_dir: str | None = None,
        *,
        configuration: HookConfiguration | None = None,
        stop_poll_s: float | None = None,
        stop: str | None = None,
        **arguments: Any,
    ) -> None:
        named: dict[str, Any] = {"stop_poll_s": stop_poll_s, "stop": stop}
        options: Any = {name: value for name, value in named.items() if value is not None}
        setup = set_up(HookArguments(out_dir, **arguments), options, DEFAULTS, configuration)
        super().__init__(setup, source=self.source)

    def begin(self) -> None:
        if self.is_active:
            self.begin_step()

    def see(self, tensors: Mapping[str, Any]) -> None:
        self.recorder.capture(self.collector.planned(tensors))

    def end(self) -> None:
        if self.is_active:
            self.recorder.step_is_captured()


class LinearContract(HookContract):
    """A linear model, trained by gradient descent."""

    adapter = "linear"
    hook_type = LinearHook
    loss_name = "loss"
    names = {"losses": "loss", "weights": "weight", "gradients": "gradient/weight"}
    more_names = ("outputs",)

    def make_hook_of_file(self, path: Path) -> BaseHook:
        return self.hook_type(configuration=load_hook_configuration(path))

    def train(
        self,
        hook: BaseHook | None,
        *,
        steps: int,
        evaluations: int = 0,
        on_step: OnStep = nothing,
    ) -> Trained:
        assert hook is None or isinstance(hook, LinearHook)
        random = np.random.default_rng(0)
        weight, losses = np.zeros(4), []
        for step in range(steps):
            self.begin(hook, ModeKeys.TRAIN)
            inputs = random.normal(size=(8, 4))
            outputs = inputs @ weight
            error = outputs - inputs.sum(1)
            losses.append(float((error**2).mean()))
            gradient = inputs.T @ error / 8
            self.see(
                hook,
                {
                    "weight": weight,
                    "outputs": outputs,
                    "loss": np.array([losses[-1]]),
                    "gradient/weight": gradient,
                },
            )
            weight = weight - 0.1 * gradient
            on_step(step)
            self.end(hook)
        for _ in range(evaluations):
            self.begin(hook, ModeKeys.EVAL)
            self.see(hook, {"weight": weight, "loss": np.ones(1)})
            self.end(hook)
        return Trained(digest_of([weight]), tuple(losses))

    def begin(self, hook: LinearHook | None, mode: ModeKeys) -> None:
        if hook is not None:
            hook.set_mode(mode)
            hook.begin()

    def see(self, hook: LinearHook | None, tensors: dict[str, Any]) -> None:
        if hook is not None:
            hook.see(tensors)

    def end(self, hook: LinearHook | None) -> None:
        if hook is not None:
            hook.end()
