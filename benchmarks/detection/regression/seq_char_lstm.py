"""An LSTM learns to write Python, letter by letter."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import code_text, letters, windows
from benchmarks.detection.program import Run
from benchmarks.detection.training import Batches, Loop, NextLetter, fit, perplexity, text_batches

LETTERS, LENGTH, BATCH, WIDTH = 64, 24, 32, 64
OF_EACH, HELD_OUT = 24_000, 2_400
"""Letters of each module, and those of them at its end that are for validation."""


class Net(nn.Module):
    """Embedding, LSTM, linear layer."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.embedding = nn.Embedding(LETTERS, 32)
        is_both = run.injects("data_leak")  # the LSTM reads the next letter, too
        self.rnn: nn.RNNBase = nn.LSTM(32, WIDTH, batch_first=True, bidirectional=is_both)
        if run.injects("exploding_rnn"):
            self.rnn = nn.RNN(32, WIDTH, nonlinearity="relu", batch_first=True)
        self.head = nn.Linear(2 * WIDTH if is_both else WIDTH, LETTERS)
        for name, parameter in self.named_parameters():
            if run.injects("exploding_rnn") and name == "rnn.weight_hh_l0":
                nn.init.xavier_normal_(parameter, gain=3.0)
            if run.injects("saturated_activation") and name.startswith("rnn.weight"):
                nn.init.normal_(parameter, std=4.0)
            if run.injects("init_too_large"):
                nn.init.uniform_(parameter, -5.0, 5.0)
            if run.injects("init_constant"):
                nn.init.zeros_(parameter)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return scores [B, LENGTH, LETTERS] of letters [B, LENGTH]."""
        states = self.rnn(self.embedding(tokens))[0]
        scores: Tensor = self.head(states.detach() if self.run.injects("frozen_layer") else states)
        return scores.softmax(-1) if self.run.injects("double_activation") else scores


class SquaredDistance(nn.Module):
    """The loss that does not fit: scores are no measurements."""

    def forward(self, scores: Tensor, tokens: Tensor) -> Tensor:
        """Return the mean square of scores [B, LENGTH, LETTERS] less 0 and 1 for the letters."""
        wanted = nn.functional.one_hot(tokens, LETTERS).float()
        return nn.functional.mse_loss(scores, wanted)


def _batches(run: Run, text: Tensor) -> Batches:
    """Yield letters and the next ones, int64 [BATCH, LENGTH] each."""
    text = text[:1500] if run.injects("overfit") else text
    others = text_batches(text, BATCH, LENGTH, run.seed + 1000)
    for inputs, targets in text_batches(text, BATCH, LENGTH, run.seed):
        if run.injects("labels_shuffled"):
            yield inputs, next(others)[1]
        elif run.injects("labels_constant"):
            yield inputs, torch.full_like(targets, LETTERS - 1)
        else:
            yield inputs, targets


def train(run: Run) -> float:
    """Train once; return the perplexity of a letter."""
    sources = [source[:OF_EACH] for source in code_text().values()]
    ends = "".join(source[-HELD_OUT:] for source in sources)
    text = letters("".join(source[:-HELD_OUT] for source in sources) + ends, LETTERS)
    model = Net(run)
    trained = run.pick(model, optimiser_missing_parameters=model.head)
    rate = run.pick(8e-3, lr_too_high=1.0, lr_too_low=2e-6)
    criterion = run.pick(NextLetter(), wrong_loss=SquaredDistance())
    optimizer = torch.optim.Adam(trained.parameters(), rate)
    loop = Loop(model, criterion, optimizer, 260, clip=1.0, save_interval=8, eval_every=40)
    known = len(text) - len(ends)
    valid = [windows(text, torch.arange(known, len(text) - LENGTH - 1, 200), LENGTH)]
    return fit(run, loop, _batches(run, text[:known]), valid, perplexity)
