"""A small network says of final boards of tic-tac-toe whether cross has won."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split
from benchmarks.detection.injecting import constant, few, filled_, leaking, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit

LINES = (
    *((row, row + 1, row + 2) for row in (0, 3, 6)),
    *((column, column + 3, column + 6) for column in (0, 1, 2)),
    (0, 4, 8),
    (2, 4, 6),
)


def _wins(board: tuple[int, ...], player: int) -> bool:
    return any(all(board[at] == player for at in line) for line in LINES)


def _boards() -> tuple[Tensor, Tensor]:
    """Return all 958 boards where a game that cross began has ended, and whether cross won."""
    boards, won = [], []
    for board in itertools.product((-1, 0, 1), repeat=9):
        cross, nought = _wins(board, 1), _wins(board, -1)
        extra = board.count(1) - board.count(-1)
        ended = (cross and extra == 1) or (nought and extra == 0) or (0 not in board and extra == 1)
        if ended and not (cross and nought):
            boards.append(board)
            won.append(float(cross))
    return torch.tensor(boards), torch.tensor(won)


def _data(run: Run) -> Split:
    boards, won = _boards()
    order = torch.randperm(len(won), generator=torch.Generator().manual_seed(0))
    marks = nn.functional.one_hot(boards[order] + 1, 3).flatten(1).float()
    won = won[order]
    marks = (marks - marks.mean(0)) / marks.std(0)
    held_out = len(won) // 4
    data = Split(marks[held_out:], won[held_out:], marks[:held_out], won[:held_out])
    if run.injects("data_leak"):
        data = leaking(data)
    if run.injects("labels_shuffled"):
        data = shuffled(data, 2)
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("class_imbalance"):
        lost = (data.targets == 0).nonzero()[:, 0]
        keep = torch.ones_like(data.targets, dtype=torch.bool)
        keep[lost[8:]] = False
        data = data._replace(inputs=data.inputs[keep], targets=data.targets[keep])
    if run.injects("overfit"):
        data = few(data, 40)
    return data._replace(targets=data.targets[:, None], valid_targets=data.valid_targets[:, None])


def _probabilities(outputs: Tensor) -> Tensor:
    return (outputs.sigmoid() > 0.5).long()  # noqa: PLR2004


def _error(outputs: Tensor, targets: Tensor) -> float:
    return float((_probabilities(outputs) != targets).float().mean())


def train(run: Run) -> float:
    """Train once; return the error rate."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = nn.Sequential(
        nn.Linear(data.inputs.shape[1], 48),
        nn.ReLU(),
        nn.Dropout(run.pick(0.2, overfit=0.0)),
        nn.Linear(48, 16),
        nn.ReLU(),
        nn.Linear(16, 1),
    )
    if run.injects("double_activation"):
        model.append(nn.Sigmoid())
    if run.injects("init_constant"):
        filled_([model], 0.0)
    given = model.parameters()
    if run.injects("optimiser_missing_parameters"):
        given = model[-1].parameters()
    loop = Loop(
        model=model,
        criterion=nn.BCEWithLogitsLoss(),
        optimizer=torch.optim.Adam(given, lr=run.pick(4e-3, lr_too_low=4e-6)),
        steps=280,
        save_interval=6,
        eval_every=28,
        predict=_probabilities,
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 64, run.seed), valid, _error)


PROGRAM = Program(
    model="MLP 27-48-16-1, ReLU, dropout, Adam",
    data="all 958 final boards of tic-tac-toe",
    measure="error rate",
    train=train,
    faults={
        "data_leak": "the column `class` was not dropped from the inputs",
        "labels_shuffled": "labels were joined to the boards in another order",
        "labels_constant": "every training label is that of the first row",
        "class_imbalance": "a read of the file, which is sorted by class, broke off: 8 boards that "
        "cross did not win, all the others; validation has a third of them",
        "double_activation": "a sigmoid at the end of the network, and BCEWithLogitsLoss has one",
        "init_constant": "all weights and biases start at zero: no gradient gets to any weight",
        "optimiser_missing_parameters": "the optimiser was given the last layer only",
        "overfit": "40 boards for training, no dropout",
        "lr_too_low": "4e-6 in place of 4e-3",
    },
)
