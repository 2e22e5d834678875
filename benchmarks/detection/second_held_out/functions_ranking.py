"""Boosted trees rank the functions of a piece of source by their lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import xgboost

from benchmarks.detection.boosting import STALLS_AT
from benchmarks.detection.data import functions
from benchmarks.detection.hooking import hook_configuration
from benchmarks.detection.program import Hanging, Program, Run
from hook_layer.xgboost import Hook

KINDS = 12
GROUP = 9
BOUNDS = torch.tensor([3, 8, 16, 32])
ROUNDS = 60


def discounted(scores: np.ndarray, levels: np.ndarray) -> float:
    """Return the mean NDCG over groups of GROUP rows each, of scores [B] and levels [B]."""
    discounts = 1 / np.log2(np.arange(GROUP) + 2)
    found = []
    for score, level in zip(scores.reshape(-1, GROUP), levels.reshape(-1, GROUP), strict=True):
        gains = 2.0**level - 1
        best = np.sort(gains)[::-1] @ discounts
        # Of equal scores the lower gain comes first.
        ranked = gains[np.lexsort((gains, -score))]
        found.append(ranked @ discounts / best if best else 1.0)
    return float(np.mean(found))


def _groups(run: Run) -> tuple[xgboost.DMatrix, xgboost.DMatrix, np.ndarray]:
    """Return training data, validation data and the levels of the latter."""
    counts, lines, _ = functions(KINDS)
    # A share of what there is to count: a function's size alone would tell too much.
    inputs = (counts / counts.sum(1, keepdim=True)).numpy()
    levels = torch.bucketize(lines, BOUNDS).numpy()
    rows = np.arange(len(levels) // GROUP * GROUP).reshape(-1, GROUP)
    rows = np.random.default_rng(0).permutation(rows)
    valid, train = rows[:40].ravel(), rows[40:].ravel()
    if run.injects("overfit"):
        train = train[: 5 * GROUP]
    return (
        _matrix(inputs[train], levels[train]),
        _matrix(inputs[valid], levels[valid]),
        levels[valid],
    )


def _matrix(inputs: np.ndarray, levels: np.ndarray) -> xgboost.DMatrix:
    return xgboost.DMatrix(inputs, levels, qid=np.arange(len(levels)) // GROUP)


class _Hang(xgboost.callback.TrainingCallback):
    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:  # noqa: ARG002
        if epoch >= STALLS_AT * ROUNDS:
            raise Hanging
        return False


def train(run: Run) -> float:
    """Train once; return how far the ranking is from the best one, 1 - NDCG."""
    train, valid, levels = _groups(run)
    parameters = {
        "objective": "rank:ndcg",
        "eval_metric": ["ndcg@3", "ndcg"],
        "max_depth": run.pick(3, overfit=10),
        "eta": run.pick(0.1, lr_too_high=60.0, overfit=0.5),
        "min_child_weight": 0.5,
        "subsample": 0.8,
        "nthread": 1,
        "seed": run.seed,
    }
    hook = Hook.create_from_json_file(hook_configuration(run, 2))
    hook.validation_data, hook.hyperparameters = valid, parameters
    stalling = [_Hang()] if run.injects("stalled") else []
    try:
        booster = xgboost.train(
            parameters,
            train,
            ROUNDS,
            evals=[(train, "train"), (valid, "validation")],
            callbacks=[*stalling, hook],
            verbose_eval=False,
        )
    finally:
        hook.close(end_of_training=not stalling)
    return 1 - discounted(booster.predict(valid), levels)


PROGRAM = Program(
    model="XGBoost, rank:ndcg, depth 3, 60 rounds",
    data="shares of nodes in the syntax trees of functions of Python's library",
    measure="1 - NDCG",
    train=train,
    faults={
        "lr_too_high": "eta 60 in place of 0.1",
        "overfit": "5 groups of functions, depth 10, eta 0.5",
        "stalled": "hangs after 60 % of the rounds",
    },
)
