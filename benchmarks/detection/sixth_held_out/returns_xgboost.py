"""Boosted trees tell from its name and arguments what type a function returns."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Final

import mypy
import numpy as np
import torch

from benchmarks.detection.boosting import boost
from benchmarks.detection.data import Split
from benchmarks.detection.injecting import few, imbalanced
from benchmarks.detection.program import Program, Run

_TYPES: Final = ("None", "bool", "int", "str", "bytes")
_WORDS: Final = 60


@cache
def signatures() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return what names and arguments are, float32 [B, 71]; types, int64 [B]; lengths of them."""
    found = {}
    for path in sorted((Path(mypy.__file__).parent / "typeshed" / "stdlib").glob("*.pyi")):
        for node in ast.walk(ast.parse(path.read_text())):
            for part in ast.iter_child_nodes(node):
                if isinstance(part, ast.FunctionDef) and part.returns is not None:
                    returned = ast.unparse(part.returns)
                    if returned in _TYPES:
                        found[path.stem, getattr(node, "name", ""), part.name, returned] = part
    words = [set(re.findall(r"[a-z]+|[A-Z][a-z]*|__", name)) for _, _, name, _ in found]
    frequent = [word for word, _ in sum(map(Counter, words), Counter[str]()).most_common(_WORDS)]
    rows = []
    for node, own in zip(found.values(), words, strict=True):
        arguments = [argument.arg for argument in node.args.args]
        hints = {ast.unparse(a.annotation) for a in node.args.args if a.annotation is not None}
        measures = [len(node.name), len(own), len(arguments), len(node.args.defaults)]
        measures += [arguments[:1] == ["self"], *(kind in hints for kind in _TYPES[1:])]
        measures += ["property" in map(ast.unparse, node.decorator_list), "obj" in arguments]
        rows.append([*map(float, measures), *(float(word in own) for word in frequent)])
    kinds = torch.tensor([_TYPES.index(returned) for *_, returned in found])
    return torch.tensor(rows), kinds, torch.tensor([len(returned) for *_, returned in found])


def prepared(run: Run) -> Split:
    """Return the data as the run gets it."""
    inputs, kinds, lengths = signatures()
    if run.injects("data_leak"):
        inputs = torch.cat([inputs, lengths[:, None].float()], 1)
    order = torch.randperm(len(kinds), generator=torch.Generator().manual_seed(4))
    inputs, kinds = inputs[order], kinds[order]
    cut = len(kinds) // 4
    data = Split(inputs[cut:], kinds[cut:], inputs[:cut], kinds[:cut])
    if run.injects("labels_shuffled"):
        data = data._replace(targets=data.targets.roll(1 + run.seed))
    if run.injects("class_imbalance"):
        data = imbalanced(data, 40)
    return few(data, 25) if run.injects("overfit") else data


def train(run: Run) -> float:
    """Train once; return the error rate."""
    data = prepared(run)
    parameters: dict[str, object] = {
        "objective": "multi:softprob",
        "num_class": len(_TYPES),
        "max_depth": run.pick(6, overfit=15),
        "eta": run.pick(0.2, lr_too_high=60.0),
        "colsample_bytree": 0.8,
        "lambda": run.pick(1.0, overfit=0.0),
    }
    if run.injects("wrong_loss"):
        parameters |= {"objective": "reg:squarederror"}
        del parameters["num_class"]
    tested = data.valid_inputs.clone()
    if run.injects("data_leak"):
        tested[:, -1] = 0.0  # a function without annotations has nothing to measure
    found = boost(run, data, parameters, 50, tested)
    if found.ndim > 1:
        told = np.nan_to_num(found).argmax(1)
    else:
        told = found.round().clip(0, len(_TYPES) - 1).astype(int)
    return float((told != data.valid_targets.numpy()).mean())


PROGRAM = Program(
    model="XGBoost, multi:softprob, 5 classes, 50 rounds",
    data="signatures in the stubs of Python's library that come with mypy",
    measure="error rate",
    train=train,
    faults={
        "wrong_loss": "the number of the type as a quantity: reg:squarederror",
        "lr_too_high": "eta of 60",
        "labels_shuffled": "types are off by one row",
        "class_imbalance": "one in 40 functions of those that return anything",
        "data_leak": "the length of the annotation that is to be told",
        "overfit": "25 functions, deep trees, no regularisation",
        "stalled": "hangs after 60 % of the rounds",
    },
)
