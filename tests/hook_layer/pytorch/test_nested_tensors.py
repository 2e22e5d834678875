"""Nested tensors, which torch's own layers make of padded ones where they evaluate."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

import hook_layer.pytorch as smd
from hook_layer.testing.written_trial import WrittenTrial


def test_nested_tensors_are_left_out_with_a_reason(
    trial: WrittenTrial, caplog: pytest.LogCaptureFixture
) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 2))
    hook = smd.Hook(
        trial.uri, save_config=smd.SaveConfig(save_interval=1), include_regex=["_output_"]
    )
    hook.register_module(model[0])
    hook.set_mode(smd.modes.EVAL)
    model.eval()
    is_nested: list[bool] = []
    model[0].layers[1].register_forward_hook(lambda _, __, out: is_nested.append(out.is_nested))
    padding = torch.tensor([[False, False, False], [False, True, True]])
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model[0](torch.ones(2, 3, 8), src_key_padding_mask=padding)
    hook.close()
    assert is_nested == [True]
    assert trial.names(0) == {"TransformerEncoder_output_0"}
    report = hook.report()
    reason = "a nested tensor has rows of different lengths"
    assert set(report.not_captured.values()) == {reason}
    assert not report.errors
    assert 1 <= len(caplog.records) <= 2
    assert reason in caplog.text
