"""The lines of a script in which layers, losses and optimizers are created are in the run."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import hook_layer.pytorch as smd
from hook_layer.testing.written_trial import WrittenTrial

SOURCE = Path(__file__).read_text().splitlines()


def made(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(*layers)


def lines_of(trial: WrittenTrial, model: nn.Module) -> dict[str, dict[str, str]]:
    """Train, and return the text of the lines in the run."""
    hook = smd.Hook(trial.uri, include_collections=["losses"])
    hook.register_module(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss = F.mse_loss(model(torch.ones(4, 6)), torch.ones(4, 2))
    loss.backward()
    optimizer.step()
    hook.close()
    assert hook.report().errors == {}
    return {
        kind: {name: text_at(line) for name, line in lines.items()}
        for kind, lines in trial.collections().script_lines.items()
    }


def text_at(line: str) -> str:
    file, _, number = line.rpartition(":")
    assert Path(file).name == Path(__file__).name
    return SOURCE[int(number) - 1].strip()


def test_each_layer_has_its_own_line(trial: WrittenTrial) -> None:
    model = made(
        nn.Linear(6, 8),
        nn.ReLU(),
        nn.Linear(8, 2),
    )
    lines = lines_of(trial, model)
    assert lines["layers"]["0"] == "nn.Linear(6, 8),"
    assert lines["layers"]["2"] == "nn.Linear(8, 2),"
    assert lines["layers"]["1"] == "return nn.Sequential(*layers)"
    assert lines["losses"]["MSELoss"].startswith("loss = F.mse_loss(")
    # The line that makes it is known once a script was watched in this process.
    assert lines["optimizers"]["SGD_0"].startswith(("optimizer.step()", "optimizer = "))


def test_layers_of_a_library_have_the_line_that_creates_them(trial: WrittenTrial) -> None:
    encoder = nn.TransformerEncoderLayer(6, 2, 12)
    lines = lines_of(trial, made(encoder, nn.Linear(6, 2)))
    assert lines["layers"]["0.linear1"].startswith("encoder = nn.TransformerEncoderLayer(")


def test_a_copied_layer_has_the_line_of_what_contains_it(trial: WrittenTrial) -> None:
    first = nn.Linear(6, 6)
    copied = deepcopy(first)
    lines = lines_of(trial, made(first, made(copied), nn.Linear(6, 2)))
    assert lines["layers"]["0"] == "first = nn.Linear(6, 6)"
    assert lines["layers"]["1.0"] == "return nn.Sequential(*layers)"
