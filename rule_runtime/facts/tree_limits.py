"""How small a loss of classes boosted trees can have after some rounds, if all is right."""

from __future__ import annotations

import math
from typing import Final

from rule_runtime.facts.validation_rule import Training, Validation

__all__ = ["nearest_of_trees"]

_FALLEN: Final = 0.25
_WAY: Final = 0.8
_WAY_OF_SEVERAL: Final = 0.9
_STEP: Final = 0.02


def nearest_of_trees(validation: Validation, training: Training) -> float:
    """Return a loss of classes that trees reach that are right in nearly all rows; else 0.

    A score s of what is always right grows by eta (1 + exp(-s)) a round, from 0.

    Args:
        validation: A loss of validation; `beside` it `way`, eta times the rounds, and `classes`.
        training: The losses of training.
    """
    way, metric = validation.beside.get("way", 0.0), validation.name.partition("-")[2]
    if not 0 < way < math.log(1e9):
        return 0.0
    if metric == "logloss":
        score, others = _WAY * math.log(2 * math.exp(way) - 1), 1
    elif metric == "mlogloss" and "classes" in validation.beside:
        others = max(int(validation.beside["classes"]) - 1, 1)
        score = _WAY_OF_SEVERAL * _ahead(way, others)
    else:
        return 0.0
    return min(math.log1p(others * math.exp(-score)), _FALLEN * training.start)


def _ahead(way: float, others: int) -> float:
    """Return how far the score of the right class is before others after eta times the rounds.

    With the probability p of the right class, and q of each other one, XGBoost's second derivative
    of softmax, 2 p (1 - p), makes steps of eta / (2 p) up and eta / (2 (1 - q)) down.
    """
    ahead = 0.0
    for _ in range(math.ceil(way / _STEP)):
        total = math.exp(ahead) + others
        ahead += _STEP / 2 * (total / math.exp(ahead) + total / (total - 1))
    return ahead
