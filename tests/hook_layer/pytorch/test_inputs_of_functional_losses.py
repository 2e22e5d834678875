"""Losses that functions compute are saved as those of modules, with what they compare."""

# ruff: noqa: PLW0108 - functions are looked up when they are called

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.utils.checkpoint import checkpoint

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
    saved,
)


@pytest.mark.parametrize(
    ("kind", "loss", "module"),
    [
        ("MSELoss", lambda o, t: F.mse_loss(o, t), nn.MSELoss()),
        ("L1Loss", lambda o, t: F.l1_loss(o, t), nn.L1Loss()),
        ("SmoothL1Loss", lambda o, t: F.smooth_l1_loss(o, t), nn.SmoothL1Loss()),
        ("HuberLoss", lambda o, t: F.huber_loss(o, t), nn.HuberLoss()),
        ("MSELoss", lambda o, t: F.mse_loss(o, t, reduction="sum"), nn.MSELoss(reduction="sum")),
        ("MSELoss", lambda o, t: F.mse_loss(target=t, input=o), nn.MSELoss()),
        ("MSELoss", lambda o, t: F.mse_loss(t, o), lambda o, t: nn.MSELoss()(t, o)),
        (
            "BCEWithLogitsLoss",
            lambda o, t: F.binary_cross_entropy_with_logits(o, t),
            nn.BCEWithLogitsLoss(),
        ),
        (
            "BCEWithLogitsLoss",
            lambda o, t: F.binary_cross_entropy_with_logits(o, t, pos_weight=torch.ones(3) * 2),
            nn.BCEWithLogitsLoss(pos_weight=torch.ones(3) * 2),
        ),
        (
            "BCELoss",
            lambda o, t: F.binary_cross_entropy(o.sigmoid(), t),
            lambda o, t: nn.BCELoss()(o.sigmoid(), t),
        ),
        ("CrossEntropyLoss", lambda o, t: F.cross_entropy(o, t), nn.CrossEntropyLoss()),
        ("CrossEntropyLoss", lambda o, _: F.cross_entropy(o, CLASSES), None),
        (
            "CrossEntropyLoss",
            lambda o, _: F.cross_entropy(o, CLASSES, torch.ones(3), label_smoothing=0.1),
            None,
        ),
        ("NLLLoss", lambda o, _: F.nll_loss(o.log_softmax(1), CLASSES), None),
        ("KLDivLoss", lambda o, t: F.kl_div(o.log_softmax(1), t.softmax(1)), None),
        ("PoissonNLLLoss", lambda o, t: F.poisson_nll_loss(o, t), nn.PoissonNLLLoss()),
        ("SoftMarginLoss", lambda o, t: F.soft_margin_loss(o, t), nn.SoftMarginLoss()),
    ],
)
@pytest.mark.filterwarnings("ignore:reduction. 'mean'")
def test_the_loss_of_a_function_is_saved_as_that_of_the_module(
    trial: WrittenTrial, new_trial: Callable[[], WrittenTrial], kind: str, loss: Any, module: Any
) -> None:
    values = saved(trial, lambda outputs: loss(outputs, NUMBERS))
    assert set(values) == names_of(kind)
    if module is None:
        return
    other = new_trial()
    hook = make_hook(other)
    net = make_net(hook)
    if isinstance(module, nn.Module):
        hook.register_loss(module)
    module(net(X), NUMBERS).backward()
    hook.close()
    assert float(module(make_net(None)(X), NUMBERS).detach()) == values[f"{kind}_output_0"]
    if isinstance(module, nn.Module):
        for name, value in other.values(0).items():
            np.testing.assert_array_equal(values[name], value, strict=True)


def test_all_that_a_function_compares_is_saved(trial: WrittenTrial) -> None:
    values = saved(trial, lambda o: F.triplet_margin_loss(o, NUMBERS, positive_far(), swap=True))
    assert set(values) == {
        *(f"TripletMarginLoss_input_{i}" for i in range(3)),
        "TripletMarginLoss_output_0",
    }
    values_of = values["TripletMarginLoss_input_2"]
    np.testing.assert_array_equal(values_of, positive_far().numpy())


def positive_far() -> torch.Tensor:
    return NUMBERS.flip(0) + 3


@pytest.mark.parametrize("shape", [(2, 2), (2, 2, 1), (1, 2, 2)])
def test_targets_have_the_shape_that_the_function_got(
    trial: WrittenTrial, shape: tuple[int, ...]
) -> None:
    def loss(outputs: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(outputs.view(*shape, 3).movedim(-1, 1), CLASSES.view(shape))

    values = saved(trial, loss)
    np.testing.assert_array_equal(values["CrossEntropyLoss_input_1"], CLASSES.view(shape).numpy())


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_what_is_spread_over_the_other_is_not_saved_so(trial: WrittenTrial) -> None:
    values = saved(trial, lambda o: F.mse_loss(o[:, :1], NUMBERS[:, 0]))
    assert values["MSELoss_input_0"].shape == (4, 1)
    np.testing.assert_array_equal(values["MSELoss_input_1"], NUMBERS[:, 0].numpy())


WRAPPINGS = [
    lambda x: x / 4,
    lambda x: 0.25 * x,
    lambda x: torch.tensor(0.5) * x / 2 * 1,
    lambda x: x.view(1).squeeze().clone().double(),
    lambda x: x.unsqueeze(0).sum().mean(),
    lambda x: x / torch.tensor(7),
    lambda x: x * 20,
    lambda x: -x,
    lambda x: 2 * (-0.5 * x),
    lambda x: x.div_(4),
    lambda x: 0 + x + torch.ones(()),
    lambda x: 3 - x,
]


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_the_value_is_the_functions_own(trial: WrittenTrial, wrapping: Graph) -> None:
    values = saved(trial, lambda o: wrapping(F.cross_entropy(o, CLASSES)))
    assert set(values) == names_of("CrossEntropyLoss")
    own = F.cross_entropy(make_net(None)(X), CLASSES)
    assert float(values["CrossEntropyLoss_output_0"]) == float(own.detach())


AVERAGES = [
    lambda o: F.cross_entropy(o, CLASSES, reduction="none").mean(),
    lambda o: F.cross_entropy(o, CLASSES, reduction="sum") / 4,
    lambda o: F.cross_entropy(o, CLASSES, reduction="sum") / torch.tensor(4),
]


@pytest.mark.parametrize("loss", AVERAGES)
def test_an_average_of_the_script_has_no_name_but_inputs(trial: WrittenTrial, loss: Graph) -> None:
    values = saved(trial, loss)
    assert set(values) == names_of("Loss")
    own = F.cross_entropy(make_net(None)(X), CLASSES)
    assert float(values[UNNAMED]) == pytest.approx(float(own.detach()), rel=1e-6)


@pytest.mark.parametrize(
    "loss",
    [
        lambda o: F.cross_entropy(o, CLASSES) + 0.1 * o.square().mean(),
        lambda o: 0.5 * o.exp().sum(1).log().mean() + F.cross_entropy(o, CLASSES) + 1,
    ],
)
def test_the_main_part_of_a_sum_stands_for_it(trial: WrittenTrial, loss: Graph) -> None:
    values = saved(trial, loss)
    assert set(values) == names_of("CrossEntropyLoss")
    own = F.cross_entropy(make_net(None)(X), CLASSES)
    assert float(values["CrossEntropyLoss_output_0"]) == pytest.approx(float(own), rel=1e-6)


@pytest.mark.parametrize(
    "penalty", [torch.square, torch.abs, lambda weight: weight.view(-1).norm(), lambda w: w * w]
)
def test_a_penalty_on_weights_may_be_most_of_the_sum(trial: WrittenTrial, penalty: Graph) -> None:
    hook = make_hook(trial)
    net = make_net(hook)
    own = F.cross_entropy(net(X), CLASSES)
    decay = sum(100 * penalty(weight).sum() for weight in net.parameters())
    (own + decay).backward()
    hook.close()
    values = trial.values(0)
    assert set(values) == names_of("CrossEntropyLoss")
    assert float(values["CrossEntropyLoss_output_0"]) == float(own)


OTHERS = [
    lambda o: F.cross_entropy(o, CLASSES) + F.mse_loss(o, NUMBERS),
    lambda o: F.cross_entropy(o, CLASSES) + 100 * o.square().mean(),
    lambda o: F.cross_entropy(o, CLASSES) + F.mse_loss(o, NUMBERS) + o.square().mean(),
    lambda o: F.cross_entropy(o, CLASSES, reduction="none").sum() / 4 + 0.01 * o.square().mean(),
    lambda o: o.square().mean() - F.cross_entropy(o, CLASSES),
    lambda o: F.cross_entropy(o, CLASSES) - 0.1 * o.exp().mean(),  # as the gain of a policy
    lambda o: F.cross_entropy(o, CLASSES) / torch.tensor(0.0),
    lambda o: 1 / F.cross_entropy(o, CLASSES),
    lambda o: F.cross_entropy(o, CLASSES) * o.mean().exp(),
    lambda o: (F.cross_entropy(o, CLASSES, reduction="none") * X[:, 0]).mean(),
    lambda o: F.cross_entropy(o, CLASSES, size_average=True),
    lambda o: o.square().mean(),
]


@pytest.mark.parametrize("loss", OTHERS)
@pytest.mark.filterwarnings("ignore:size_average and reduce args")
def test_nothing_else_is_taken_for_the_value_of_a_function(
    trial: WrittenTrial, loss: Graph
) -> None:
    assert set(saved(trial, loss)) == {UNNAMED}


@pytest.mark.parametrize(
    "rewards", [(2.0, 3.0, 2.0), (-1.0, 1.0, -2.0), (1.0, -1.0, 1.0), (0.0, 0.0, 0.0)]
)
def test_the_product_with_a_reward_has_no_name(
    trial: WrittenTrial, rewards: tuple[float, ...]
) -> None:
    hook = make_hook(trial)
    net = make_net(hook)
    for reward in rewards:
        (reward * F.cross_entropy(net(X), CLASSES)).backward()
    hook.close()
    assert UNNAMED in trial.names(2)
    assert not trial.names(2) & names_of("CrossEntropyLoss")


def test_calls_that_are_no_loss_do_not_matter(trial: WrittenTrial) -> None:
    def loss(outputs: torch.Tensor) -> torch.Tensor:
        for _ in range(40):
            F.l1_loss(outputs, NUMBERS)
        found = F.mse_loss(outputs, NUMBERS)
        F.mse_loss(outputs.detach(), NUMBERS + 1)
        return found

    assert set(saved(trial, loss)) == names_of("MSELoss")


def test_several_losses_of_a_step(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    outputs = make_net(hook)(X)
    F.cross_entropy(outputs, CLASSES).backward(retain_graph=True)
    F.mse_loss(outputs, NUMBERS).backward()
    hook.close()
    assert set(trial.names(0)) == names_of("CrossEntropyLoss") | names_of("MSELoss")


def test_a_module_that_is_not_registered_is_seen_by_its_function(trial: WrittenTrial) -> None:
    assert set(saved(trial, lambda o: nn.MSELoss()(o, NUMBERS))) == names_of("MSELoss")


def test_targets_changed_since_are_left_out(trial: WrittenTrial) -> None:
    targets = CLASSES.clone()
    hook = make_hook(trial)
    loss = F.cross_entropy(make_net(hook)(X), targets)
    targets += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    hook.close()
    assert trial.names(0) == {UNNAMED}
    assert not hook.report().errors


def test_a_loss_that_is_computed_again_is_one_loss(trial: WrittenTrial) -> None:
    calls = []

    def loss(outputs: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return F.cross_entropy(outputs, CLASSES)

    values = saved(trial, lambda o: checkpoint(loss, o, use_reentrant=False) / 2)
    assert set(values) == names_of("CrossEntropyLoss")
    assert len(calls) == 2  # the loss, and torch's own second time


def test_accumulated_gradients(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    net = make_net(hook)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    hook.register_optimizer(optimizer)
    for part in range(4):
        (F.cross_entropy(net(X), (CLASSES + part // 2) % 3) / 2).backward()
        if part % 2:
            optimizer.step()
    hook.close()
    for step in (0, 1):
        values = trial.values(step)
        assert set(values) == names_of("CrossEntropyLoss") | names_of("CrossEntropyLoss", 1)
        expected = (CLASSES.numpy() + step) % 3
        np.testing.assert_array_equal(values["CrossEntropyLoss_input_1"], expected)


def test_training_is_the_same_bit_for_bit(new_trial: Callable[[], WrittenTrial]) -> None:
    def trained(hook: smd.Hook | None) -> torch.Tensor:
        net = make_net(hook)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
        for step in range(6):
            optimizer.zero_grad()
            outputs = net(X + torch.rand(4, 3))
            loss = F.mse_loss(outputs, NUMBERS) if step % 2 else F.cross_entropy(outputs, CLASSES)
            loss.backward()
            optimizer.step()
        return net.weight.detach().clone()

    hook = make_hook(new_trial())
    watched = trained(hook)
    hook.close()
    assert torch.equal(watched, trained(None))
