"""One criterion that several trainings of a process share, one of which is watched."""

from __future__ import annotations

import pytest

from hook_layer.testing.written_trial import WrittenTrial

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import hook_layer.pytorch as smd  # noqa: E402


def test_what_others_do_with_the_loss_does_not_fill_the_last_step(
    trial: WrittenTrial, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("hook_layer.pytorch.capturing.MAX_CALLS_A_STEP", 5)
    criterion = nn.MSELoss()
    hook = smd.Hook(trial.uri, save_config=smd.SaveConfig(save_interval=1))
    hook.register_loss(criterion)
    for number in range(3):
        model = nn.Linear(4, 1)
        if number == 0:
            hook.register_module(model)
        for _ in range(8):
            criterion(model(torch.ones(2, 4)), torch.ones(2, 1)).backward()
            if number == 0:
                hook.save_scalar("rate", 1.0)  # for which steps stay open until the next one
    hook.close()
    names = trial.names(7)
    assert sum(name.startswith("MSELoss_output") for name in names) == 5
    assert caplog.text.count("step 7 has 5 tensors MSELoss_") == 1
    assert {name for name in trial.names(3) if "Loss" in name} == {"MSELoss_output_0"}
