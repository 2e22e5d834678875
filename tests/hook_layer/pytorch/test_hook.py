from __future__ import annotations

import copy
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import hook_layer.pytorch as smd
from hook_layer.format.end_marker import EndMarker
from hook_layer.format.job_file import StopFile
from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import END_MARKER, STOP_FILE
from hook_layer.storage.base import StorageError
from hook_layer.testing.written_trial import WrittenTrial

EVERY_STEP = smd.SaveConfig(save_interval=1)
TENSORS = ["weights", "biases", "gradients"]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.relu = nn.ReLU(inplace=True)
        self.fc = nn.Linear(4 * 36, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.fc(self.relu(self.conv(images)).flatten(1))
        return result


PARAMETERS = ["conv.weight", "conv.bias", "fc.weight", "fc.bias"]
GRADIENTS = {f"gradient/Net_{name}" for name in PARAMETERS}
WEIGHTS = {f"Net_{name}" for name in PARAMETERS}
LOSS = "CrossEntropyLoss_output_0"


class Training:
    """A model, and a loop over it that a test can walk step by step."""

    def __init__(self, hook: smd.Hook | None, net: nn.Module | None = None) -> None:
        torch.manual_seed(0)
        self.net = Net() if net is None else net
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)
        if hook is not None:
            hook.register_module(self.net)
            hook.register_loss(self.criterion)

    def loss(self) -> torch.Tensor:
        images, labels = torch.randn(4, 1, 8, 8), torch.randint(10, (4,))
        result: torch.Tensor = self.criterion(self.net(images), labels)
        return result

    def step(self) -> float:
        loss = self.loss()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def parameters(self) -> dict[str, np.ndarray]:
        return {f"Net_{n}": p.detach().numpy().copy() for n, p in self.net.named_parameters()}

    def gradients(self) -> dict[str, np.ndarray]:
        named = self.net.named_parameters()
        return {f"gradient/Net_{n}": p.grad.numpy().copy() for n, p in named if p.grad is not None}


def every_step(trial: WrittenTrial, **options: Any) -> smd.Hook:
    options.setdefault("include_collections", TENSORS)
    return smd.Hook(trial.uri, save_config=EVERY_STEP, **options)


def test_names_and_values_are_those_of_the_step(trial: WrittenTrial) -> None:
    hook = every_step(trial)
    training = Training(hook)
    expected = []
    for _ in range(3):
        before = training.parameters()
        loss = training.step()
        expected.append((before, training.gradients(), loss))
    hook.close()
    for step, (before, gradients, loss) in enumerate(expected):
        values = trial.values(step)
        assert set(values) == WEIGHTS | GRADIENTS | {LOSS}
        assert values[LOSS].shape == ()
        assert float(values[LOSS]) == loss
        for name, value in {**before, **gradients}.items():
            np.testing.assert_array_equal(values[name], value, strict=True)
        index = trial.indexes()[step]
        assert (index.mode, index.mode_step, index.sequence) == (ModeKeys.GLOBAL, step, step + 1)
        assert (index.run, index.workers) == (trial.job().run_id, 1)
        statistics = trial.statistics(step)
        assert statistics["Net_fc.weight"]["size"] == 1440
        assert statistics[LOSS]["mean"] == loss


def test_a_step_is_visible_once_it_is_captured(trial: WrittenTrial) -> None:
    hook = every_step(trial)
    training = Training(hook)
    training.step()
    hook.flush()
    assert not trial.indexes()  # the first step stays open, to see what else comes
    for step in (1, 2):
        training.step()
        hook.flush()
        assert list(trial.indexes()) == list(range(step + 1))


def test_a_scalar_that_is_late_for_the_first_time_is_in_the_next_step(trial: WrittenTrial) -> None:
    hook = every_step(trial)
    training = Training(hook)
    hook.save_scalar("before", 1)
    for step in range(5):
        training.step()
        if step >= 2:
            hook.save_scalar("late", step)
    hook.close()
    found = {s: {n for n in trial.names(s) if n.startswith("scalar")} for s in range(5)}
    late = {"scalar/late"}
    assert found == {0: {"scalar/before"}, 1: set(), 2: set(), 3: late, 4: late}
    # Step 3 holds the values of steps 2 and 3 under one name: the later one counts.
    assert [trial.values(step)["scalar/late"][0] for step in (3, 4)] == [3, 4]


def test_scalars_are_saved_with_the_steps_that_are_saved(trial: WrittenTrial) -> None:
    hook = smd.Hook(trial.uri, save_config=smd.SaveConfig(save_interval=2))
    training = Training(hook)
    for step in range(4):
        loss = training.loss()
        hook.save_scalar("loss", loss)
        if step == 1:
            hook.save_scalar("seldom", step)
        loss.backward()
        hook.save_tensor("mine", np.full(3, step))
        training.optimizer.step()
    hook.close()
    expected = {LOSS, "scalar/loss", "mine"}
    assert list(trial.indexes()) == [0, 2, 3]
    assert trial.names(0) == expected
    assert trial.names(2) == expected | {"scalar/seldom"}
    assert trial.names(3) == {"scalar/loss"}  # the end of the run saves it
    values = trial.values(2)
    np.testing.assert_allclose(values["scalar/loss"], [values[LOSS]])
    np.testing.assert_array_equal(trial.values(2)["mine"], [2, 2, 2])
    assert "mine" in trial.collections().collections["default"].tensor_names


def test_a_scalar_must_be_one_number(trial: WrittenTrial) -> None:
    hook = every_step(trial)
    for value in (torch.ones(2), [1, 2], [[1, 2], [3]], {}, "one", None):
        with pytest.raises(TypeError, match="one number"):
            hook.save_scalar("x", value)
    for number in (1, 2.5, np.float32(1), torch.ones(1), torch.tensor(1), True):
        hook.save_scalar("x", number)
    hook.close()


def test_modes_count_their_own_steps_and_gradients_are_of_training(trial: WrittenTrial) -> None:
    hook = every_step(trial)
    training = Training(hook)
    for mode in (smd.modes.TRAIN, smd.modes.EVAL, smd.modes.TRAIN):
        hook.set_mode(mode)
        for _ in range(2):
            training.step() if mode is smd.modes.TRAIN else training.loss().backward()
    hook.close()
    found = [(index.mode.name, index.mode_step) for index in trial.indexes().values()]
    assert found == [
        ("TRAIN", 0),
        ("TRAIN", 1),
        ("EVAL", 0),
        ("EVAL", 1),
        ("TRAIN", 2),
        ("TRAIN", 3),
    ]
    for step in (2, 3):
        assert trial.names(step) == WEIGHTS | {LOSS}
    assert trial.names(4) >= GRADIENTS
    with pytest.raises(ValueError, match="mode='TRAIN'"):
        hook.set_mode("TRAIN")


def test_statistics_only(trial: WrittenTrial) -> None:
    hook = every_step(trial, reduction_config=smd.ReductionConfig())
    training = Training(hook)
    before = training.parameters()["Net_fc.weight"].astype(np.float64)
    training.step()
    hook.close()
    assert set(trial.values(0)) == {LOSS}  # scalars are always saved
    assert trial.names(0) == WEIGHTS | GRADIENTS | {LOSS}
    row = trial.statistics(0)["Net_fc.weight"]
    assert row["l2"] == pytest.approx(np.linalg.norm(before), rel=1e-6)
    assert row["std"] == pytest.approx(before.std(), rel=1e-6)


def test_of_large_tensors_the_first_rows_are_stored_where_a_limit_says_so(
    trial: WrittenTrial, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="stepwatch")
    config = smd.ReductionConfig(["mean"], save_raw_tensor=True, raw_max_elements=144)
    hook = every_step(trial, include_collections=TENSORS, reduction_config=config)
    training = Training(hook)
    for _ in range(2):
        training.step()
    hook.close()
    values = trial.values(1)
    assert values["Net_fc.weight"].shape == (1, 144)  # of 10 rows
    assert trial.statistics(1)["Net_fc.weight"]["size"] == 1440
    assert {"Net_conv.weight", "Net_fc.bias"} < set(values)  # 36, 10
    mean = trial.statistics(1)["Net_fc.weight"]["mean"]
    reduced = values["smdebug/reductions/mean/Net_fc.weight"]
    assert reduced == pytest.approx(mean, rel=1e-4)
    assert caplog.text.count("Net_fc.weight: the first 1 of 10 rows are stored") == 1
    cut = {each.name: (each.rows, each.of_rows, each.steps) for each in hook.report().cut}
    assert cut == dict.fromkeys(("Net_fc.weight", "gradient/Net_fc.weight"), (1, 10, 2))


def test_a_limit_of_one_collection_does_not_count_where_another_has_none(
    trial: WrittenTrial,
) -> None:
    hook = every_step(trial, include_collections=["limited", "whole"])
    for name, limit in (("limited", 1), ("whole", None)):
        hook.get_collection(name).include("fc.weight$" if limit is None else "weight$")
        hook.get_collection(name).reduction_config = smd.ReductionConfig(
            save_raw_tensor=True, raw_max_elements=limit
        )
    training = Training(hook)
    training.step()
    hook.close()
    weights = {n for n, v in trial.values(0).items() if n.endswith("weight") and v.size}
    assert {n for n in weights if n not in trial.indexes()[0].first_rows} == {
        "Net_fc.weight",
        "gradient/Net_fc.weight",
    }


def test_without_statistics(trial: WrittenTrial) -> None:
    hook = every_step(trial, statistics=False)
    Training(hook).step()
    hook.close()
    assert all(np.isnan(row["size"]) for row in trial.statistics(0).values())
    assert trial.values(0).keys() == WEIGHTS | GRADIENTS | {LOSS}


def test_reductions_are_torchs(trial: WrittenTrial) -> None:
    config = smd.ReductionConfig(
        ["min", "max", "mean", "std", "variance", "sum", "prod"], ["mean"], ["l1", "l2"], ["l2"]
    )
    hook = every_step(trial, reduction_config=config)
    training = Training(hook)
    weight = training.net.fc.weight.detach().clone()
    training.step()
    hook.close()
    values = trial.values(0)
    expected = {
        "std": weight.std(),
        "variance": weight.var(),
        "prod": weight.prod(),
        "mean": weight.mean(),
        "abs_mean": weight.abs().mean(),
        "l2": weight.norm(2),
        "l1": weight.norm(1),
        "abs_l2": weight.norm(2),
        "min": weight.min(),
    }
    for name, value in expected.items():
        found = values[f"smdebug/reductions/{name}/Net_fc.weight"]
        assert found.shape == ()
        assert float(found) == pytest.approx(float(value), rel=1e-6)
    assert "Net_fc.weight" not in values


def test_modules_of_a_collection(trial: WrittenTrial) -> None:
    hook = every_step(trial, include_collections=["relu", "by_regex"], include_regex="fc_input")
    training = Training(hook)
    relu = hook.get_collection("relu")
    relu.add_module_tensors(training.net.relu, inputs=True)
    hook.get_collection("by_regex").include("^Net_output_0$")
    for _ in range(2):
        training.step()
    hook.close()
    names = {"relu_input_0", "relu_output_0", "fc_input_0", "Net_output_0", LOSS}
    assert [trial.names(step) for step in (0, 1)] == [names, names]
    assert trial.values(0)["relu_output_0"].min() == 0
    assert trial.collections().collections["relu"].tensor_names == ("relu_input_0", "relu_output_0")
    assert not any(module._forward_hooks for module in training.net.modules())


def test_everything(trial: WrittenTrial) -> None:
    hook = every_step(trial, save_all=True, include_collections=None)
    Training(hook).step()
    hook.close()
    modules = {
        f"{m}_{kind}_0" for m in ("conv", "relu", "fc", "Net") for kind in ("input", "output")
    }
    losses = {"CrossEntropyLoss_input_0", "CrossEntropyLoss_input_1", LOSS}
    assert trial.names(0) == WEIGHTS | GRADIENTS | modules | losses
    assert set(trial.collections().collections["all"].tensor_names) >= WEIGHTS


def test_calls_of_a_module_are_numbered(trial: WrittenTrial) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> dict[str, Any]:
            return {"a": self.fc(self.fc(x)), "b": [x, (x,)], "c": "text"}

    hook = every_step(trial, include_regex="output", include_collections=None)
    net = Twice()
    hook.register_module(net)
    net(torch.ones(3))
    hook.close()
    assert trial.names(0) == {
        "fc_output_0",
        "fc_output_1",
        *(f"Twice_output_{i}" for i in range(3)),
    }


def test_any_module_may_be_a_loss(trial: WrittenTrial) -> None:
    class Dice(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.mean()

    hook = every_step(trial, include_collections=None)
    net, loss = nn.Linear(3, 1), Dice()
    hook.register_module(net)
    hook.register_loss(loss)
    hook.register_loss(loss)
    value = loss(net(torch.ones(3)))
    hook.record_tensor_value("mse_loss", value * 2)
    hook.close()
    assert trial.names(0) == {"Dice_output_0", "mse_loss_output_0"}
    assert trial.collections().collections["losses"].tensor_names == (
        "Dice_output_0",
        "mse_loss_output_0",
    )


def test_gradients_that_are_not_there_are_not_waited_for(trial: WrittenTrial) -> None:
    class Partly(Net):
        def __init__(self) -> None:
            super().__init__()
            self.unused = nn.Linear(2, 2)
            self.conv.weight.requires_grad_(False)

    hook = every_step(trial)
    training = Training(hook, Partly())
    for _ in range(2):
        training.step()
    hook.flush()
    expected = {name.replace("Net", "Partly") for name in GRADIENTS - {"gradient/Net_conv.weight"}}
    for step in (0, 1):
        assert {name for name in trial.names(step) if name.startswith("gradient")} == expected
    hook.close()


def test_gradient_accumulation_keeps_the_sum_so_far(trial: WrittenTrial) -> None:
    hook = every_step(trial)
    training = Training(hook)
    expected = []
    for step in range(4):
        training.loss().backward()
        expected.append(training.gradients())
        if step % 2:
            training.optimizer.step()
            training.optimizer.zero_grad()
    hook.close()
    for step, gradients in enumerate(expected):
        values = trial.values(step)
        for name, value in gradients.items():
            np.testing.assert_array_equal(values[name], value, strict=True)


def test_two_backward_passes_in_a_step(trial: WrittenTrial) -> None:
    hook = every_step(trial)
    training = Training(hook)
    expected = []
    for _ in range(3):
        training.optimizer.zero_grad()
        loss = training.loss()
        loss.backward(retain_graph=True)
        (2 * loss).backward()
        expected.append(training.gradients())
        training.optimizer.step()
    hook.close()
    for step, gradients in enumerate(expected):
        np.testing.assert_array_equal(
            trial.values(step)["gradient/Net_fc.weight"], gradients["gradient/Net_fc.weight"]
        )
    assert hook.report().late_tensors == 0


def test_a_loop_without_a_torch_optimizer(trial: WrittenTrial) -> None:
    hook = every_step(trial)
    training = Training(hook)
    for step in range(3):
        training.net.zero_grad()
        training.loss().backward()
        with torch.no_grad():
            for parameter in training.net.parameters():
                parameter.sub_(0.1 * parameter.grad)
        hook.flush()
        assert len(trial.indexes()) == (step + 1 if step else 0)
    hook.close()
    assert all(trial.names(step) >= GRADIENTS for step in range(3))


def test_an_exception_in_the_forward_or_backward_pass(trial: WrittenTrial) -> None:
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(*_: Any) -> Any:
            raise ZeroDivisionError("in backward")

    class Net2(Net):
        fails = False

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            hidden = self.relu(self.conv(images))
            hidden = Fails.apply(hidden) if self.fails else hidden
            result: torch.Tensor = self.fc(hidden.flatten(1))
            return result

    hook = every_step(trial)
    net = Net2()
    training = Training(hook, net)
    training.step()
    net.fails = True
    with pytest.raises(ZeroDivisionError):
        training.step()
    with pytest.raises(RuntimeError):
        net(torch.ones(1))
    net.fails = False
    training.step()
    hook.close()
    gradients = {s: len([n for n in trial.names(s) if n.startswith("gradient")]) for s in range(4)}
    assert gradients == {0: 4, 1: 2, 2: 0, 3: 4}
    assert not hook.failures.errors


def test_evaluation_in_between_without_a_mode(trial: WrittenTrial) -> None:
    hook = every_step(trial)
    training = Training(hook)
    for _ in range(3):
        training.step()
        with torch.no_grad():
            training.loss()
    hook.close()
    with_gradients = [step for step in range(6) if trial.names(step) >= GRADIENTS]
    assert with_gradients == [0, 2, 4]


def test_nothing_is_hooked_in_steps_that_are_not_due(trial: WrittenTrial) -> None:
    hook = smd.Hook(trial.uri, save_config=smd.SaveConfig(save_interval=3), save_all=True)
    training = Training(hook)

    def num_hooks() -> int:
        modules = [module._forward_hooks for module in training.net.modules()]
        parameters = [p._post_accumulate_grad_hooks or {} for p in training.net.parameters()]
        return sum(map(len, modules + parameters))

    counts = []
    for _ in range(4):
        training.step()
        counts.append(num_hooks())
    assert counts == [4, 0, 0, 4]
    hook.close()
    assert num_hooks() == 0
    assert not training.net._forward_pre_hooks
    assert list(trial.indexes()) == [0, 3]


def set_on_the_hook(hook: smd.Hook) -> None:
    hook.collection_manager.save_config = smd.SaveConfig(save_interval=4)


def set_on_a_mode(hook: smd.Hook) -> None:
    config = smd.SaveConfigMode(save_interval=4)
    hook.collection_manager.save_config.set_save_config(hook.mode, config)


def set_in_place(hook: smd.Hook) -> None:
    hook.collection_manager.save_config.get_save_config(hook.mode).save_interval = 4


def listed(hook: smd.Hook) -> None:
    hook.collection_manager.save_config.get_save_config(hook.mode).save_steps.append(4)


def set_on_a_collection(hook: smd.Hook) -> None:
    config = hook.get_collection("biases").save_config
    assert config is not None
    config.get_save_config(hook.mode).save_interval = 4


def included(hook: smd.Hook) -> None:
    hook.get_collection("gradients").save_config = smd.SaveConfig(save_interval=4)
    hook.collection_manager.include.add("gradients")


@pytest.mark.parametrize(
    "change",
    [set_on_the_hook, set_on_a_mode, set_in_place, listed, set_on_a_collection, included],
)
def test_a_change_of_when_to_save_applies_at_once(trial: WrittenTrial, change: Any) -> None:
    config = smd.SaveConfig(save_interval=10)
    hook = smd.Hook(trial.uri, include_collections=["weights", "biases"], save_config=config)
    hook.get_collection("biases").save_config = smd.SaveConfig(save_interval=20)
    training = Training(hook)
    for step in range(6):
        if step == 3:
            change(hook)
        training.step()
    hook.close()
    assert list(trial.indexes()) == [0, 4]


def test_a_stop_request_ends_the_loop_with_a_reason(trial: WrittenTrial) -> None:
    hook = every_step(trial, stop_poll_s=1000)
    training = Training(hook)
    for _ in range(3):
        training.step()
    assert not hook.should_stop
    hook.flush()
    request = StopFile("gradients vanish", "2026-11-20T10:00:00Z", trial.job().run_id, "Vanishing")
    trial.store.put(STOP_FILE, request.encode())
    assert hook.session.trial is not None
    hook.session.trial.stop_signal.check()
    assert hook.should_stop
    with pytest.raises(smd.TrainingStoppedError, match="gradients vanish") as caught:
        training.step()
    assert (caught.value.reason, caught.value.rule) == ("gradients vanish", "Vanishing")
    assert len(trial.indexes()) == 3
    assert trial.end_marker() == EndMarker(trial.job().run_id, {"worker_0": 3})
    assert hook.stop_reason == "gradients vanish"
    training.step()  # who catches the error may go on, e.g. to evaluate; nothing is written
    assert len(trial.indexes()) == 3


def test_a_stop_request_may_only_set_a_flag(trial: WrittenTrial) -> None:
    hook = every_step(trial, stop="flag", stop_poll_s=0.001)
    training = Training(hook)
    training.step()
    hook.flush()
    trial.store.put(STOP_FILE, StopFile("enough", "now", trial.job().run_id).encode())
    assert hook.session.trial is not None
    thread = hook.session.trial.stop_signal._thread
    assert thread is not None
    thread.join(20)
    training.step()
    assert hook.should_stop
    assert trial.end_marker() is None
    hook.close()
    assert trial.end_marker() == EndMarker(trial.job().run_id, {"worker_0": 2})


def test_a_second_run_in_the_same_folder(trial: WrittenTrial) -> None:
    runs = []
    for _ in range(2):
        hook = every_step(trial)
        training = Training(hook)
        training.step()
        hook.flush()
        assert trial.end_marker() is None  # the one of the run before is gone
        runs.append(trial.job().run_id)
        hook.close()
        assert trial.end_marker() == EndMarker(runs[-1], {"worker_0": 1})
    assert runs[0] != runs[1]
    assert trial.indexes()[0].sequence == 1
    assert trial.indexes()[0].run == runs[1]


def test_the_kill_switch(trial: WrittenTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USE_SMDEBUG", "false")
    hook = smd.Hook()
    training = Training(hook)
    hook.save_scalar("x", 1)
    training.step()
    hook.close()
    assert not training.net._forward_pre_hooks
    assert smd.get_hook() is None
    assert not hook.should_stop
    assert hook.report().steps_seen == 0


def test_close_is_idempotent_and_also_done_by_with(trial: WrittenTrial) -> None:
    with pytest.raises(KeyError), every_step(trial) as hook:  # noqa: PT012
        training = Training(hook)
        training.step()
        raise KeyError
    assert trial.end_marker() == EndMarker(trial.job().run_id, {"worker_0": 1})
    trial.store.delete(END_MARKER)
    hook.close()
    training.step()
    assert trial.end_marker() is None
    assert list(trial.indexes()) == [0]


def test_a_copy_of_a_model_that_uses_a_hook_of_gradients_trains(trial: WrittenTrial) -> None:
    hook = every_step(trial)

    class Noted(nn.Sequential):
        def __init__(self) -> None:
            super().__init__(nn.Linear(2, 2), nn.Linear(2, 1))
            self.note = hook.backward_hook("hidden")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden: torch.Tensor = self[0](x)
            hidden.register_hook(self.note)
            result: torch.Tensor = self[1](hidden)
            return result

    copied = copy.deepcopy(Noted())
    copied(torch.ones(3, 2)).sum().backward()
    assert all(parameter.grad is not None for parameter in copied.parameters())


def test_metrics_of_a_trainer_may_have_any_name(trial: WrittenTrial) -> None:
    hook = smd.Hook(trial.uri, save_config=smd.SaveConfig(save_interval=3))
    net = nn.Linear(4, 1)
    hook.trainer.follow(net)
    for step in range(7):
        hook.trainer.begin_step(ModeKeys.TRAIN)
        net(torch.ones(2, 4)).mean().backward()
        if step == 1:
            hook.trainer.record_metrics_later({0: 0.5, "accuracy": 0.1})  # type: ignore[dict-item]
        hook.trainer.end_step()
    hook.close()
    assert hook.report().errors == {}
    assert {"scalar/0", "scalar/accuracy"} <= trial.names(3)


def test_the_collections_file(trial: WrittenTrial) -> None:
    hook = every_step(trial)
    training = Training(hook)
    training.step()
    training.step()
    hook.flush()
    assert trial.collections().collections["weights"].tensor_names == (
        "Net_conv.weight",
        "Net_fc.weight",
    )
    hook.get_collection("late").include("scalar/")
    hook.collection_manager.include.add("late")
    training.step()
    hook.save_scalar("lr", 1.0)
    training.step()
    training.step()
    hook.flush()
    assert trial.collections().collections["late"].tensor_names == ("scalar/lr",)
    hook.close()
    file = trial.collections()
    assert file.num_workers == 1
    assert file.collections["late"].tensor_names == ("scalar/lr",)
    assert file.collections["losses"].include_regex == ("[Ll]oss_(?!input).*output",)


def test_a_store_that_fails_does_not_touch_training(
    trial: WrittenTrial,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    hook = every_step(trial, queue_bytes=1, close_timeout_s=0.2, spool_dir=tmp_path)

    def refuse(key: str, data: Any) -> None:
        raise StorageError(28, f"no space left for {key}")

    monkeypatch.setattr(hook.session.store, "put", refuse)
    training = Training(hook)
    losses = [training.step() for _ in range(20)]
    with caplog.at_level(logging.WARNING):
        hook.close()
    plain = Training(None)
    assert losses == [plain.step() for _ in range(20)]
    assert hook.report().writer.steps_in_spool == 20
    assert f"python -m hook_layer.spool {tmp_path}" in caplog.text


def test_a_component_that_fails_is_switched_off_alone(
    trial: WrittenTrial, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hook = every_step(trial)
    training = Training(hook)

    def broken(_: object) -> dict[str, Any]:
        raise MemoryError("no memory")

    monkeypatch.setattr(hook.loop_state.gradients, "take", broken)
    for _ in range(3):
        training.step()
    hook.close()
    assert hook.report().errors.keys() == {"gradients"}
    messages = [record.message for record in caplog.records]
    assert sum("gradients failed" in message for message in messages) == 2
    assert sum("is switched off" in message for message in messages) == 1
    assert [trial.names(step) for step in range(3)] == [WEIGHTS | {LOSS}] * 3


@pytest.mark.parametrize("part", ["losses", "modules", "gradients", "steps"])
def test_a_part_that_is_switched_off_lets_go_of_torch(trial: WrittenTrial, part: str) -> None:
    code = nn.functional.cross_entropy.__code__
    hook = every_step(trial, include_collections=["relu_output"])
    training = Training(hook)
    training.loss()
    hook.failures.off.add(part)
    hook.close()
    assert nn.functional.cross_entropy.__code__ is code
    for module in [*training.net.modules(), training.criterion]:
        assert not module._forward_hooks
        assert not module._forward_pre_hooks


def test_parameters_are_captured_once_a_step_without_gradients(
    trial: WrittenTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = every_step(trial)
    training = Training(hook)
    hook.register_optimizer(training.optimizer)
    training.step()
    hook.failures.off.add("gradients")
    captured: list[dict[str, Any]] = []
    monkeypatch.setattr(hook.recorder, "capture", captured.append)
    (training.loss() + training.loss()).backward()
    hook.close()
    assert sum("Net_fc.weight" in tensors for tensors in captured) == 1


def test_layers_of_later_models_are_noted_without_modules(trial: WrittenTrial) -> None:
    hook = every_step(trial)
    Training(hook).step()
    hook.failures.off.add("modules")
    Training(hook, nn.Sequential(nn.Flatten(), nn.Linear(64, 10))).step()
    hook.close()
    assert "1" in hook.collector.manager.layers


def test_a_collections_file_that_cannot_be_written_does_not_switch_off_collections(
    trial: WrittenTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = every_step(trial, include_collections=["mine"])
    training = Training(hook)
    hook.get_collection("mine").add_module_tensors(training.net.fc)

    def refuse() -> None:
        raise OSError("no route")

    with monkeypatch.context() as patched:
        patched.setattr(hook.session, "write_collections", refuse)
        for _ in range(3):
            hook.export_collections()
    assert hook.report().errors == {"collections": 3}
    training.step()
    hook.close()
    assert "fc_output_0" in trial.names(0)


def test_mistakes_in_collections_raise_at_the_first_step(trial: WrittenTrial) -> None:
    hook = every_step(trial, include_collections=["mine"])
    hook.get_collection("mine")
    with pytest.raises(ValueError, match="Collection mine has not been configured"):
        Training(hook).step()
    hook.close()
    hook = every_step(trial)
    hook.get_collection("mine").add_module_tensors(nn.Linear(1, 1))
    with pytest.raises(ValueError, match="is not registered"):
        Training(hook).step()
    hook.close()


def test_only_modules_can_be_registered(trial: WrittenTrial) -> None:
    hook = every_step(trial)
    net = Net()
    hook.register_hook(net)
    with pytest.raises(ValueError, match="already registered"):
        hook.register_module(net)
    with pytest.raises(ValueError, match="this Linear is already registered"):
        hook.register_module(net.fc)
    with pytest.raises(ValueError, match="Net, a part of this Sequential, is already registered"):
        hook.register_module(nn.Sequential(net))
    for register in (hook.register_module, hook.register_loss):
        with pytest.raises(ValueError, match=r"torch\.nn\.Module"):
            register(lambda: 0)
    hook.close()


class Kernels(nn.Module):
    """Layers whose parameters have names of their own, and a head if asked for."""

    def __init__(self, *, has_head: bool) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.ones(3, 2))
        self.bias_table = nn.Parameter(torch.ones(2, 2))
        self.scale = nn.Parameter(torch.ones(2))
        self.head = nn.Linear(2, 1) if has_head else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.head(x @ self.kernel @ self.bias_table * self.scale)
        return output


@pytest.mark.parametrize(
    ("has_head", "weights"), [(False, ["Kernels_kernel"]), (True, ["Kernels_head.weight"])]
)
def test_matrices_are_weights_where_no_parameter_is_called_so(
    trial: WrittenTrial, has_head: bool, weights: list[str]
) -> None:
    hook = smd.Hook(trial.uri, include_collections=["weights", "biases", "gradients"])
    net = Kernels(has_head=has_head)
    hook.register_module(net)
    net(torch.ones(4, 3)).sum().backward()
    hook.close()
    assert set(weights) <= set(trial.values(0))
    members = trial.collections().collections
    assert list(members["weights"].tensor_names) == weights
    assert "Kernels_bias_table" in members["biases"].tensor_names
