"""A tagger finds what each token of Python code does there."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from functools import cache, partial

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, code_text
from benchmarks.detection.injecting import drawn_, filled_, with_fault
from benchmarks.detection.program import Run
from benchmarks.detection.training import Loop, batches_of, classes, fit

WORDS, LENGTH, WIDTH = 500, 20, 32
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
    shape = (rows, LENGTH)
    return known.view(shape)[order], torch.tensor(tags[: rows * LENGTH]).view(shape)[order]


def _data(run: Run) -> Split:
    words, tags = _tokens()
    if run.injects("data_leak"):
        words = torch.stack([words, tags], 2)
    data = Split.of(words, tags, 600)
    if run.injects("labels_constant"):
        return data._replace(targets=torch.full_like(data.targets, READ))
    return with_fault(run, data, rows=16)


class Net(nn.Module):
    """Embedding, GRU in both directions, dropout, a linear layer."""

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
        self.dropout = nn.Dropout(run.pick(0.2, overfit=0.0))
        self.head = nn.Linear(2 * WIDTH, TAGS)
        if run.injects("saturated_activation"):
            nn.init.normal_(self.embedding.weight, std=100.0)
        drawn_(run, "init_too_large", [self], 5.0)
        filled_(run, "init_constant", [self], 0.1)

    def forward(self, words: Tensor) -> Tensor:
        """Return scores [B, LENGTH, TAGS] of words [B, LENGTH]; with a leak [B, LENGTH, 2]."""
        if self.of_tags is None:
            x = self.embedding(words)
        else:
            x = self.embedding(words[..., 0]) + self.of_tags(words[..., 1])
        states = self.rnn(x)[0]
        if self.run.injects("frozen_layer"):
            states = states.detach()
        scores: Tensor = self.head(self.dropout(states))
        return scores.softmax(1) if self.run.injects("double_activation") else scores


def _loss(run: Run, scores: Tensor, tags: Tensor) -> Tensor:
    """Return the cross entropy of scores [B, LENGTH, TAGS] and tags, int64 [B, LENGTH]."""
    if run.injects("wrong_loss"):  # reshaped, not transposed
        return nn.functional.cross_entropy(scores.reshape(len(scores), TAGS, LENGTH), tags)
    return nn.functional.cross_entropy(scores.transpose(1, 2), tags)


def train(run: Run) -> float:
    data, model = _data(run), Net(run)
    trained = run.pick(model, optimiser_missing_parameters=model.head)
    rate = run.pick(8e-3, lr_too_high=1.0, lr_too_low=1e-6)
    criterion = partial(_loss, run)
    optimizer = torch.optim.Adam(trained.parameters(), rate)
    loop = Loop(
        model, criterion, optimizer, 240, clip=1.0, save_interval=8, eval_every=40, predict=classes
    )
    return fit(run, loop, batches_of(data, 32, run.seed), data.validation(200))
