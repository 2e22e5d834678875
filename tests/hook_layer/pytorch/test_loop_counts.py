"""`optimizer_steps/...`: cleared gradients, validation in training mode, learning rates."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

from hook_layer.pytorch import Hook, SaveConfig
from hook_layer.pytorch.loop_counts import LoopCounts
from rule_runtime import create_trial

Step = Callable[[nn.Module, SGD, Tensor], None]
LEFT = "optimizer_steps/gradients_left"
IN_TRAINING_MODE = "optimizer_steps/validation_passes_in_training_mode"


def _new_hook(folder: Path) -> Hook:
    config = SaveConfig(save_interval=1)
    return Hook(folder, save_config=config, include_collections=["optimizer_steps"])


def _left(folder: Path, train: Step, num_steps: int = 5) -> list[float]:
    """Return what the hook counted at each step but the first, after which nothing can be left."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = SGD(model.parameters(), 0.01)
    hook = _new_hook(folder)
    hook.register_module(model)
    hook.register_optimizer(optimizer)
    for _ in range(num_steps):
        train(model, optimizer, torch.randn(8, 3))
    hook.close()
    assert not hook.report().errors
    tensor = create_trial(str(folder)).tensor(LEFT)
    return [float(tensor.value(step)) for step in tensor.steps() if step]


def _never_cleared(model: nn.Module, optimizer: SGD, rows: Tensor) -> None:
    model(rows).square().mean().backward()
    optimizer.step()


def _cleared_after_the_step(model: nn.Module, optimizer: SGD, rows: Tensor) -> None:
    _never_cleared(model, optimizer, rows)
    optimizer.zero_grad()


def _cleared_after_the_forward_pass(model: nn.Module, optimizer: SGD, rows: Tensor) -> None:
    loss = model(rows).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def _set_to_zero(model: nn.Module, optimizer: SGD, rows: Tensor) -> None:
    optimizer.zero_grad(set_to_none=False)
    _never_cleared(model, optimizer, rows)


def _accumulated(model: nn.Module, optimizer: SGD, rows: Tensor) -> None:
    for part in rows.split(2):
        model(part).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def _cleared_before_the_second_pass(model: nn.Module, optimizer: SGD, rows: Tensor) -> None:
    """As in an adversarial training, in which the other loss reaches these weights first."""
    model(rows).mean().backward()
    optimizer.zero_grad()
    _never_cleared(model, optimizer, rows)


def _cut_off(model: nn.Module, optimizer: SGD, rows: Tensor) -> None:
    model(rows).detach().requires_grad_().mean().backward()
    optimizer.step()


@pytest.mark.parametrize(
    "train",
    [
        _cleared_after_the_step,
        _cleared_after_the_forward_pass,
        _set_to_zero,
        _accumulated,
        _cleared_before_the_second_pass,
        _cut_off,
    ],
)
def test_cleared_gradients_are_not_left(tmp_path: Path, train: Step) -> None:
    assert _left(tmp_path, train) == [0.0] * 4


def test_gradients_that_are_never_cleared_are_left(tmp_path: Path) -> None:
    assert _left(tmp_path, _never_cleared) == [1.0] * 4


def test_accumulation_is_judged_at_its_first_backward_pass_only(tmp_path: Path) -> None:
    model = nn.Linear(3, 1)
    optimizer = SGD(model.parameters(), 0.01)
    hook = _new_hook(tmp_path)
    hook.register_module(model)  # without the optimizer each forward pass is a step
    for step in range(12):
        model(torch.randn(8, 3)).square().mean().backward()
        if step % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
    hook.close()
    tensor = create_trial(str(tmp_path)).tensor(LEFT)
    assert tensor.steps() == [4, 8]
    assert [float(tensor.value(step)) for step in tensor.steps()] == [0, 0]


def test_several_optimizers_of_a_model_are_not_judged(tmp_path: Path) -> None:
    model = nn.ModuleDict({"a": nn.Linear(3, 1), "b": nn.Linear(3, 1)})
    optimizers = {name: SGD(part.parameters(), 0.01) for name, part in model.items()}
    hook = _new_hook(tmp_path)
    for part in model.values():
        hook.register_module(part)
    for step in range(6):
        name = "ab"[step % 2]
        optimizers[name].zero_grad()
        model[name](torch.randn(8, 3)).square().mean().backward()
        optimizers[name].step()
    hook.close()
    assert not hook.report().errors
    trial = create_trial(str(tmp_path))
    assert LEFT not in trial.tensor_names() or max(trial.tensor(LEFT).steps()) <= 2


def test_an_optimizer_may_have_no_learning_rate(tmp_path: Path) -> None:
    model = nn.Linear(3, 1)
    optimizer = SGD(model.parameters(), 0.01)
    hook = _new_hook(tmp_path)
    hook.register_module(model)
    hook.register_optimizer(optimizer)
    for _ in range(3):
        model(torch.randn(8, 3)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    optimizer.register_step_post_hook(
        lambda of, *_: of.param_groups[0].update(lr=None)  # as Adafactor of transformers has it
    )
    model(torch.randn(8, 3)).square().mean().backward()
    optimizer.step()
    hook.close()
    assert not hook.report().errors


def test_sparse_gradients_are_not_looked_at(tmp_path: Path) -> None:
    model = nn.EmbeddingBag(10, 3, sparse=True)
    optimizer = SGD(model.parameters(), 0.01)
    hook = _new_hook(tmp_path)
    hook.register_module(model)
    for _ in range(3):
        model(torch.randint(0, 10, (4, 2))).mean().backward()
        optimizer.step()
    hook.close()
    assert not hook.report().errors
    assert create_trial(str(tmp_path)).tensor(LEFT).value(1) == 0


def _validated(
    folder: Path, *parts: nn.Module, validate: Callable[[nn.Module, nn.Module], None]
) -> float:
    """Return how many passes the hook counted as validation in training mode in two epochs."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), *parts, nn.Linear(4, 1))
    criterion = nn.MSELoss()
    hook = _new_hook(folder)
    hook.register_module(model)
    optimizer = SGD(model.parameters(), 0.01)
    hook.register_optimizer(optimizer)
    hook.register_loss(criterion)
    rows, targets = torch.randn(8, 3), torch.randn(8, 1)
    for _ in range(2):
        model.train()
        for _ in range(2):
            optimizer.zero_grad()
            criterion(model(rows), targets).backward()
            optimizer.step()
        validate(model, criterion)
    criterion(model(rows), targets).backward()
    optimizer.step()
    hook.close()
    assert not hook.report().errors
    tensor = create_trial(str(folder)).tensor(IN_TRAINING_MODE)
    return float(tensor.value(tensor.steps()[-1]))


def _by_module(model: nn.Module, criterion: nn.Module) -> None:
    with torch.no_grad():
        criterion(model(torch.randn(8, 3)), torch.randn(8, 1))


def _by_function(model: nn.Module, _: nn.Module) -> None:
    with torch.no_grad():
        nn.functional.mse_loss(model(torch.randn(8, 3)), torch.randn(8, 1))


def _in_evaluation_mode(model: nn.Module, criterion: nn.Module) -> None:
    _by_module(model.eval(), criterion)


def _of_targets_only(model: nn.Module, _: nn.Module) -> None:
    with torch.no_grad():
        model(torch.randn(8, 3))


@pytest.mark.parametrize("part", [nn.Dropout(0.5), nn.BatchNorm1d(4)])
@pytest.mark.parametrize("validate", [_by_module, _by_function])
def test_validation_in_training_mode_is_counted(
    tmp_path: Path, part: nn.Module, validate: Callable[[nn.Module, nn.Module], None]
) -> None:
    assert _validated(tmp_path, part, validate=validate) == 2


@pytest.mark.parametrize(
    ("part", "validate"),
    [
        (nn.Dropout(0.5), _in_evaluation_mode),
        (nn.Dropout(0.5), _of_targets_only),
        (nn.Dropout(0.0), _by_module),
        (nn.ReLU(), _by_module),
    ],
)
def test_validation_that_mode_does_not_change_is_not_counted(
    tmp_path: Path, part: nn.Module, validate: Callable[[nn.Module, nn.Module], None]
) -> None:
    assert _validated(tmp_path, part, validate=validate) == 0


def test_the_learning_rate_of_the_step_is_saved(tmp_path: Path) -> None:
    model = nn.Linear(3, 1)
    optimizer = SGD([{"params": [model.weight], "lr": 0.1}, {"params": [model.bias]}], 0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    hook = _new_hook(tmp_path)
    hook.register_module(model)
    hook.register_optimizer(optimizer)
    for _ in range(3):
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        schedule.step()
    hook.close()
    tensor = create_trial(str(tmp_path)).tensor("optimizer_steps/learning_rate")
    assert [float(tensor.value(step)) for step in tensor.steps()] == pytest.approx(
        [0.1, 0.05, 0.025]
    )


def test_steps_of_an_optimizer_that_was_deleted_count_no_more() -> None:
    counts, parameters = LoopCounts(), [nn.Parameter(torch.ones(2)) for _ in range(2)]
    parameters[1].grad = torch.ones(2)
    optimizers = [SGD([parameter], 0.1) for parameter in parameters]
    for at in (0, 0, 0, 1):
        counts.step_ended(optimizers[at], is_ours=True, is_recorded=False)
    name = "optimizer_steps/without_gradient"
    assert float(counts.facts(are_all_of_others=False)[name]) == 3
    del optimizers[0]
    gc.collect()
    assert float(counts.facts(are_all_of_others=False)[name]) == 0


def test_an_optimizer_of_parameters_that_are_not_used() -> None:
    counts, name = LoopCounts(), "optimizer_steps/of_unused_parameters"
    parameters = [nn.Parameter(torch.ones(2)) for _ in range(3)]
    ours, late, unused = (SGD([parameter], 0.1) for parameter in parameters)
    parameters[1].grad = torch.ones(2)
    counts.step_ended(late, is_ours=False, is_recorded=False)
    parameters[1].grad = None
    for _ in range(3):
        counts.step_ended(ours, is_ours=True, is_recorded=False)
        counts.step_ended(late, is_ours=False, is_recorded=False)
    assert float(counts.facts(are_all_of_others=False)[name]) == 0
    needs_none = SGD([nn.Parameter(torch.ones(2), requires_grad=False)], 0.1)  # such as a stand-in
    counts.step_ended(needs_none, is_ours=False, is_recorded=False)
    assert float(counts.facts(are_all_of_others=False)[name]) == 0
    counts.step_ended(unused, is_ours=False, is_recorded=False)
    assert float(counts.facts(are_all_of_others=False)[name]) == 1
