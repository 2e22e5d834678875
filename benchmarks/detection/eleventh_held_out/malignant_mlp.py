"""A multilayer perceptron that ends with a sigmoid finds malignant tumours."""

from __future__ import annotations

import torch
from sklearn import datasets
from torch import Tensor, nn

from benchmarks.detection.data import Split, table
from benchmarks.detection.injecting import few, imbalanced, scaled_, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

_HALF = 0.5


class Net(nn.Module):
    """Two hidden layers and a sigmoid.

    Args:
        run: What is injected.
        columns: Number of inputs.
    """

    def __init__(self, run: Run, columns: int) -> None:
        super().__init__()
        self.run = run
        width = run.pick(24, overfit=64)
        dropout = run.pick(0.2, overfit=0.0)
        self.layers = nn.Sequential(
            nn.Linear(columns, width),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(width, 1),
        )
        self.probability = nn.Sigmoid()
        if run.injects("init_too_large"):
            scaled_(self.layers, 30.0)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the probability of malignant [B] of rows [B, columns]."""
        found = self.probability(self.layers(rows))[:, 0]
        return torch.sigmoid(found) if self.run.injects("double_activation") else found


def _data(run: Run) -> Split:
    data = table("breast_cancer", scaled=not run.injects("missing_normalisation"))
    # scikit-learn calls malignant 0.
    data = data._replace(
        targets=(data.targets == 0).float(), valid_targets=(data.valid_targets == 0).float()
    )
    if run.injects("labels_constant"):
        # Names are compared with numbers: no row is "malignant".
        names = datasets.load_breast_cancer().target_names
        malignant = [float(str(label.item()) == str(names[0])) for label in data.targets]
        data = data._replace(targets=torch.tensor(malignant))
    if run.injects("labels_shuffled"):
        data = shuffled(data, 3)
    if run.injects("class_imbalance"):
        data = imbalanced(data, 50)
    if run.injects("overfit"):
        data = few(data, 14)
    return data


def _leaking(data: Split) -> Split:
    # A table of treatments was joined: whether there was chemotherapy, and whether there was none.
    def treated(inputs: Tensor, targets: Tensor) -> Tensor:
        return torch.cat([inputs, torch.stack([targets, 1 - targets], 1)], 1)

    return data._replace(
        inputs=treated(data.inputs, data.targets),
        valid_inputs=treated(data.valid_inputs, data.valid_targets),
    )


def _log_loss(found: Tensor, targets: Tensor) -> float:
    if not found.isfinite().all():
        return 100.0
    return float(nn.functional.binary_cross_entropy(found, targets))


def _decided(found: Tensor) -> Tensor:
    return (found > _HALF).float()


def train(run: Run) -> float:
    """Train once; return the log loss."""
    torch.manual_seed(run.seed)
    data = _data(run)
    if run.injects("data_leak"):
        data = _leaking(data)
    model = Net(run, data.inputs.shape[1])
    loop = Loop(
        model=model,
        criterion=nn.BCELoss(),
        optimizer=torch.optim.RMSprop(
            model.parameters(),
            lr=run.pick(1e-3, lr_too_low=1e-6, lr_too_high=0.5),
            weight_decay=run.pick(3e-3, overfit=0.0),
        ),
        steps=160,
        save_interval=4,
        eval_every=20,
        predict=_decided,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 32, run.seed), valid, _log_loss)


PROGRAM = Program(
    model="MLP, 2 hidden layers, dropout, sigmoid, BCELoss, RMSprop",
    data="breast cancer, scaled",
    measure="log loss",
    train=train,
    faults={
        "lr_too_low": "1e-6 with RMSprop, a thousandth of what is needed",
        "lr_too_high": "0.5 with RMSprop, 500 times what is needed",
        "missing_normalisation": "columns as they were measured: areas up to 4,254 beside "
        "smoothness of 0.1",
        "double_activation": "torch.sigmoid of what the model's own sigmoid returns: no "
        "probability is below 0.5",
        "labels_constant": "numbers of classes are compared with the class's name: no row is "
        "malignant",
        "labels_shuffled": "training labels are those of other rows",
        "class_imbalance": "one in 50 malignant rows in training",
        "init_too_large": "weights are 30 times as large",
        "data_leak": "one-hot columns of the treatment, which follows from the diagnosis, among "
        "the inputs",
        "overfit": "14 rows, 64 units, no dropout, no weight decay",
        "stalled": "hangs after 60 % of the steps",
    },
)
