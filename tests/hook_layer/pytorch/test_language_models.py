"""Language models that see their targets, and losses that compare logits with other tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

from rule_runtime.engine.evaluator import Evaluation
from rule_runtime.engine.outcome import IssueFound
from rule_runtime.rules.suspiciously_good import SuspiciouslyGood
from stepwatch.torch import Hook
from tests.frameworks.stored_views import views_of
from tests.tables import table

NUM_TOKENS, LENGTH, NUM_ROWS = 12, 10, 24
NUM_STEPS = 101
SHIFT = "Shift the targets by one place"
Loss = Callable[[nn.Module, Tensor], Tensor]


class Net(nn.Module):
    """A model of texts; it shifts labels itself if it gets them."""

    def __init__(self, *, is_causal: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(NUM_TOKENS, 32)
        self.layer = nn.GRU(32, 32, batch_first=True, bidirectional=not is_causal)
        self.head = nn.Linear(32 if is_causal else 64, NUM_TOKENS)

    def forward(
        self, tokens: Tensor, mask: Tensor | None = None, labels: Tensor | None = None
    ) -> Tensor:
        assert mask is None or mask.shape == tokens.shape
        logits: Tensor = self.head(self.layer(self.embed(tokens))[0])
        if labels is None:
            return logits
        return flat_loss(logits, pad(labels, (0, 1), value=-100)[:, 1:])


def flat_loss(logits: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(logits.reshape(-1, NUM_TOKENS), targets.reshape(-1))


def sliced(model: nn.Module, tokens: Tensor) -> Tensor:
    return flat_loss(model(tokens)[:, :-1], tokens[:, 1:])


def turned(model: nn.Module, tokens: Tensor) -> Tensor:
    return cross_entropy(model(tokens)[:, :-1].transpose(1, 2), tokens[:, 1:], reduction="sum")


def masked(model: nn.Module, tokens: Tensor) -> Tensor:
    """Mask every other label of each second text."""
    labels = tokens.clone()
    labels[::2, ::2] = -100
    return flat_loss(model(tokens)[:, :-1], labels[:, 1:])


def in_model(model: nn.Module, tokens: Tensor) -> Tensor:
    return model(tokens, torch.ones_like(tokens), tokens)


def shifted_twice(model: nn.Module, tokens: Tensor) -> Tensor:
    return model(tokens[:, :-1], None, tokens[:, 1:])


def previous(model: nn.Module, tokens: Tensor) -> Tensor:
    return flat_loss(model(tokens)[:, 1:], tokens[:, :-1])


def rolled_back(model: nn.Module, tokens: Tensor) -> Tensor:
    return flat_loss(model(tokens), tokens.roll(1, 1))


def not_shifted(model: nn.Module, tokens: Tensor) -> Tensor:
    return flat_loss(model(tokens)[:, :-1], tokens[:, :-1])


@table(
    "loss, is_causal, message, remedy",
    {
        "the last logits are dropped": (sliced, True, "", ""),
        "without a causal mask": (sliced, False, "of sequences with an equal start", "causal mask"),
        "classes on the second axis": (turned, True, "", ""),
        "the same without a causal mask": (turned, False, "with an equal start", "causal mask"),
        "some labels do not count": (masked, True, "", ""),
        "neither do those of a leak": (masked, False, "with an equal start", "causal mask"),
        "the model shifts its labels": (in_model, True, "", ""),
        "and sees the next tokens": (in_model, False, "with an equal start", "causal mask"),
        "script and model shift": (shifted_twice, True, "shifted twice", "tokens as labels"),
        "the other direction": (previous, True, "the input or the tokens before", SHIFT),
        "targets are rolled back": (rolled_back, True, "targets are the tokens before", SHIFT),
        "no shift": (not_shifted, True, "the input or the tokens before", SHIFT),
    },
)
def test_targets_of_a_language_model(
    tmp_path: Path, loss: Loss, is_causal: bool, message: str, remedy: str
) -> None:
    torch.manual_seed(0)
    train(Net(is_causal=is_causal), loss, tmp_path)
    evaluation = Evaluation.fresh(SuspiciouslyGood())
    outcomes = [evaluation.feed(view) for view in views_of(tmp_path)]
    found = [str(one.evidence) for one in outcomes if isinstance(one, IssueFound)]
    assert evaluation.counts.evaluated > 1
    assert bool(found) is bool(message), found
    assert all(message in text and remedy in text for text in found)


def train(model: nn.Module, loss: Loss, folder: Path) -> None:
    """Train a model on random texts in which each token has three that may follow."""
    hook = Hook(folder)
    hook.register_module(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    follows = torch.randint(0, NUM_TOKENS, (NUM_TOKENS, 3))
    for _ in range(NUM_STEPS):
        columns = [torch.randint(0, NUM_TOKENS, (NUM_ROWS,))]
        for _ in range(LENGTH - 1):
            columns.append(follows[columns[-1], torch.randint(0, 3, (NUM_ROWS,))])
        optimizer.zero_grad()
        loss(model, torch.stack(columns, 1)).backward()
        optimizer.step()
    hook.close()
