"""A recurrent network tells by 40 letters whether a text is Python, C, JavaScript or English."""

from __future__ import annotations

import sysconfig
from functools import cache
from pathlib import Path

import matplotlib as mpl
import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, code_text, docs_text, letters
from benchmarks.detection.injecting import few, imbalanced
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, error_rate, fit

LETTERS, LENGTH, OF_EACH, HELD_OUT, KINDS, WIDTH = 64, 40, 1200, 150, 4, 32


@cache
def snippets() -> Split:
    """Return pieces of texts, int64 [B, LENGTH], and which kind of text each is, int64 [B]."""
    headers = sorted(Path(sysconfig.get_paths()["include"]).glob("[a-f]*.h"))
    scripts = sorted((Path(mpl.__file__).parent / "backends" / "web_backend").rglob("*.js"))
    texts = [
        "".join(code_text().values()),
        "".join(path.read_text("utf-8") for path in headers),
        "".join(path.read_text("utf-8") for path in scripts),
        "".join(docs_text().values()),
    ]
    texts = [" ".join(text.split())[:100_000] for text in texts]
    numbers = letters("".join(texts), LETTERS).split([len(text) for text in texts])  # type: ignore[no-untyped-call]
    random = torch.Generator().manual_seed(0)
    train, valid = [], []
    for text in numbers:
        # Pieces do not overlap, so that none is in both.
        pieces = text[: len(text) // LENGTH * LENGTH].view(-1, LENGTH)
        pieces = pieces[torch.randperm(len(pieces), generator=random)]
        valid.append(pieces[:HELD_OUT])
        train.append(pieces[HELD_OUT : HELD_OUT + OF_EACH])
    return Split(torch.cat(train), _kinds(train), torch.cat(valid), _kinds(valid))


def _kinds(pieces: list[Tensor]) -> Tensor:
    return torch.cat([torch.full((len(own),), kind) for kind, own in enumerate(pieces)])


class Net(nn.Module):
    """Embeddings, a recurrent layer, the mean of its states, and a linear layer."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.embed = nn.Embedding(LETTERS, 16)
        self.states = nn.RNN(
            16, WIDTH, nonlinearity=run.pick("tanh", exploding_rnn="relu"), batch_first=True
        )
        again, bias = self.states.all_weights[0][1:3]
        nn.init.orthogonal_(again)
        self.drop = nn.Dropout(run.pick(0.2, overfit=0.0))
        self.head = nn.Linear(WIDTH, KINDS)
        if run.injects("exploding_rnn"):
            again.data = 2 * torch.eye(WIDTH)
        if run.injects("saturated_activation"):
            nn.init.constant_(bias, 12.0)

    def forward(self, text: Tensor) -> Tensor:
        """Return logarithms of probabilities [B, 4] of texts, int64 [B, LENGTH]."""
        states, _ = self.states(self.embed(text))
        if self.run.injects("frozen_layer"):
            states = states.data
        scores: Tensor = self.head(self.drop(states.mean(1)))
        # The loss takes logarithms of probabilities; with the fault it has its own softmax.
        return (
            scores.softmax(-1) if self.run.injects("double_activation") else scores.log_softmax(-1)
        )


def _data(run: Run) -> Split:
    data = snippets()
    if run.injects("class_imbalance"):
        data = imbalanced(data, 70)
    if run.injects("labels_shuffled"):
        # The list of texts was shuffled in place, and their labels stayed where they were.
        order = torch.randperm(len(data.inputs), generator=torch.Generator().manual_seed(8))
        data = data._replace(inputs=data.inputs[order])
    if run.injects("overfit"):
        order = torch.randperm(len(data.targets), generator=torch.Generator().manual_seed(1))
        data = few(data._replace(inputs=data.inputs[order], targets=data.targets[order]), 32)
    return data


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run)
    trained = list(model.parameters())
    if run.injects("optimiser_missing_parameters"):
        trained = list(model.head.parameters())
    loop = Loop(
        model=model,
        criterion=nn.CrossEntropyLoss() if run.injects("double_activation") else nn.NLLLoss(),
        optimizer=torch.optim.Adam(trained, lr=6e-3, weight_decay=run.pick(1e-5, overfit=0.0)),
        steps=400,
        eval_every=50,
        clip=run.pick(1.0, exploding_rnn=None),
        predict=classes,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 48, run.seed), valid, error_rate)


PROGRAM = Program(
    model="RNN, tanh, dropout, Adam, clipped gradients",
    data="pieces of Python, C headers, JavaScript and Python's help",
    measure="error rate",
    train=train,
    faults={
        "exploding_rnn": "ReLU in place of tanh, recurrent weights twice the identity, no clipping",
        "saturated_activation": "input biases of the recurrent layer begin at 12: tanh is flat",
        "double_activation": "a softmax in the model, and a cross entropy that has one, too",
        "frozen_layer": "the states are taken by `.data`: embeddings and recurrence do not learn",
        "labels_shuffled": "the list of texts was shuffled, their labels were not",
        "class_imbalance": "one in 70 training rows of every class but one",
        "optimiser_missing_parameters": "the optimiser is given the last layer only",
        "overfit": "32 pieces for training, no dropout, no weight decay",
        "stalled": "hangs after 60 % of the steps",
    },
)
