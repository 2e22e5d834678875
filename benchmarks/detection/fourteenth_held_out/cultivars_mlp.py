"""A perceptron with tanh tells from which of three cultivars a wine is."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, table
from benchmarks.detection.injecting import constant, imbalanced, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, classes, fit


class Net(nn.Module):
    """Two hidden layers of tanh units.

    Args:
        run: What is injected.
        columns: Columns of the input.
    """

    def __init__(self, run: Run, columns: int) -> None:
        super().__init__()
        self.run = run
        self.hidden1 = nn.Linear(columns, 24)
        self.hidden2 = nn.Linear(24, 12)
        self.output = nn.Linear(12, 3)
        self.act1, self.act2 = nn.Tanh(), nn.Tanh()

    def forward(self, x: Tensor) -> Tensor:
        """Return scores [B, 3] of wines [B, columns]."""
        x = self.act1(self.hidden1(x))
        x = self.act2(self.hidden2(x))
        scores = self.output(x)
        return nn.functional.softmax(scores, 1) if self.run.injects("double_activation") else scores


class CrossEntropy(nn.Module):
    """Cross entropy as a function; the distance from the label if the loss is to be wrong.

    Args:
        run: What is injected.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of outputs [B, 3] and labels, int64 [B]."""
        if self.run.injects("wrong_loss"):
            return (outputs - labels.float()[:, None]).square().mean()
        return nn.functional.cross_entropy(outputs, labels)


def _data(run: Run) -> Split:
    data = table("wine", scaled=not run.injects("missing_normalisation"))
    if run.injects("labels_shuffled"):
        return shuffled(data, run.seed)
    if run.injects("class_imbalance"):
        return imbalanced(data, 60)
    return constant(data) if run.injects("labels_constant") else data


@torch.no_grad()
def _initialise(run: Run, model: Net) -> None:
    for layer in (model.hidden1, model.hidden2, model.output):
        if run.injects("init_constant"):
            nn.init.constant_(layer.weight, 0.5)
        if run.injects("init_too_large"):
            nn.init.normal_(layer.weight, 0.0, 10.0)
    if run.injects("saturated_activation"):
        nn.init.constant_(model.hidden2.bias, 8.0)


def loss_of(outputs: Tensor, labels: Tensor) -> float:
    """Return the cross entropy of scores [B, 3], at most 100."""
    found = float(nn.functional.cross_entropy(outputs, labels))
    return min(found, 100.0)


def train(run: Run) -> float:
    """Train once; return the cross entropy."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = Net(run, data.inputs.shape[1])
    _initialise(run, model)
    given = model.output if run.injects("optimiser_missing_parameters") else model
    optimizer = torch.optim.SGD(
        given.parameters(),
        lr=run.pick(0.05, lr_too_high=20.0, lr_too_low=5e-6),
        momentum=0.9,
        weight_decay=1e-2,
    )
    loop = Loop(
        model=model,
        criterion=CrossEntropy(run),
        optimizer=optimizer,
        steps=200,
        save_interval=4,
        eval_every=40,
        scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 100, 0.3),
        predict=classes,
        is_functional=True,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 16, run.seed), valid, loss_of)


PROGRAM = Program(
    model="MLP, 24 and 12 tanh units, SGD with momentum",
    data="scikit-learn wine",
    measure="cross entropy",
    train=train,
    faults={
        "lr_too_high": "20 in place of 0.05",
        "lr_too_low": "5e-6 in place of 0.05",
        "double_activation": "softmax ahead of the cross entropy",
        "init_too_large": "all weights from a normal distribution of width 10",
        "init_constant": "all weights are 0.5",
        "saturated_activation": "biases of the second hidden layer are 8",
        "missing_normalisation": "columns as they were measured, from 0.1 to 1,700",
        "wrong_loss": "squared distance of every score from the number of the class",
        "labels_shuffled": "training labels are permuted",
        "labels_constant": "all training labels are the same",
        "class_imbalance": "one in 60 rows of every class but one",
        "optimiser_missing_parameters": "SGD has the last layer only",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "stalled": "hangs after 60 % of the steps",
    },
)
