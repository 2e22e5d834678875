"""Models within torch.func's transforms: no steps, unless with parameters of their own."""

from __future__ import annotations

import pytest
import torch

from hook_layer.testing.written_trial import WrittenTrial

pytest.importorskip("torch.func")

from torch import nn
from torch.func import functional_call, grad, vmap

import hook_layer.pytorch as smd
from hook_layer.pytorch import steps


def test_per_sample_gradients_make_no_steps_and_the_log_says_so_once(
    trial: WrittenTrial, caplog: pytest.LogCaptureFixture
) -> None:
    steps._warn_of_transforms.cache_clear()
    model, hook = nn.Linear(4, 1), smd.Hook(trial.uri, save_config=smd.SaveConfig(save_interval=1))
    hook.register_module(model)
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(parameters: dict[str, torch.Tensor], row: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = functional_call(model, parameters, (row[None],))
        return outputs.square().mean()

    for _ in range(3):
        gradients = vmap(grad(loss), in_dims=(None, 0))(parameters, torch.ones(5, 4))
        parameters = {n: p - gradients[n].mean(0) for n, p in parameters.items()}
        vmap(loss, in_dims=(None, 0))(parameters, torch.ones(5, 4))
    assert hook.step == -1
    model(torch.ones(2, 4)).square().mean().backward()
    hook.close()
    assert trial.names(0) >= {"Loss_output_0"}
    assert list(trial.indexes()) == [0]
    assert caplog.text.count("functional_call") == 1


@pytest.mark.parametrize("norms", [None, ["l2"]])
def test_derivatives_by_inputs_of_a_model_with_its_own_parameters_are_of_its_steps(
    trial: WrittenTrial, norms: list[str] | None
) -> None:
    model = nn.Linear(4, 1)
    hook = smd.Hook(
        trial.uri,
        save_config=smd.SaveConfig(save_interval=1),
        include_collections=["weights", "gradients"],
        reduction_config=None if norms is None else smd.ReductionConfig(norms=norms),
    )
    hook.register_module(model)
    for _ in range(3):
        slopes = vmap(grad(lambda row: model(row).square().sum()))(torch.ones(5, 4))
        slopes.square().mean().backward()
    hook.close()
    assert not hook.report().errors
    assert list(trial.indexes()) == [0, 1, 2]
    saved = {"Linear_weight", "gradient/Linear_weight", "Loss_output_0"}
    statistics = trial.indexes()[1].statistics
    assert statistics is not None
    assert set(statistics.tensors) >= saved
    assert norms is not None or trial.names(1) >= saved
