"""Models that are compiled, traced or exported."""

from __future__ import annotations

import copy
import shutil
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

import hook_layer.pytorch as smd
from hook_layer.format.job_file import StopFile
from hook_layer.format.paths import STOP_FILE
from hook_layer.testing.written_trial import WrittenTrial

NUM_STEPS = 6
HOWS = ["before", "after", "in place", "a part", "a function"]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.block: Any = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
        self.fc = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.fc(self.block(x))
        return result


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.compiler.reset()
    counters.clear()
    yield
    torch.compiler.reset()


def make_hook(trial: WrittenTrial, interval: int = 1, **options: Any) -> smd.Hook:
    config = smd.SaveConfig(save_interval=interval, start_step=1 if interval > 1 else 0)
    options.setdefault("include_collections", ["weights", "biases", "gradients"])
    options.setdefault("include_regex", ["put_0$"])
    return smd.Hook(trial.uri, save_config=config, **options)


def registered(hook: smd.Hook, how: str, **options: Any) -> tuple[nn.Module, Callable[..., Any]]:
    """Return a model that is registered and compiled in one of several ways, and what to call."""
    net = Net()
    if how == "before":
        compiled = torch.compile(net, **options)
        hook.register_module(compiled)
        return net, compiled
    hook.register_module(net)
    if how == "after":
        return net, torch.compile(net, **options)
    if how == "in place":
        net.compile(**options)
    elif how == "a part":
        net.block = torch.compile(net.block, **options)
    elif how == "a function":
        return net, torch.compile(lambda x: 1.0 * net(x), **options)
    return net, net


def train(hook: smd.Hook, net: nn.Module, call: Callable[..., Any]) -> list[float]:
    loss = nn.CrossEntropyLoss()
    hook.register_loss(loss)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for _ in range(NUM_STEPS):
        optimizer.zero_grad()
        value = loss(call(torch.ones(5, 3)), torch.zeros(5, dtype=torch.long))
        value.backward()
        optimizer.step()
        losses.append(float(value.detach()))
    return losses


@pytest.fixture(scope="module")
def eager() -> WrittenTrial:
    trial = WrittenTrial("memory://eager-twin/")
    hook = make_hook(trial)
    net, call = registered(hook, "not at all")
    train(hook, net, call)
    hook.close()
    return trial


@pytest.mark.parametrize(("interval", "fullgraph"), [(1, False), (3, True)])
@pytest.mark.parametrize("how", HOWS)
def test_the_same_tensors_as_without_compiling(
    trial: WrittenTrial, eager: WrittenTrial, how: str, interval: int, fullgraph: bool
) -> None:
    hook = make_hook(trial, interval)
    net, call = registered(hook, how, backend="aot_eager", fullgraph=fullgraph)
    train(hook, net, call)
    hook.close()
    assert list(trial.indexes()) == [
        step for step in range(NUM_STEPS) if step % interval == 0 and (step or interval == 1)
    ]
    for step in trial.indexes():
        values, expected = trial.values(step), eager.values(step)
        assert set(values) == set(expected) >= {"Net_block.0.weight", "block.0_output_0"}
        for name, value in expected.items():
            np.testing.assert_allclose(values[name], value, rtol=1e-6, err_msg=name)
    assert not hook.report().errors
    assert not counters["graph_break"]
    assert counters["stats"]["unique_graphs"] == 1
    assert not any(module._forward_hooks for module in net.modules())


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_other_backends(trial: WrittenTrial, eager: WrittenTrial, backend: str) -> None:
    if backend == "inductor" and not (shutil.which("gcc") or shutil.which("c++")):
        pytest.skip("inductor needs a C++ compiler")
    hook = make_hook(trial, 3)
    net, call = registered(hook, "after", backend=backend, fullgraph=True)
    losses = train(hook, net, call)
    hook.close()
    assert losses == pytest.approx(
        [float(eager.values(s)["CrossEntropyLoss_output_0"]) for s in range(NUM_STEPS)]
    )
    for step in [3]:
        values, expected = trial.values(step), eager.values(step)
        assert set(values) == set(expected)
        for name, value in expected.items():
            np.testing.assert_allclose(values[name], value, rtol=1e-5, err_msg=name)
    assert not counters["graph_break"]


def test_a_collection_of_modules_and_a_model_in_evaluation(trial: WrittenTrial) -> None:
    hook = make_hook(trial, include_collections=["mine"], include_regex=None)
    net, call = registered(hook, "after", backend="eager")
    hook.get_collection("mine").add_module_tensors(net.block, inputs=True)
    loss = nn.CrossEntropyLoss()
    hook.register_loss(loss)
    labels = torch.zeros(5, dtype=torch.long)
    for mode in (smd.modes.TRAIN, smd.modes.EVAL, smd.modes.TRAIN):
        hook.set_mode(mode)
        net.train(mode is smd.modes.TRAIN)
        with torch.inference_mode(mode is smd.modes.EVAL):
            loss(call(torch.ones(5, 3)), labels)
    hook.close()
    expected = {"block_input_0", "block_output_0", "CrossEntropyLoss_output_0"}
    assert [trial.names(step) for step in range(3)] == [expected] * 3


def test_a_loss_within_the_compiled_function(trial: WrittenTrial) -> None:
    hook = make_hook(trial, include_regex=None)
    net, loss = Net(), nn.CrossEntropyLoss()
    hook.register_module(net)
    hook.register_loss(torch.compile(loss, backend="eager"))

    @torch.compile(backend="eager", fullgraph=True)
    def loss_of(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = loss(net(x), torch.zeros(5, dtype=torch.long))
        return result

    for _ in range(2):
        loss_of(torch.ones(5, 3)).backward()
    hook.close()
    assert [len(trial.names(step)) for step in (0, 1)] == [9, 9]
    assert "CrossEntropyLoss_output_0" in trial.names(1)


@pytest.mark.parametrize("first", [0, 1])
def test_a_model_with_its_loss_inside_is_compiled_once(trial: WrittenTrial, first: int) -> None:
    class WithLoss(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.mse_loss(super().forward(x), torch.zeros(5, 2))

    num_graphs = 0

    def backend(graph: torch.fx.GraphModule, _: object) -> Callable[..., Any]:
        nonlocal num_graphs
        num_graphs += 1
        return graph.forward

    hook = smd.Hook(trial.uri, save_config=smd.SaveConfig(save_interval=2, start_step=first))
    net = WithLoss()
    hook.register_module(net)
    compiled = torch.compile(net, backend=backend)
    for _ in range(NUM_STEPS):
        compiled(torch.ones(5, 3)).backward()
    hook.close()
    assert num_graphs == 1
    assert list(trial.indexes()) == [step for step in (0, 2, 4) if step >= first]


def test_a_compiled_optimizer(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    net = Net()
    hook.register_module(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    step = torch.compile(optimizer.step, backend="eager")
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.ones(5, 3)).sum().backward()
        step()
    hook.close()
    assert [len(trial.names(step)) for step in range(3)] == [len(trial.names(0))] * 3
    assert "gradient/Net_fc.weight" in trial.names(2)
    assert not hook.report().errors


def test_a_twin_of_a_compiled_model_is_not_watched(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    twin, twin2 = (torch.compile(Net(), backend="eager") for _ in range(2))
    twin(torch.ones(5, 3))
    net, call = registered(hook, "after", backend="eager")
    call(torch.ones(5, 3))
    twin2(torch.ones(5, 3))
    torch.compile(copy.deepcopy(net), backend="eager", fullgraph=True)(torch.ones(5, 3))
    call(torch.ones(5, 3))
    hook.close()
    assert hook.report().steps_seen == 2
    assert "fc_output_0" in trial.names(1)


def test_compiled_code_that_skips_the_hook_is_reported(
    trial: WrittenTrial, caplog: pytest.LogCaptureFixture
) -> None:
    hook = make_hook(trial)
    net = Net()
    compiled = torch.compile(net, backend="eager")
    with torch._dynamo.config.patch(skip_nnmodule_hook_guards=True):  # as before a hook's first use
        compiled(torch.ones(5, 3))
    hook.register_module(net)
    for _ in range(3):
        compiled(torch.ones(5, 3)).sum().backward()
    warnings_ = [r.getMessage() for r in caplog.records if r.name == "stepwatch"]
    assert len(warnings_) == 1
    assert "block, block.0, block.1, fc" in warnings_[0]
    torch.compiler.reset()
    compiled(torch.ones(5, 3))
    hook.close()
    assert "fc_output_0" not in trial.names(2)
    assert "fc_output_0" in trial.names(3)


def test_a_model_that_is_compiled_late(trial: WrittenTrial) -> None:
    hook = make_hook(trial, 3)
    net, _ = registered(hook, "not at all")
    for step in range(7):
        if step == 4:
            net.compile(backend="eager", fullgraph=True)
        net(torch.ones(5, 3))
    hook.close()
    assert trial.names(3) == trial.names(6) >= {"fc_output_0", "Net_output_0"}


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch is not distributed here")
def test_a_compiled_model_in_distributed_data_parallel(trial: WrittenTrial) -> None:
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        hook = make_hook(trial, include_workers="all")
        net, _ = registered(hook, "not at all")
        model = nn.parallel.DistributedDataParallel(net)
        train(hook, net, torch.compile(model, backend="aot_eager"))
        hook.close()
    finally:
        torch.distributed.destroy_process_group()
    assert len(trial.names(0)) == 20
    assert [trial.names(step) for step in range(NUM_STEPS)] == [trial.names(0)] * NUM_STEPS
    assert not hook.report().errors


def test_many_parts_that_are_compiled_each_on_its_own(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    net = nn.Sequential(*(nn.Linear(3, 3) for _ in range(12)))
    hook.register_module(net)
    for part in net:
        part.compile(backend="eager", fullgraph=True)
    for _ in range(2):
        net(torch.ones(3))
    hook.close()
    assert {f"{i}_output_0" for i in range(12)} < trial.names(1)


def test_a_stop_request_gets_out_of_a_compiled_model(trial: WrittenTrial) -> None:
    hook = make_hook(trial, stop_poll_s=1000)
    _, call = registered(hook, "after", backend="aot_eager", fullgraph=True)
    call(torch.ones(5, 3))
    hook.flush()
    trial.store.put(STOP_FILE, StopFile("enough", "now", trial.job().run_id).encode())
    assert hook.session.trial is not None
    hook.session.trial.stop_signal.check()
    with pytest.raises(smd.TrainingStoppedError, match="enough"):
        call(torch.ones(5, 3))
    assert call(torch.ones(5, 3)).shape == (5, 2)
    assert list(trial.indexes()) == [0]


def test_wrong_collections_are_reported_at_the_first_compiled_step(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    _, call = registered(hook, "after", backend="eager")
    hook.get_collection("mine").add_module_tensors(nn.Linear(1, 1))
    with pytest.raises(ValueError, match="is not registered"):
        call(torch.ones(5, 3))
    hook.close()


def _trace(net: nn.Module) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.trace(net, torch.ones(5, 3), check_trace=False)


def _export(*, strict: bool) -> Callable[[nn.Module], object]:
    return lambda net: torch.export.export(net, (torch.ones(5, 3),), strict=strict)


@pytest.mark.parametrize(
    "transform",
    [_trace, _export(strict=True), _export(strict=False), torch.fx.symbolic_trace],
    ids=["trace", "strict export", "export", "symbolic_trace"],
)
def test_nothing_is_lost_when_a_model_is_traced(
    trial: WrittenTrial, transform: Callable[[nn.Module], Any]
) -> None:
    hook = make_hook(trial)
    net, call = registered(hook, "not at all")
    expected = None
    for step in range(3):
        if step == 1:
            transform(net)
        net.zero_grad()
        call(torch.ones(5, 3)).sum().backward()
    hook.close()
    expected = {"Net_output_0", "fc_output_0", "gradient/Net_fc.weight", "Net_fc.weight"}
    assert hook.report().steps_seen == 3
    assert [trial.names(step) >= expected for step in range(3)] == [True] * 3
    assert not hook.report().errors


class Keywords(nn.Module):
    """A model whose parts, and loss, get their inputs by keyword."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc = nn.Linear(3, 2)
        self.pair = nn.Bilinear(2, 2, 1)

    def forward(self, *, x: torch.Tensor) -> torch.Tensor:
        hidden = self.fc(input=x)
        result: torch.Tensor = self.pair(hidden, input2=2 * hidden)
        return result


@pytest.mark.parametrize("is_compiled", [False, True])
def test_inputs_by_keyword_are_saved(trial: WrittenTrial, is_compiled: bool) -> None:
    hook = make_hook(trial, save_all=True)
    net, criterion = Keywords(), nn.MSELoss()
    hook.register_module(net)
    hook.register_loss(criterion)
    call = torch.compile(net, backend="aot_eager", fullgraph=True) if is_compiled else net
    x, target = torch.rand(4, 3), torch.rand(4, 1)
    for _ in range(2):
        criterion(target=target, input=call(x=x)).backward()
    hook.close()
    assert not counters["graph_break"]
    for step in (0, 1):
        values = trial.values(step)
        np.testing.assert_array_equal(values["Keywords_input_0"], x)
        np.testing.assert_array_equal(values["fc_input_0"], x)
        np.testing.assert_array_equal(values["pair_input_0"], values["fc_output_0"])
        np.testing.assert_array_equal(values["pair_input_1"], 2 * values["fc_output_0"])
        np.testing.assert_array_equal(values["MSELoss_input_0"], values["Keywords_output_0"])
        np.testing.assert_array_equal(values["MSELoss_input_1"], target)
    assert not hook.report().errors
