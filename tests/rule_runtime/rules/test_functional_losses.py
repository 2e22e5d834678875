"""Trainings whose loss is a function: what rules know of its inputs, and whom they leave alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from rule_runtime.configuration.packs import PACKS
from rule_runtime.engine.rule import Rule
from rule_runtime.facts.losses import Losses, LossKind
from rule_runtime.rules.label_degenerate import LabelDegenerate
from rule_runtime.rules.worse_than_guessing import WorseThanGuessing
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.rules.runs import found_at, judged_at
from tests.rule_runtime.rules.torch_runs import (
    Batches,
    Loss,
    findings,
    recommended_hook,
    train,
)

pytestmark = pytest.mark.skipif(
    not hasattr(torch._C._autograd.SavedTensor, "unpack_hook"),
    reason="of this torch the hook asks nothing, see hook_layer.pytorch.loss_calls",
)

RNG = np.random.default_rng(0)
RECOMMENDED = tuple(PACKS["recommended"].rules().items())
STEPS = 201


def found(
    folder: Path,
    model: nn.Module,
    batches: Batches,
    loss: Loss,
    *,
    rules: Iterable[tuple[str, Rule]] = RECOMMENDED,
) -> set[str]:
    """Return the rules that find something in a training."""
    hook = recommended_hook(folder, model)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    train(hook, model, batches, loss, optimizer, steps=STEPS)
    return {*findings(folder, rules)}


def network(num_outputs: int = 4, last: nn.Module | None = None) -> nn.Module:
    layers = [nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, num_outputs)]
    return nn.Sequential(*layers, *([] if last is None else [last]))


def noisy_classes(num_classes: int = 4, of: torch.Tensor | None = None) -> Batches:
    centres = 1.5 * torch.randn(num_classes, 8)

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        classes = torch.randint(num_classes, (64,))
        return centres[classes] + torch.randn(64, 8), classes if of is None else of

    return batch


def test_labels_that_are_all_the_same_are_found(tmp_path: Path) -> None:
    of_one = noisy_classes(of=torch.full((64,), 2))
    assert "LabelDegenerate" in found(tmp_path, network(), of_one, F.cross_entropy)


def test_a_softmax_ahead_of_a_cross_entropy_is_found(tmp_path: Path) -> None:
    model = network(last=nn.Softmax(1))
    assert "OutputContract" in found(tmp_path, model, noisy_classes(), F.cross_entropy)


def test_a_sigmoid_ahead_of_another_one_is_found(tmp_path: Path) -> None:
    batches = noisy_classes(2)

    def of_two() -> tuple[torch.Tensor, torch.Tensor]:
        inputs, classes = batches()
        return inputs, classes[:, None].float()

    model = network(1, nn.Sigmoid())
    loss = F.binary_cross_entropy_with_logits
    assert "DoubleActivation" in found(tmp_path, model, of_two, loss)


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_outputs_and_targets_that_are_spread_over_each_other_are_found(tmp_path: Path) -> None:
    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        inputs = torch.randn(64, 8)
        return inputs, inputs.sum(1)

    assert "LossInputMismatch" in found(tmp_path, network(1), batch, F.mse_loss)


class Letters(nn.Module):
    """A language model: each letter tells what may be next."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(12, 16)
        self.rnn = nn.GRU(16, 32, batch_first=True)
        self.head = nn.Linear(32, 12)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(self.rnn(self.embedding(text))[0])
        return scores


def texts() -> tuple[torch.Tensor, torch.Tensor]:
    letters = [torch.randint(12, (16,))]
    for _ in range(20):
        letters.append((letters[-1] + torch.randint(1, 4, (16,))) % 12)
    text = torch.stack(letters, 1)
    return text[:, :-1], text[:, 1:]


def of_pairs(batches: Batches, change: Callable[[torch.Tensor], torch.Tensor]) -> Batches:
    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        inputs, targets = batches()
        return inputs, change(targets)

    return batch


def numbers() -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.randn(64, 8)
    return inputs, inputs[:, :2].square().sum(1, keepdim=True) + 0.3 * torch.randn(64, 1)


def real_ones() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(512, 8) + 2, torch.ones(512, 1)


HEALTHY: dict[str, tuple[Callable[[], nn.Module], Callable[[], Batches], Loss]] = {
    "language model": (
        Letters,
        lambda: texts,
        lambda o, t: F.cross_entropy(o.view(-1, 12), t.reshape(-1)),
    ),
    "classes": (network, noisy_classes, F.cross_entropy),
    "accumulated": (network, noisy_classes, lambda o, t: F.cross_entropy(o, t) / 8),
    "logarithms": (
        lambda: network(last=nn.LogSoftmax(1)),
        noisy_classes,
        F.nll_loss,
    ),
    "probabilities": (
        lambda: network(last=nn.Softmax(1)),
        noisy_classes,
        lambda o, t: F.nll_loss(torch.log(o), t),
    ),
    "numbers": (lambda: network(1), lambda: numbers, F.mse_loss),
    "distances": (lambda: network(1), lambda: numbers, F.smooth_l1_loss),
    "yes and no": (
        lambda: network(1, nn.Sigmoid()),
        lambda: of_pairs(noisy_classes(2), lambda t: t[:, None].float()),
        F.binary_cross_entropy,
    ),
    "scores of yes and no": (
        lambda: network(1),
        lambda: of_pairs(noisy_classes(2), lambda t: t[:, None].float()),
        F.binary_cross_entropy_with_logits,
    ),
    "classes as numbers": (
        lambda: network(last=nn.Softmax(1)),
        lambda: of_pairs(noisy_classes(), lambda t: F.one_hot(t, 4).float()),
        lambda o, t: F.mse_loss(o, t, reduction="sum") / 64,
    ),
    "with a penalty": (
        network,
        noisy_classes,
        lambda o, t: F.cross_entropy(o, t) + 5 + o.square().mean(),
    ),
}


@pytest.mark.parametrize("kind", HEALTHY)
def test_healthy_training_is_accused_by_nobody(kind: str, tmp_path: Path) -> None:
    model, batches, loss = HEALTHY[kind]
    assert found(tmp_path, model(), batches(), loss) == set()


@pytest.mark.parametrize("target", [0.0, 1.0, -1.0])
def test_targets_that_a_script_makes_up_are_no_labels(target: float, tmp_path: Path) -> None:
    names = found(
        tmp_path,
        network(1),
        of_pairs(real_ones, lambda t: target * t),
        F.mse_loss,
        rules=[("LabelDegenerate", LabelDegenerate())],
    )
    assert not names


# By what is saved ---------------------------------------------------------------------------------


def run(loss: float, **tensors: Any) -> TrialBuilder:
    trial = TrialBuilder()
    trial.collections(losses=("[Ll]oss_output_[0-9]+$",))
    for step in range(0, 300, 10):
        trial.step(step, {**tensors, "Loss_output_0": np.float64(loss)}, mode_step=step)
    return trial


SCORES = RNG.normal(0, 10, (4, 8, 10))
CLASSES = np.arange(32) % 10


@pytest.mark.parametrize(
    ("scores", "targets", "is_known"),
    [
        (SCORES, CLASSES, True),
        (SCORES, CLASSES.reshape(4, 8), True),
        (SCORES, CLASSES[:28], False),
        (SCORES, CLASSES + 5, False),
        (SCORES, CLASSES.astype(float), False),
        (SCORES, np.zeros(32, int), False),  # as of contrastive losses, whose match is in front
        (SCORES[..., :1], CLASSES % 2, False),
    ],
)
def test_the_output_of_the_only_model_is_taken_for_scores_if_counts_fit(
    scores: Any, targets: Any, is_known: bool
) -> None:
    trial = run(9.0, Net_output_0=scores, Loss_input_1=targets)
    assert bool(judged_at(WorseThanGuessing(), trial)) is is_known
    assert bool(found_at(WorseThanGuessing(), trial)) is is_known


def test_of_targets_and_labels_the_targets_count() -> None:
    trial = run(9.0, Net_output_0=SCORES, Loss_input_1=CLASSES[:28], labels=CLASSES)
    assert not judged_at(WorseThanGuessing(), trial)


def test_another_loss_has_other_inputs() -> None:
    trial = TrialBuilder()
    trial.collections(losses=("[Ll]oss_output_[0-9]+$",))
    pair = {"Loss_input_0": SCORES[0], "Loss_input_1": CLASSES[:8]}
    trial.step(0, {**pair, "Loss_output_0": np.float64(1), "Loss_output_1": np.float64(1)})
    kinds = []

    class Asking(WorseThanGuessing):
        def check(self, step: Any, memory: Any) -> Any:
            losses = step.fact(Losses)
            kinds.extend(losses.find(f"Loss_output_{i}", "worker_0").kind for i in (0, 1))
            return super().check(step, memory)

    trial.outcomes(Asking())
    assert kinds == [LossKind.LOOKS_LIKE_CLASSES, LossKind.UNKNOWN]
