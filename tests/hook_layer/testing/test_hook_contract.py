"""A contract that no adapter could break would prove nothing: each property has one that does."""

from __future__ import annotations

import contextlib
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hook_layer.capture.captured_step import NumpyBackend
from hook_layer.core.hook import BaseHook
from hook_layer.core.tensor_capture import TensorSource
from hook_layer.errors import TrainingStoppedError
from hook_layer.format.modes import ModeKeys
from hook_layer.testing.contract_training import ScriptError
from hook_layer.testing.hook_contract import PROPERTIES, HookContract, OnStep, Trained, nothing
from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.testing.linear_training import LinearContract, LinearHook

TESTS = {name: test for name, test in inspect.getmembers(HookContract) if name.startswith("test_")}


class TestLinear(LinearContract):
    """The contract can be kept."""


class OtherNames(LinearContract):
    def see(self, hook: LinearHook | None, tensors: dict[str, Any]) -> None:
        super().see(hook, {name.replace("outputs", "output"): v for name, v in tensors.items()})


class LateLoss(LinearContract):
    def see(self, hook: LinearHook | None, tensors: dict[str, Any]) -> None:
        super().see(hook, {**tensors, "loss": tensors["loss"] * 0.999})


class SavesGradientsUnasked(LinearContract):
    def see(self, hook: LinearHook | None, tensors: dict[str, Any]) -> None:
        if hook is not None:
            hook.collection_manager.include.add("gradients")
        super().see(hook, tensors)


class OneModeForAll(LinearContract):
    def begin(self, hook: LinearHook | None, mode: ModeKeys) -> None:
        del mode
        super().begin(hook, ModeKeys.TRAIN)


class SavesEachStep(LinearContract):
    def begin(self, hook: LinearHook | None, mode: ModeKeys) -> None:
        super().begin(hook, mode)
        if hook is not None and hook.session.trial is not None:
            hook.collector.due = tuple(hook.collection_manager.collections.values())


class CountsTwice(LinearContract):
    def begin(self, hook: LinearHook | None, mode: ModeKeys) -> None:
        super().begin(hook, mode)
        super().begin(hook, mode)


class ComputesAlways(LinearContract):
    def see(self, hook: LinearHook | None, tensors: dict[str, Any]) -> None:
        super().see(hook, tensors)
        if hook is not None and not hook.collector.due:
            hook.tensor_capture.capture({})


class ChangesTheWeights(LinearContract):
    def see(self, hook: LinearHook | None, tensors: dict[str, Any]) -> None:
        super().see(hook, tensors)
        if hook is not None:
            tensors["weight"] += 1e-12
            tensors["gradient/weight"] += 1e-12


class IgnoresTheSwitch(LinearContract):
    def make_hook(self, out_dir: str, **arguments: Any) -> BaseHook:
        hook = super().make_hook(out_dir, **arguments)
        WrittenTrial(out_dir).store.put("events/x", b"")
        return hook


class LosesTheLastStep(LinearContract):
    def end(self, hook: LinearHook | None) -> None:
        super().end(hook)
        if hook is not None and hook.recorder.record is not None:
            hook.recorder.record.clear()


class NeverEnds(LinearContract):
    def train(self, hook: BaseHook | None, **arguments: Any) -> Trained:
        trained = super().train(hook, **arguments)
        if hook is not None:
            hook.close(end_of_training=False)
        return trained


class AlwaysEnds(LinearContract):
    def train(self, hook: BaseHook | None, **arguments: Any) -> Trained:
        trained = super().train(hook, **arguments)
        if hook is not None:
            hook.close()
        return trained


class SwallowsExceptions(LinearContract):
    def train(
        self,
        hook: BaseHook | None,
        *,
        steps: int,
        evaluations: int = 0,
        on_step: OnStep = nothing,
    ) -> Trained:
        def quiet(step: int) -> None:
            with contextlib.suppress(ScriptError):
                on_step(step)

        return super().train(hook, steps=steps, evaluations=evaluations, on_step=quiet)


class CountsNames(LinearContract):
    num_trainings = 0

    def train(self, hook: BaseHook | None, **arguments: Any) -> Trained:
        type(self).num_trainings += 1
        return super().train(hook, **arguments)

    def see(self, hook: LinearHook | None, tensors: dict[str, Any]) -> None:
        super().see(hook, {**tensors, f"bias{self.num_trainings}": np.ones(1)})


class NeverStops(LinearContract):
    def begin(self, hook: LinearHook | None, mode: ModeKeys) -> None:
        with contextlib.suppress(TrainingStoppedError):
            super().begin(hook, mode)


class StopsForAnybody(LinearContract):
    def begin(self, hook: LinearHook | None, mode: ModeKeys) -> None:
        super().begin(hook, mode)
        session = None if hook is None else hook.session
        if session is not None and session.trial is not None and session.store.exists("stop.json"):
            raise TrainingStoppedError("the loss grows")


class StartsAnew(LinearContract):
    def make_hook(self, out_dir: str, **arguments: Any) -> BaseHook:
        hook = super().make_hook(out_dir, **arguments)
        object.__setattr__(hook.session.place.targets, "checkpoint", None)
        return hook


class KnowsNoFile(LinearContract):
    def make_hook_of_file(self, path: Path) -> BaseHook:
        return self.hook_type(str(path.parent / "tensors"))


class WrongReductions(LinearContract):
    class Doubling(NumpyBackend):
        def reduce(self, value: Any, reduction: Any) -> Any:
            return super().reduce(value * 2, reduction)

    class Source(TensorSource):
        def backend_of(self, value: Any) -> Any:
            del value
            return WrongReductions.Doubling()

    class Hook(LinearHook):
        pass

    Hook.source = Source
    hook_type = Hook


class WrongStatistics(LinearContract):
    class Source(TensorSource):
        def capture(self, tensors: Any, capture: Any) -> Any:
            captured = capture({n: (v * 1.001, plan) for n, (v, plan) in tensors.items()})
            for name, right in capture(tensors).items():
                captured[name].raw = right.raw
            return captured

    class Hook(LinearHook):
        pass

    Hook.source = Source
    hook_type = Hook


BROKEN: list[tuple[str, type[HookContract]]] = [
    ("names", OtherNames),
    ("values", LateLoss),
    ("collections", SavesGradientsUnasked),
    ("reductions", WrongReductions),
    ("statistics", WrongStatistics),
    ("evaluation", OneModeForAll),
    ("save intervals", SavesEachStep),
    ("save intervals", CountsTwice),
    ("nothing in other steps", ComputesAlways),
    ("results unchanged", ChangesTheWeights),
    ("kill switch", IgnoresTheSwitch),
    ("save_scalar", LosesTheLastStep),
    ("end marker", NeverEnds),
    ("end marker", AlwaysEnds),
    ("exception in the loop", SwallowsExceptions),
    ("two runs in one process", CountsNames),
    ("stop request", NeverStops),
    ("stop request", StopsForAnybody),
    ("spot resume", StartsAnew),
    ("configuration file", KnowsNoFile),
]


def failures(
    name: str, contract: type[HookContract], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> list[str]:
    """Return the tests of a property that an adapter does not pass."""
    failed = []
    for test_name, test in TESTS.items():
        if test.contract_property != name:
            continue
        (cases,) = [
            [dict(zip(mark.args[0], case, strict=True)) for case in mark.args[1]]
            for mark in getattr(test, "pytestmark", [])
            if mark.name == "parametrize"
        ] or [[{}]]
        for number, case in enumerate(cases):
            case_folder = folder / f"{contract.__name__}-{test_name}-{number}"
            case_folder.mkdir()
            with monkeypatch.context() as patch:
                given = {"monkeypatch": patch, "tmp_path": case_folder, **case}
                wanted = list(inspect.signature(test).parameters)[1:]
                try:
                    test(contract(), **{argument: given[argument] for argument in wanted})
                except (Exception, pytest.fail.Exception):  # noqa: BLE001 - however it fails
                    failed.append(test_name)
    return failed


@pytest.mark.parametrize(("name", "contract"), BROKEN)
def test_each_property_can_be_broken(
    name: str,
    contract: type[HookContract],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    assert failures(name, LinearContract, monkeypatch, tmp_path) == []
    assert failures(name, contract, monkeypatch, tmp_path)


def test_every_property_has_a_test_and_an_adapter_that_breaks_it() -> None:
    assert {test.contract_property for test in TESTS.values()} == set(PROPERTIES)
    assert {name for name, _ in BROKEN} == set(PROPERTIES)


def test_no_framework_may_lack_just_anything() -> None:
    with pytest.raises(TypeError, match="kill switch"):
        type("Lazy", (LinearContract,), {"missing": {"kill switch": "too much work"}})
