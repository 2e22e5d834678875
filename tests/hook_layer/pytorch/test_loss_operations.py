"""Losses that no known function returns: what they compare is found by observing the script."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import hook_layer.pytorch as smd
from hook_layer.pytorch.function_mode import ObservedCalls
from hook_layer.pytorch.loss_operations import LossOperations
from hook_layer.pytorch.standard_losses import FormulaMatches
from hook_layer.testing.written_trial import WrittenTrial

ROWS = 16
X = torch.linspace(-2, 2, ROWS * 6).reshape(ROWS, 6).sin()
NUMBERS = torch.linspace(-1, 1, ROWS)
CLASSES = torch.arange(ROWS) % 3
SHARES = (torch.arange(ROWS * 3).reshape(ROWS, 3) % 2).float()
LOGARITHMS = torch.log(SHARES + 1e-3)
EVERY = torch.arange(ROWS)

Loss = Callable[[Tensor], Tensor]


class Dice(nn.Module):
    def forward(self, outputs: Tensor, masks: Tensor) -> Tensor:
        return 1 - (2 * (outputs * masks).sum() + 1) / (outputs.sum() + masks.sum() + 1)


def binary(p: Tensor, t: Tensor) -> Tensor:
    return -(t * torch.log(p) + (1 - t) * torch.log(1 - p)).mean()


LOSSES: dict[str, tuple[Loss, Tensor, str]] = {
    "squares": (lambda o: ((o[:, 0] - NUMBERS) ** 2).mean(), NUMBERS, "MSELoss"),
    "sum of squares": (lambda o: (o[:, 0] - NUMBERS).pow(2).sum(), NUMBERS, "MSELoss"),
    "sizes": (lambda o: (NUMBERS - o[:, 0]).abs().mean(), NUMBERS, "L1Loss"),
    "Huber": (
        lambda o: torch.where(
            (o[:, 0] - NUMBERS).abs() < 1,
            (o[:, 0] - NUMBERS) ** 2 / 2,
            (o[:, 0] - NUMBERS).abs() - 0.5,
        ).mean(),
        NUMBERS,
        "HuberLoss",
    ),
    "with a penalty": (
        lambda o: ((o[:, 0] - NUMBERS) ** 2).mean() + 100 * o.square().mean(),
        NUMBERS,
        "",
    ),
    "root": (lambda o: ((o[:, 0] - NUMBERS) ** 2).mean().sqrt(), NUMBERS, ""),
    "cross entropy": (
        lambda o: -F.log_softmax(o, 1)[EVERY, CLASSES].mean(),
        CLASSES,
        "CrossEntropyLoss",
    ),
    "gathered": (
        lambda o: -o.log_softmax(1).gather(1, CLASSES[:, None]).mean(),
        CLASSES[:, None],
        "CrossEntropyLoss",
    ),
    "without log_softmax": (
        lambda o: -(o - o.logsumexp(1, keepdim=True))[EVERY, CLASSES].mean(),
        CLASSES,
        "CrossEntropyLoss",
    ),
    "of probabilities": (
        lambda o: -(F.one_hot(CLASSES, 3) * o.softmax(1).log()).sum(1).mean(),
        F.one_hot(CLASSES, 3),
        "CategoricalCrossentropyLoss",
    ),
    "binary": (lambda o: binary(o.sigmoid(), SHARES), SHARES, "BCELoss"),
    "binary of logits": (
        lambda o: (torch.logaddexp(o, torch.zeros(())) - o * SHARES).mean(),
        SHARES,
        "BCEWithLogitsLoss",
    ),
    "Dice": (lambda o: Dice()(o.sigmoid(), SHARES), SHARES, ""),
    "divergence": (
        lambda o: (SHARES * (LOGARITHMS - F.log_softmax(o, 1))).sum(1).mean(),
        LOGARITHMS,
        "",
    ),
}


def train(hook: smd.Hook | None, loss: Loss, num_steps: int = 4) -> list[Any]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    if hook is not None:
        hook.register_module(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(num_steps):
        value = loss(net(X))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return [*net.parameters()]


def make_hook(trial: WrittenTrial, interval: int = 1, **options: Any) -> smd.Hook:
    return smd.Hook(
        trial.uri,
        save_config=smd.SaveConfig(save_interval=interval),
        include_collections=["losses", "loss_inputs"],
        **options,
    )


def assert_trains_as_plain(
    trial: WrittenTrial, loss: Loss, num_steps: int = 4, errors: dict[str, int] | None = None
) -> None:
    hook = make_hook(trial)
    watched = train(hook, loss, num_steps)
    hook.close()
    assert hook.report().errors == (errors or {})
    for own, plain in zip(watched, train(None, loss, num_steps), strict=True):
        assert torch.equal(own, plain)


@pytest.mark.parametrize("name", LOSSES)
def test_outputs_targets_and_formula_of_a_loss_by_hand(trial: WrittenTrial, name: str) -> None:
    loss, targets, formula = LOSSES[name]
    assert_trains_as_plain(trial, loss)
    assert not [saved for saved in trial.names(0) if "input" in saved]
    values = trial.values(2)
    np.testing.assert_array_equal(values["Loss_input_1"], targets.numpy())
    assert len(values["Loss_input_0"]) == ROWS
    for step in (1, 2, 3):
        matches = {
            saved.removeprefix("Loss_matches/"): int(count)
            for saved, count in trial.values(step).items()
            if saved.startswith("Loss_matches/")
        }
        assert len(matches) > 1
        assert {of: n for of, n in matches.items() if n} == ({formula: step} if formula else {})


def _root_of_counted(squares: Tensor) -> Tensor:
    count = squares.shape[0] + squares.argmax()
    return squares.sqrt().sum() / count


NONE_FINITE: dict[str, tuple[Loss, str, str]] = {
    "logarithm": (lambda o: -(o.softmax(1) * 0).log().mean(), "log", "log"),
    # The gradient before a call in place cannot be seen.
    "division in place": (lambda o: (o.softmax(1) * 1).div_(0).mean(), "div", "mul"),
    "after a mask": (
        lambda o: (o.masked_fill(SHARES > 0, -torch.inf).softmax(1)[:, 0] / 0).mean(),
        "div",
        "div",
    ),
    "overflow": (lambda o: (1000 + o).exp().mean(), "exp", "exp"),
    "root at 0": (lambda o: ((o - o.detach()) ** 2).sum(1).sqrt().mean(), "", "sqrt"),
    "root after calls without a gradient": (
        lambda o: _root_of_counted(((o - o.detach()) ** 2).sum(1)),
        "",
        "sqrt",
    ),
    "finite": (lambda o: (o - SHARES).square().mean(), "", ""),
}


@pytest.mark.parametrize("name", NONE_FINITE)
def test_the_operation_that_is_not_finite(trial: WrittenTrial, name: str) -> None:
    loss, of_value, of_gradient = NONE_FINITE[name]
    hook = smd.Hook(
        trial.uri,
        save_config=smd.SaveConfig(save_interval=1),
        include_collections=["gradients", "losses", "loss_inputs"],
    )
    net = nn.Linear(6, 3)
    hook.register_module(net)
    for _ in range(3):
        loss(net(X)).backward()
        net.zero_grad()
    hook.close()
    values = trial.values(1)
    operations = trial.collections().script_lines["operations"]
    for of, expected in (("value", of_value), ("gradient", of_gradient)):
        text = operations.get(str(int(values[f"Loss_not_finite/{of}_0"])), "")
        assert text.partition(" at ")[0].strip("_") == expected
        assert not expected or "test_loss_operations.py:" in text


def test_matches_in_a_row_need_other_losses_and_end_at_a_step_without() -> None:
    outputs, matches = torch.zeros(4, 2), FormulaMatches()
    steps = [(3.0, 3.0), (12.0, 3.0), (12.0, 3.0), (8.0, 1.0), (8.1, 1.0), (8.0, 1.0)]
    counts = [
        int(matches.count(torch.tensor(loss), {"MSELoss": torch.tensor(of)}, outputs)["MSELoss"])
        for loss, of in steps
    ]
    assert counts == [1, 2, 2, 3, 0, 1]


@pytest.fixture
def observed(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The passes after which losses are observed."""
    passes: list[object] = []
    begin = ObservedCalls.begin

    def counted(self: ObservedCalls, *args: Any, **options: Any) -> bool:
        if getattr(self._observer, "__self__", None).__class__ is LossOperations:
            passes.append(self)
        return begin(self, *args, **options)

    monkeypatch.setattr(ObservedCalls, "begin", counted)
    return passes


def test_known_losses_and_steps_that_are_not_saved_are_not_observed(
    trial: WrittenTrial, observed: list[object]
) -> None:
    hook = make_hook(trial, interval=2)
    train(hook, lambda o: F.mse_loss(o[:, 0], NUMBERS), 6)
    hook.close()
    assert not observed
    hook = make_hook(trial, interval=2)
    train(hook, LOSSES["squares"][0], 6)
    hook.close()
    assert len(observed) == 2  # steps 2 and 4


def test_what_cannot_be_explained_is_observed_three_times(
    trial: WrittenTrial, observed: list[object]
) -> None:
    hook = make_hook(trial)
    train(hook, lambda o: o.square().mean(), 9)
    hook.close()
    assert len(observed) == 3
    assert not [name for name in trial.names(5) if "input" in name]


def many_operations(outputs: Tensor) -> Tensor:
    for _ in range(1000):
        outputs = outputs * 1.0001
    return ((outputs[:, 0] - NUMBERS) ** 2).mean()


def of_sparse(outputs: Tensor) -> Tensor:
    return torch.sparse.mm(torch.eye(ROWS).to_sparse(), outputs).mean()


def of_complex(outputs: Tensor) -> Tensor:
    return (torch.complex(outputs, outputs) - torch.complex(SHARES, SHARES)).abs().mean()


class Squares(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, outputs: Tensor) -> Tensor:
        ctx.save_for_backward(outputs)
        return outputs.square().mean()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (outputs,) = ctx.saved_tensors
        return gradient * 2 * outputs / outputs.numel()


@pytest.mark.parametrize(
    "loss",
    [
        many_operations,
        of_sparse,
        of_complex,
        Squares.apply,
        lambda o: (o[:, 0] - NUMBERS).mul_(1).square_().mean(),
        lambda o: torch.stack([((o - 1) ** 2).mean(), o.mean()]).sum(),
        lambda o: ((o.double() - SHARES.double()) ** 2).mean(),
    ],
)
def test_unusual_losses_change_nothing(trial: WrittenTrial, loss: Any) -> None:
    assert_trains_as_plain(trial, loss)


# What is not compared --------------------------------------------------------------------------


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.change = nn.Linear(6, 6)

    def forward(self, rows: Tensor) -> Tensor:
        result: Tensor = self.change(rows)
        return result


def steps_of(trial: WrittenTrial, net: nn.Module, loss: Callable[[Tensor], Any]) -> Any:
    """Return the values of the third step."""
    torch.manual_seed(0)
    hook = make_hook(trial)
    hook.register_module(net)
    for _ in range(4):
        loss(net(X)).backward()
    hook.close()
    assert hook.report().errors == {}
    return trial.values(2)


def test_what_is_added_to_the_outputs_is_not_compared_with_them(trial: WrittenTrial) -> None:
    values = steps_of(trial, Residual(), lambda o: ((X + o - X.roll(1)) ** 2).mean())
    np.testing.assert_array_equal(values["Loss_input_1"], X.roll(1).numpy())


def test_a_metric_of_the_outputs_is_not_the_loss(trial: WrittenTrial) -> None:
    def loss(outputs: Tensor) -> Tensor:
        float((outputs - 1000 * torch.ones(ROWS, 6)).abs().mean())
        return ((outputs - X) ** 2).mean()

    np.testing.assert_array_equal(steps_of(trial, Residual(), loss)["Loss_input_1"], X.numpy())


def test_a_mask_gives_way_to_a_difference(trial: WrittenTrial) -> None:
    mask = (torch.arange(ROWS) % 2).float()[:, None]
    values = steps_of(trial, Residual(), lambda o: ((o * mask - X * mask) ** 2).mean())
    np.testing.assert_array_equal(values["Loss_input_1"], (X * mask).numpy())


def test_of_two_losses_by_hand_the_first_one_is_explained(trial: WrittenTrial) -> None:
    torch.manual_seed(0)
    hook, nets = make_hook(trial), [Residual(), Residual()]
    for net in nets:
        hook.register_module(net)
    hook.follow_optimizers()
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.01) for net in nets]
    for _ in range(5):
        for factor, net, optimizer in zip((1, 5), nets, optimizers, strict=True):
            optimizer.zero_grad()
            ((net(X) - factor) ** 2 + 0 * X).mean().backward()
            optimizer.step()
    hook.close()
    assert hook.report().errors == {}


# The script's own modes and layers -------------------------------------------------------------


class Doubled(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return 2 * result if func is torch.sum else result


def depth() -> int:
    number: int = torch._C._len_torch_function_stack()
    return number


@pytest.mark.parametrize("ends", ["within", "after"])
def test_a_mode_of_the_script_ends_where_the_script_ends_it(trial: WrittenTrial, ends: str) -> None:
    hook, net = make_hook(trial), Residual()
    hook.register_module(net)
    for _ in range(4):
        with Doubled():
            outputs = net(X)
            if ends == "within":
                ((outputs - X) ** 2).mean().backward()
        if ends == "after":
            ((outputs - X) ** 2).mean().backward()
        assert depth() == 0
        assert float(torch.sum(torch.ones(3))) == 3
    hook.close()


def test_a_teacher_between_forward_and_backward_computes_as_without_a_hook(
    trial: WrittenTrial,
) -> None:
    """Layers of transformers compute otherwise while any mode is active."""
    torch.manual_seed(0)
    teacher = nn.TransformerEncoderLayer(6, 2, 8, batch_first=True).eval()

    def losses(hook: smd.Hook | None) -> list[Tensor]:
        torch.manual_seed(1)
        net = Residual()
        if hook is not None:
            hook.register_module(net)
        found = []
        for _ in range(4):
            outputs = net(X)
            with torch.no_grad():
                targets = teacher(X[None])[0]
            loss = ((outputs - targets) ** 2).mean()
            loss.backward()
            found.append(loss.detach())
        return found

    hook = make_hook(trial)
    watched = losses(hook)
    hook.close()
    assert torch.equal(torch.stack(watched), torch.stack(losses(None)))
    assert "Loss_input_1" in trial.values(2)


def test_an_error_while_observing_does_not_reach_the_script(
    trial: WrittenTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(LossOperations, "_found_in", fail)
    assert_trains_as_plain(trial, LOSSES["squares"][0], 9, errors={"observed losses": 3})


class LossInside(nn.Module):
    """Returns the loss, which it computes itself, after a residual connection."""

    def __init__(self, *, with_outputs: bool) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 1)
        self.with_outputs = with_outputs

    def forward(self, rows: Tensor, targets: Tensor) -> Any:
        outputs = self.last(rows - self.first(rows).relu())[:, 0]
        loss = ((outputs - targets) ** 2).mean()
        return (loss, outputs) if self.with_outputs else loss


class Around(nn.Module):
    """Returns what another model returns."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *args: Any) -> Any:
        return self.model(*args)


@pytest.mark.parametrize("with_outputs", [False, True])
@pytest.mark.parametrize("is_wrapped", [False, True])
def test_a_loss_that_the_model_computes_itself(
    trial: WrittenTrial, with_outputs: bool, is_wrapped: bool
) -> None:
    def trained(hook: smd.Hook | None) -> list[Tensor]:
        torch.manual_seed(0)
        net: nn.Module = LossInside(with_outputs=with_outputs)
        net = Around(net) if is_wrapped else net
        if hook is not None:
            hook.register_module(net)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for _ in range(5):
            returned = net(X, NUMBERS)
            loss = returned[0] if with_outputs else returned
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return [*net.parameters()]

    hook = smd.Hook(
        trial.uri,
        include_collections=["loss_inputs"],
        save_config=smd.SaveConfig(save_interval=1),
    )
    parameters = trained(hook)
    hook.close()
    assert not hook.report().errors
    assert all(map(torch.equal, parameters, trained(None)))
    values = trial.values(4)
    np.testing.assert_array_equal(values["Loss_input_1"], NUMBERS)
    assert values["Loss_standard/MSELoss"] == pytest.approx(values["Loss_output_0"], rel=1e-5)


@pytest.mark.parametrize(
    ("others", "is_named"),
    [
        (lambda o: 100 * o.exp().mean(), True),
        (lambda o: 100 * (o[:, 1] - NUMBERS).square().mean(), False),
    ],
)
def test_the_only_comparison_with_data_may_be_any_part_of_a_sum(
    trial: WrittenTrial, others: Loss, *, is_named: bool
) -> None:
    assert_trains_as_plain(trial, lambda o: F.mse_loss(o[:, 0], NUMBERS) + others(o))
    assert "Loss_output_0" in trial.names(0)
    named = {"MSELoss_output_0", "MSELoss_input_1", "Loss_minimised/MSELoss_0"}
    for step in (1, 3):
        assert (named <= set(trial.names(step))) is is_named
        assert ("Loss_output_0" in trial.names(step)) is not is_named


def test_no_sum_of_a_loss_that_is_multiplied_with_its_penalty(trial: WrittenTrial) -> None:
    assert_trains_as_plain(
        trial, lambda o: 64 * (F.mse_loss(o[:, 0], NUMBERS) + 1e-4 * o.exp().mean())
    )
    assert not [name for name in trial.names(3) if name.startswith("Loss_minimised")]


def test_the_sum_has_the_number_of_its_loss(trial: WrittenTrial) -> None:
    def losses(o: Tensor) -> Tensor:
        F.mse_loss(o[:, 0], NUMBERS).backward(retain_graph=True)
        return F.mse_loss(o[:, 0], NUMBERS) + 0.1 * o.exp().mean()

    assert_trains_as_plain(trial, losses)
    sums = {name for name in trial.names(3) if name.startswith("Loss_minimised")}
    assert sums == {"Loss_minimised/MSELoss_1"}
