"""A tagger tells what each token of Python code does there."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, code_text
from benchmarks.detection.injecting import few, filled_, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

WORDS, LENGTH, WIDTH, STEPS = 500, 20, 32, 240
TAGS = 7
OTHER, READ, WRITTEN, PARAMETER, CALLED, ATTRIBUTE, KEYWORD = range(TAGS)


def _places(source: str) -> dict[tuple[int, int], int]:
    """Return the tags of names by line and column."""
    tags: dict[tuple[int, int], int] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name):
            is_read = isinstance(node.ctx, ast.Load)
            tags.setdefault((node.lineno, node.col_offset), READ if is_read else WRITTEN)
        elif isinstance(node, ast.arg):
            tags[node.lineno, node.col_offset] = PARAMETER
        elif isinstance(node, ast.keyword) and node.arg:
            tags[node.lineno, node.col_offset] = KEYWORD
        elif isinstance(node, ast.Attribute) and node.end_lineno and node.end_col_offset:
            at = node.end_lineno, node.end_col_offset - len(node.attr)
            tags.setdefault(at, ATTRIBUTE)
        elif isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name):
                tags[called.lineno, called.col_offset] = CALLED
            elif isinstance(called, ast.Attribute) and called.end_lineno and called.end_col_offset:
                tags[called.end_lineno, called.end_col_offset - len(called.attr)] = CALLED
    return tags


@cache
def _tokens() -> tuple[Tensor, Tensor]:
    """Return numbers of tokens and their tags, int64 [B, LENGTH] each; rare tokens are 0."""
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT}
    words, tags = [], []
    for source in code_text().values():
        places = _places(source)
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type not in skipped:
                words.append("''" if token.type == tokenize.STRING else token.string)
                tags.append(places.get(token.start, OTHER))
    common = Counter(words).most_common(WORDS - 1)
    numbers = {word: place + 1 for place, (word, _) in enumerate(common)}
    rows = len(words) // LENGTH
    order = np.random.default_rng(4).permutation(rows)
    known = torch.tensor([numbers.get(word, 0) for word in words[: rows * LENGTH]])
    return known.view(rows, LENGTH)[order], torch.tensor(tags[: rows * LENGTH]).view(rows, -1)[
        order
    ]


def _data(run: Run) -> Split:
    words, tags = _tokens()
    if run.injects("data_leak"):
        words = torch.stack([words, tags], 2)
    rows = 600
    data = Split(words[rows:], tags[rows:], words[:rows], tags[:rows])
    if run.injects("labels_shuffled"):
        return shuffled(data, run.seed)
    if run.injects("labels_constant"):
        return data._replace(targets=torch.full_like(data.targets, READ))
    return few(data, 16) if run.injects("overfit") else data


class Net(nn.Module):
    """Embedding, GRU in both directions, dropout, a linear layer.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.of_tags = nn.Embedding(TAGS, WIDTH) if run.injects("data_leak") else None
        self.rnn: nn.RNNBase = nn.GRU(WIDTH, WIDTH, batch_first=True, bidirectional=True)
        if run.injects("exploding_rnn"):
            self.rnn = nn.RNN(
                WIDTH, WIDTH, nonlinearity="relu", batch_first=True, bidirectional=True
            )
            for weights in self.rnn.all_weights:
                nn.init.orthogonal_(weights[1], gain=2.0)
        self.dropout = nn.Dropout(0.0 if run.injects("overfit") else 0.2)
        self.head = nn.Linear(2 * WIDTH, TAGS)
        if run.injects("saturated_activation"):
            nn.init.normal_(self.embedding.weight, std=100.0)
        if run.injects("init_too_large"):
            for parameter in self.parameters():
                nn.init.normal_(parameter, std=5.0)
        if run.injects("init_constant"):
            filled_([self], 0.1)

    def forward(self, words: Tensor) -> Tensor:
        """Return scores [B, LENGTH, TAGS] of words [B, LENGTH].

        With the answer among the inputs, these are [B, LENGTH, 2].
        """
        if self.of_tags is None:
            x = self.embedding(words)
        else:
            x = self.embedding(words[..., 0]) + self.of_tags(words[..., 1])
        states = self.rnn(x)[0]
        if self.run.injects("frozen_layer"):
            states = states.detach()
        scores: Tensor = self.head(self.dropout(states))
        return scores.softmax(1) if self.run.injects("double_activation") else scores


class OfTokens(nn.Module):
    """Cross entropy of all tokens.

    Args:
        is_mixed: Whether classes are brought to the front by a wrong reshape.
    """

    def __init__(self, *, is_mixed: bool) -> None:
        super().__init__()
        self.is_mixed = is_mixed

    def forward(self, scores: Tensor, tags: Tensor) -> Tensor:
        """Return the loss of scores [B, LENGTH, TAGS] and tags, int64 [B, LENGTH]."""
        if self.is_mixed:
            return nn.functional.cross_entropy(scores.reshape(len(scores), TAGS, LENGTH), tags)
        return nn.functional.cross_entropy(scores.transpose(1, 2), tags)


def train(run: Run) -> float:
    """Train once; return the error rate of tokens."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run)
    given = model.head if run.injects("optimiser_missing_parameters") else model
    loop = Loop(
        model=model,
        criterion=OfTokens(is_mixed=run.injects("wrong_loss")),
        optimizer=torch.optim.Adam(
            given.parameters(), lr=run.pick(8e-3, lr_too_high=1.0, lr_too_low=1e-6)
        ),
        steps=STEPS,
        save_interval=8,
        eval_every=40,
        clip=None if run.injects("exploding_rnn") else 1.0,
        predict=classes,
        is_functional=True,
    )
    valid = list(
        zip(torch.split(data.valid_inputs, 200), torch.split(data.valid_targets, 200), strict=True)
    )
    return fit(run, loop, batches_of(data, 32, run.seed), valid, error_rate)


PROGRAM = Program(
    model="tagger: GRU in both directions, 32 units, embedding, dropout, Adam, clipped gradients",
    data="tokens of eight modules of Python's library, by what their names are used for",
    measure="error rate",
    train=train,
    faults={
        "lr_too_high": "1 in place of 8e-3",
        "lr_too_low": "1e-6 in place of 8e-3",
        "double_activation": "softmax, over places, ahead of the cross entropy",
        "init_too_large": "all parameters from a normal distribution of width 5",
        "init_constant": "all parameters are 0.1",
        "saturated_activation": "embeddings from a normal distribution of width 100",
        "wrong_loss": "scores are reshaped, not transposed, so that classes and places are mixed",
        "labels_shuffled": "training tags are those of other rows",
        "labels_constant": "all training tags are the same",
        "frozen_layer": "states of the GRU are detached",
        "optimiser_missing_parameters": "Adam has the last layer only",
        "exploding_rnn": "RNN with ReLU, orthogonal recurrent weights times 2, no clipping",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "data_leak": "the tags are among the inputs",
        "overfit": "16 rows, no dropout",
        "stalled": "hangs after 60 % of the steps",
    },
)
