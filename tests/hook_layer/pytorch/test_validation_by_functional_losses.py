"""Losses of validation that functions compute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import hook_layer.pytorch as smd
from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.pytorch.functional_steps import (
    CLASSES,
    NUMBERS,
    UNNAMED,
    Graph,
    X,
    make_hook,
    make_net,
    names_of,
)


def validated(
    trial: WrittenTrial,
    training: Graph,
    validation: Graph,
    *,
    before: Graph = lambda outputs: outputs,
) -> Mapping[str, np.ndarray[Any, Any]]:
    """Return what a step of validation behind one of training saves."""
    hook = make_hook(trial)
    net = make_net(hook)
    hook.set_mode(smd.modes.TRAIN)
    training(net(X)).backward()
    hook.set_mode(smd.modes.EVAL)
    with torch.no_grad():
        outputs = net(X + 1)
        before(outputs)
        validation(outputs)
    hook.close()
    assert not hook.report().errors
    return dict(trial.values(1)) if 1 in trial.indexes() else {}


VALUE = "CrossEntropyLoss_output_0"


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_loss_of_validation_is_comparable_with_that_of_training(
    trial: WrittenTrial, reduction: str
) -> None:
    values = validated(
        trial,
        lambda o: F.cross_entropy(o, CLASSES),
        lambda o: F.cross_entropy(o, CLASSES, reduction=reduction),
    )
    assert set(values) == names_of("CrossEntropyLoss")
    outputs = make_net(None)(X + 1)
    expected = F.cross_entropy(outputs, CLASSES)
    assert float(values[VALUE]) == pytest.approx(float(expected.detach()), rel=1e-6)
    np.testing.assert_array_equal(values["CrossEntropyLoss_input_0"], outputs.detach().numpy())


@pytest.mark.parametrize("divisor", [1])
def test_a_sum_is_of_the_rows_that_are_saved_with_it(trial: WrittenTrial, divisor: int) -> None:
    """As in a variational autoencoder: validation has other rows, and rules divide by them."""

    def training(outputs: torch.Tensor) -> torch.Tensor:
        own = F.cross_entropy(outputs, CLASSES, reduction="sum")
        return own / divisor + 0.01 * outputs.square().sum() / divisor

    def validation(outputs: torch.Tensor) -> torch.Tensor:
        own = F.cross_entropy(outputs[:2], CLASSES[:2], reduction="sum")
        return own / 2 + 0.01 * outputs[:2].square().sum() / 2

    values = validated(trial, training, validation)
    expected = F.cross_entropy(make_net(None)(X + 1)[:2], CLASSES[:2], reduction="sum")
    assert float(values[VALUE]) == pytest.approx(float(expected.detach()), rel=1e-6)
    assert len(values["CrossEntropyLoss_input_0"]) == 2


def test_validation_computes_the_same_with_a_hook(trial: WrittenTrial) -> None:
    got: list[torch.Tensor] = []
    validated(
        trial,
        lambda o: F.cross_entropy(o, CLASSES),
        lambda o: got.append(F.cross_entropy(o, CLASSES, reduction="sum")) or o,  # type: ignore[func-returns-value]
    )
    expected = F.cross_entropy(make_net(None)(X + 1), CLASSES, reduction="sum")
    assert torch.equal(got[0], expected.detach())


@pytest.mark.parametrize(
    ("training", "validation"),
    [
        (lambda o: F.cross_entropy(o, CLASSES), lambda o: F.mse_loss(o, NUMBERS)),
        (
            lambda o: F.cross_entropy(o, CLASSES) + 99 * o.exp().sum(),
            lambda o: F.cross_entropy(o, CLASSES),
        ),
        (lambda o: F.cross_entropy(o, CLASSES) * 0, lambda o: F.cross_entropy(o, CLASSES)),
        (
            lambda o: F.cross_entropy(o, CLASSES),
            lambda o: F.cross_entropy(o, CLASSES, reduction="none"),
        ),
        (
            lambda o: F.cross_entropy(o, CLASSES),
            lambda o: F.cross_entropy(o, CLASSES, label_smoothing=0.5),
        ),
        (
            lambda o: F.cross_entropy(o, CLASSES),
            lambda o: F.cross_entropy(o, CLASSES, ignore_index=1),
        ),
        (
            lambda o: F.cross_entropy(o, CLASSES),
            lambda o: F.cross_entropy(o, CLASSES, weight=torch.ones(3)),
        ),
        (
            lambda o: F.cross_entropy(o, CLASSES, reduction="sum"),
            lambda o: F.cross_entropy(o[:2], CLASSES[:2], reduction="none"),
        ),
        (
            lambda o: F.cross_entropy(o, CLASSES, reduction="sum") / 4,
            lambda o: F.cross_entropy(o, CLASSES),
        ),
    ],
)
def test_what_the_model_is_not_trained_by_is_no_loss_of_validation(
    trial: WrittenTrial, training: Graph, validation: Graph
) -> None:
    assert not validated(trial, training, validation)


def test_other_calls_of_the_function_are_distinguished_by_their_line(trial: WrittenTrial) -> None:
    def training(outputs: torch.Tensor) -> torch.Tensor:
        F.mse_loss(outputs, NUMBERS + 5)
        return F.mse_loss(outputs, NUMBERS)

    values = validated(
        trial,
        training,
        lambda o: F.mse_loss(o, NUMBERS),
        before=lambda o: F.mse_loss(o, NUMBERS + 5),
    )
    assert set(values) == names_of("MSELoss")
    np.testing.assert_array_equal(values["MSELoss_input_1"], NUMBERS.numpy())


def test_validation_before_training_has_no_loss(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    net = make_net(hook)
    hook.set_mode(smd.modes.EVAL)
    with torch.no_grad():
        F.mse_loss(net(X), NUMBERS)
    hook.set_mode(smd.modes.TRAIN)
    F.mse_loss(net(X), NUMBERS).backward()
    hook.close()
    assert {step: trial.names(step) for step in trial.indexes()} == {1: names_of("MSELoss")}


SUMS = [
    lambda o: F.cross_entropy(o, CLASSES) + F.mse_loss(o, NUMBERS),
    lambda o: (F.cross_entropy(o, CLASSES) + F.cross_entropy(o.flip(1), CLASSES)) / 2,
    lambda o: sum(F.mse_loss(o[:, at], NUMBERS[:, at]) for at in range(3)),
]


@pytest.mark.parametrize("loss", SUMS)
def test_a_sum_of_functions_is_a_loss_of_validation(trial: WrittenTrial, loss: Graph) -> None:
    values = validated(trial, loss, loss)
    assert set(values) == {UNNAMED}
    assert trial.names(0) == {UNNAMED}
    of_validation = float(loss(make_net(None)(X + 1)).detach())
    assert float(values[UNNAMED]) == pytest.approx(of_validation, rel=1e-5)


def test_a_part_of_the_sum_is_no_loss_of_validation(trial: WrittenTrial) -> None:
    assert not validated(trial, SUMS[0], lambda o: F.cross_entropy(o, CLASSES))


def test_without_modes_what_is_computed_in_between_is_no_loss(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    net = make_net(hook)
    for _ in range(2):
        F.mse_loss(net(X), NUMBERS).backward()
        net.eval()
        with torch.no_grad():
            F.mse_loss(net(X), NUMBERS)
        net.train()
    hook.close()
    assert {step: trial.names(step) for step in trial.indexes()} == {
        0: names_of("MSELoss"),
        2: names_of("MSELoss"),
    }


def test_a_loss_that_is_registered_later_is_saved_once(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    net, criterion = make_net(hook), nn.MSELoss()
    F.mse_loss(net(X), NUMBERS).backward()
    hook.register_loss(criterion)
    criterion(net(X), NUMBERS).backward()
    hook.set_mode(smd.modes.EVAL)
    with torch.no_grad():
        criterion(net(X), NUMBERS)
    hook.close()
    assert trial.names(2) == names_of("MSELoss")


@pytest.mark.parametrize("validation", [F.cross_entropy, nn.CrossEntropyLoss(), "criterion"])
def test_validation_has_a_criterion_of_its_own(trial: WrittenTrial, validation: Any) -> None:
    """Scripts make one in the function that validates."""
    hook, criterion = make_hook(trial), nn.CrossEntropyLoss()
    net = make_net(hook)
    hook.register_loss(criterion)
    compare = criterion if validation == "criterion" else validation
    hook.set_mode(smd.modes.TRAIN)
    criterion(net(X), CLASSES).backward()
    hook.set_mode(smd.modes.EVAL)
    with torch.no_grad():
        outputs = net(X + 1)
        F.l1_loss(outputs, torch.zeros_like(outputs))
        loss = compare(outputs, CLASSES)
    hook.close()
    values = trial.values(1)
    assert set(values) == names_of("CrossEntropyLoss")
    assert float(values[VALUE]) == float(loss)


def test_training_by_several_modules_is_validated_by_each(trial: WrittenTrial) -> None:
    hook, criteria = make_hook(trial), (nn.CrossEntropyLoss(), nn.MSELoss())
    net = make_net(hook)
    for criterion in criteria:
        hook.register_loss(criterion)
    hook.set_mode(smd.modes.TRAIN)
    outputs = net(X)
    (criteria[0](outputs, CLASSES) + criteria[1](outputs, torch.ones_like(outputs))).backward()
    hook.set_mode(smd.modes.EVAL)
    with torch.no_grad():
        outputs = net(X + 1)
        loss = F.mse_loss(outputs, torch.ones_like(outputs))
        F.cross_entropy(outputs, CLASSES)
    hook.close()
    values = trial.values(1)
    assert set(values) == names_of("CrossEntropyLoss") | names_of("MSELoss")
    assert float(values["MSELoss_output_0"]) == float(loss)


def test_a_module_that_computes_a_part_of_the_loss_is_saved_in_validation(
    trial: WrittenTrial,
) -> None:
    hook, criterion = make_hook(trial), nn.MSELoss()
    net = make_net(hook)
    hook.register_loss(criterion)
    hook.set_mode(smd.modes.TRAIN)
    outputs, ones = net(X), torch.ones(4, 3)
    (F.mse_loss(outputs, ones) + F.l1_loss(outputs, ones)).backward()
    hook.set_mode(smd.modes.EVAL)
    with torch.no_grad():
        loss = criterion(net(X + 1), ones)
    hook.close()
    assert float(trial.values(1)["MSELoss_output_0"]) == float(loss)
