"""What losses that no module computes are of: it is found in the graph of the backward pass."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from hook_layer.testing.written_trial import WrittenTrial

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

import torch.nn.functional as F  # noqa: E402, N812
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import hook_layer.pytorch as smd  # noqa: E402
from hook_layer.pytorch import events  # noqa: E402

pytestmark = pytest.mark.skipif(
    not hasattr(torch._C._autograd.SavedTensor, "unpack_hook"),
    reason="this torch does not tell whether what a graph keeps is kept elsewhere",
)

OUTPUTS, TARGETS = "Loss_input_0", "Loss_input_1"
LOSS = "Loss_output_0"
X = torch.linspace(-1, 1, 12).view(4, 3)
CLASSES = torch.tensor([0, 1, 2, 1])
NUMBERS = torch.linspace(0, 1, 12).view(4, 3)

Graph = Callable[[torch.Tensor], torch.Tensor]


def make_hook(trial: WrittenTrial, regex: str = "[Ll]oss_input_[0-9]+$") -> smd.Hook:
    hook = smd.Hook(
        trial.uri, save_config=smd.SaveConfig(save_interval=1), include_collections=["inputs"]
    )
    hook.get_collection("inputs").include(regex)
    return hook


def make_net(hook: smd.Hook | None) -> nn.Module:
    torch.manual_seed(0)
    net = nn.Linear(3, 3)
    if hook is not None:
        hook.register_module(net)
    return net


def saved(trial: WrittenTrial, loss: Graph, net: Any = None) -> Mapping[str, np.ndarray[Any, Any]]:
    """Return what a step of training by a loss saves."""
    hook = make_hook(trial)
    model = make_net(hook)
    loss((net or (lambda x: x))(model(X))).backward()
    hook.close()
    assert not hook.report().errors
    return dict(trial.values(0))


@pytest.mark.parametrize(
    "loss",
    [
        F.mse_loss,
        F.smooth_l1_loss,
        F.huber_loss,
        F.binary_cross_entropy_with_logits,
        lambda o, t: F.binary_cross_entropy(o.sigmoid(), t),
        lambda o, t: F.mse_loss(o, t, reduction="sum"),
        lambda o, t: F.mse_loss(o, t, reduction="none").mean(),
        lambda o, t: F.binary_cross_entropy_with_logits(o, t, pos_weight=torch.ones(3) * 2),
    ],
)
def test_a_loss_of_pairs_has_outputs_and_targets(
    trial: WrittenTrial, loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
) -> None:
    got: list[torch.Tensor] = []
    values = saved(trial, lambda outputs: loss(kept(outputs, got), NUMBERS))
    assert set(values) == {OUTPUTS, TARGETS, LOSS}
    outputs = got[0].sigmoid() if values[OUTPUTS].min() > 0 else got[0]
    np.testing.assert_array_equal(values[OUTPUTS], outputs.numpy())
    np.testing.assert_array_equal(values[TARGETS], NUMBERS.numpy())


def kept(outputs: torch.Tensor, into: list[torch.Tensor]) -> torch.Tensor:
    into.append(outputs.detach().clone())
    return outputs


@pytest.mark.parametrize(
    "loss",
    [
        lambda o: F.cross_entropy(o, CLASSES),
        lambda o: F.cross_entropy(o, CLASSES, weight=torch.tensor([1.0, 2.0, 3.0])),
        lambda o: F.cross_entropy(o, CLASSES, reduction="none").mean(),
        lambda o: F.nll_loss(o.log_softmax(1), CLASSES),
    ],
)
def test_a_cross_entropy_has_targets_and_not_its_logarithms(
    trial: WrittenTrial, loss: Graph
) -> None:
    values = saved(trial, loss)
    assert set(values) == {TARGETS, LOSS}
    np.testing.assert_array_equal(values[TARGETS], CLASSES.numpy())


def test_what_is_no_cross_entropy_got_its_logarithms(trial: WrittenTrial) -> None:
    values = saved(trial, lambda o: F.nll_loss(torch.log(o.softmax(1)), CLASSES))
    assert set(values) == {OUTPUTS, TARGETS, LOSS}
    np.testing.assert_allclose(np.exp(values[OUTPUTS]).sum(1), 1, rtol=1e-6)


@pytest.mark.parametrize("shape", [(2, 2), (2, 2, 1), (1, 2, 2)])
def test_targets_have_the_shape_that_the_function_got(
    trial: WrittenTrial, shape: tuple[int, ...]
) -> None:
    def loss(outputs: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(outputs.view(*shape, 3).movedim(-1, 1), CLASSES.view(shape))

    values = saved(trial, loss)
    np.testing.assert_array_equal(values[TARGETS], CLASSES.view(shape).numpy())


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_what_is_spread_over_the_other_is_not_saved_so(trial: WrittenTrial) -> None:
    values = saved(trial, lambda o: F.mse_loss(o[:, :1], NUMBERS[:, 0]))
    assert values[OUTPUTS].shape == (4, 1)
    np.testing.assert_array_equal(values[TARGETS], NUMBERS[:, 0].numpy())


WRAPPINGS = [
    lambda x: x / 4,
    lambda x: 0.25 * x,
    lambda x: torch.tensor(0.5) * x / 2 * 1,
    lambda x: x.view(1).squeeze().clone().double(),
    lambda x: x.unsqueeze(0).sum().mean(),
    lambda x: x / torch.tensor(7),
]


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_what_stands_around_a_function_does_not_matter(
    trial: WrittenTrial, wrapping: Graph
) -> None:
    values = saved(trial, lambda o: wrapping(F.cross_entropy(o, CLASSES)))
    assert set(values) == {TARGETS, LOSS}


OTHERS = [
    lambda o: F.cross_entropy(o, CLASSES) + F.mse_loss(o, NUMBERS),
    lambda o: F.cross_entropy(o, CLASSES) + o.square().mean(),
    lambda o: -F.cross_entropy(o, CLASSES),
    lambda o: F.cross_entropy(o, CLASSES) * -0.5,
    lambda o: F.cross_entropy(o, CLASSES) * 20,
    lambda o: F.cross_entropy(o, CLASSES) / torch.tensor(0.0),
    lambda o: 1 / F.cross_entropy(o, CLASSES),
    lambda o: F.cross_entropy(o, CLASSES) * o.mean().exp(),
    lambda o: (F.cross_entropy(o, CLASSES, reduction="none") * X[:, 0]).mean(),
    lambda o: F.mse_loss(o, o.flip(0)),
    lambda o: F.mse_loss(NUMBERS, o),
    lambda o: o.square().mean(),
    lambda o: F.cross_entropy(o, NUMBERS),
]


@pytest.mark.parametrize("loss", OTHERS)
def test_nothing_else_is_taken_for_the_value_of_a_function(
    trial: WrittenTrial, loss: Graph
) -> None:
    assert set(saved(trial, loss)) == {LOSS}


def test_only_the_first_loss_of_a_step_counts(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    outputs = make_net(hook)(X)
    F.cross_entropy(outputs, CLASSES).backward(retain_graph=True)
    F.mse_loss(outputs, NUMBERS).backward()
    hook.close()
    assert set(trial.names(0)) == {TARGETS, LOSS, "Loss_output_1"}
    assert trial.values(0)[TARGETS].dtype == np.int64


def test_the_loss_of_a_registered_module_is_not_saved_twice(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    net, criterion = make_net(hook), nn.MSELoss()
    hook.register_loss(criterion)
    criterion(net(X), NUMBERS).backward()
    hook.close()
    assert trial.names(0) == {"MSELoss_input_0", "MSELoss_input_1", "MSELoss_output_0"}


def test_targets_changed_since_are_left_out(trial: WrittenTrial) -> None:
    targets = CLASSES.clone()
    hook = make_hook(trial)
    loss = F.cross_entropy(make_net(hook)(X), targets)
    targets += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    hook.close()
    assert trial.names(0) == {LOSS}
    assert not hook.report().errors


def test_what_torch_keeps_elsewhere_is_left_there(trial: WrittenTrial) -> None:
    calls = []

    def loss(outputs: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return F.cross_entropy(outputs, CLASSES)

    values = saved(trial, lambda o: checkpoint(loss, o, use_reentrant=False) / 2)
    assert set(values) == {LOSS}
    assert len(calls) == 2  # the loss, and torch's own second time


@pytest.mark.parametrize("scale", [65536.0, 1000.0])
def test_a_scaled_loss(trial: WrittenTrial, scale: float) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    values = saved(trial, lambda o: scaler.scale(F.cross_entropy(o, CLASSES) / 2) / 2)
    assert set(values) == {TARGETS, LOSS}


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
        assert set(values) == {TARGETS, LOSS, "Loss_output_1"}
        np.testing.assert_array_equal(values[TARGETS], (CLASSES.numpy() + step) % 3)


def test_a_compiled_model_with_its_loss_outside(trial: WrittenTrial) -> None:
    torch.compiler.reset()
    hook = make_hook(trial)
    net = make_net(hook)
    compiled = torch.compile(net, backend="aot_eager")
    for _ in range(2):
        F.mse_loss(compiled(X), NUMBERS).backward()
    hook.close()
    torch.compiler.reset()
    assert [trial.names(step) for step in (0, 1)] == [{OUTPUTS, TARGETS, LOSS}] * 2


def test_a_compiled_loss_has_no_inputs(trial: WrittenTrial) -> None:
    torch.compiler.reset()
    compiled = torch.compile(lambda o: F.cross_entropy(o, CLASSES), backend="aot_eager")
    assert set(saved(trial, compiled)) == {LOSS}
    torch.compiler.reset()


@pytest.mark.parametrize(("regex", "is_asked"), [("_input_1$", True), ("_output_0$", False)])
def test_the_graph_is_looked_at_only_if_somebody_asks(
    trial: WrittenTrial, monkeypatch: pytest.MonkeyPatch, regex: str, is_asked: bool
) -> None:
    asked = []
    real = events.inputs_of

    def counting(*args: Any) -> dict[int, torch.Tensor]:
        asked.append(1)
        return real(*args)

    monkeypatch.setattr(events, "inputs_of", counting)
    hook = make_hook(trial, regex)
    hook.get_collection("inputs").save_config = smd.SaveConfig(save_interval=2)
    net = make_net(hook)
    for _ in range(3):
        F.mse_loss(net(X), NUMBERS).backward()
    hook.close()
    assert len(asked) == (2 if is_asked else 0)
    assert [TARGETS in trial.names(step) for step in range(3)] == [is_asked, False, is_asked]
    assert OUTPUTS not in trial.names(0)


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


def test_no_tensor_is_kept_behind_the_step(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    net = make_net(hook)
    targets = NUMBERS.clone()
    outputs = net(X)
    alive = [weakref.ref(outputs), weakref.ref(targets)]
    F.mse_loss(outputs, targets).backward()
    del outputs, targets
    gc.collect()
    assert [known() for known in alive] == [None, None]
    hook.close()
