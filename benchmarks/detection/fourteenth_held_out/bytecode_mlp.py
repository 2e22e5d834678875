"""A multilayer perceptron tells how long the bytecode of a function is from its syntax tree."""

from __future__ import annotations

import ast
import types
from collections import Counter
from functools import cache

import torch
from torch import Tensor, nn

from benchmarks.detection.data import Split, code_text
from benchmarks.detection.injecting import constant, few, filled_, leaking, shifted_, shuffled
from benchmarks.detection.program import Program, Run
from benchmarks.detection.training import Loop, batches_of, fit, unexplained

KINDS = 30


@cache
def _functions() -> tuple[Tensor, Tensor]:
    """Return numbers of nodes of each kind [functions, KINDS] and bytes of code [functions]."""
    counts, lengths = [], []
    for source in code_text().values():
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.FunctionDef):
                continue
            try:
                code = compile(ast.Module([node], []), "<function>", "exec")
            except SyntaxError:  # a nonlocal name without the function around it
                continue
            own = [part for part in code.co_consts if isinstance(part, types.CodeType)]
            named = [part for part in own if part.co_name == node.name]
            counts.append(Counter(type(part).__name__ for part in ast.walk(node)))
            lengths.append(float(len(named[0].co_code)))
    frequent = [kind for kind, _ in sum(counts, Counter()).most_common(KINDS)]
    table = [[float(count[kind]) for kind in frequent] for count in counts]
    return torch.tensor(table), torch.tensor(lengths)


def _data(run: Run) -> Split:
    inputs, lengths = _functions()
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
    inputs, lengths = inputs[order], lengths[order]
    rows = len(inputs) // 4
    targets = lengths.log()
    if not run.injects("missing_normalisation"):
        inputs = (inputs - inputs[rows:].mean(0)) / inputs[rows:].std(0)
        targets = (targets - targets[rows:].mean()) / targets[rows:].std()
    else:
        targets = lengths
    data = Split(inputs[rows:], targets[rows:], inputs[:rows], targets[:rows])
    if run.injects("labels_shuffled"):
        data = shuffled(data, run.seed)
    if run.injects("labels_constant"):
        data = constant(data)
    if run.injects("data_leak"):
        data = leaking(data)
    return few(data, 40) if run.injects("overfit") else data


def _model(run: Run, columns: int) -> nn.Sequential:
    width = run.pick(64, overfit=256)
    layers: list[nn.Module] = [
        nn.Linear(columns, width),
        nn.ReLU(),
        nn.Dropout(run.pick(0.1, overfit=0.0)),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, 1),
        nn.Flatten(0),
    ]
    if run.injects("no_activation"):
        layers = [layer for layer in layers if not isinstance(layer, nn.ReLU)]
    if run.injects("wrong_loss"):
        layers = layers[:-1]
    model = nn.Sequential(*layers)
    if run.injects("init_too_large"):
        for layer in model:
            if isinstance(layer, nn.Linear):
                nn.init.normal_(layer.weight)
    if run.injects("init_constant"):
        filled_([model], 0.0)
    if run.injects("dead_relu"):
        shifted_([layer for layer in model if isinstance(layer, nn.Linear)][:2], -10.0)
    return model


def _error(outputs: Tensor, targets: Tensor) -> float:
    return unexplained(outputs.flatten(), targets)


def train(run: Run) -> float:
    """Train once; return the share of the variance that is not explained."""
    torch.manual_seed(run.seed)
    data = _data(run)
    model = _model(run, data.inputs.shape[1])
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=run.pick(0.05, lr_too_high=5.0, lr_too_low=1e-5),
        momentum=0.9,
        weight_decay=run.pick(1e-4, overfit=0.0),
    )
    loop = Loop(
        model=model,
        criterion=nn.MSELoss() if run.injects("wrong_loss") else nn.SmoothL1Loss(),
        optimizer=optimizer,
        steps=400,
        scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 150, 0.3),
    )
    valid = [(data.valid_inputs, data.valid_targets)]
    return fit(run, loop, batches_of(data, 32, run.seed), valid, _error)


PROGRAM = Program(
    model="MLP, 2 hidden layers of 64 ReLU units, dropout, SGD with momentum, StepLR, SmoothL1Loss",
    data="functions of Python's library: counts of nodes, length of the bytecode (logarithm)",
    measure="1 - R2",
    train=train,
    faults={
        "lr_too_high": "5 in place of 0.05",
        "lr_too_low": "1e-5 in place of 0.05",
        "no_activation": "no ReLU between the layers",
        "init_too_large": "weights from a normal distribution of deviation 1",
        "init_constant": "all parameters are zero",
        "dead_relu": "biases of the hidden layers begin at -10",
        "missing_normalisation": "counts as they are, and bytes in place of a scaled logarithm",
        "wrong_loss": "nn.MSELoss of outputs [B, 1] and targets [B], which broadcasts",
        "labels_shuffled": "training targets are permuted",
        "labels_constant": "all training targets are that of the first row",
        "data_leak": "the target is one of the columns",
        "overfit": "40 rows, 256 units, no dropout, no weight decay",
        "fp16_overflow": "autocast to float16, fixed loss scale 2**24, no look for overflow",
        "stalled": "hangs after 60 % of the steps",
    },
)
