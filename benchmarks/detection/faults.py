"""The kinds of faults that are injected, in words, and those that harm by construction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["BY_CONSTRUCTION", "FAULTS"]

FAULTS: Final[Mapping[str, str]] = {
    "lr_too_high": "the learning rate is far too high",
    "lr_too_low": "the learning rate is far too low",
    "no_activation": "an activation function was forgotten",
    "double_activation": "an activation is applied twice, as softmax ahead of a loss that has one",
    "init_too_large": "weights are initialised far too large",
    "init_constant": "weights are initialised to one constant, mostly zero",
    "dead_relu": "a layer's ReLUs never fire",
    "saturated_activation": "tanh or sigmoid units work in their flat parts",
    "missing_normalisation": "inputs or targets are not scaled",
    "wrong_loss": "the loss does not fit the task",
    "labels_shuffled": "labels do not belong to their inputs",
    "labels_constant": "every label is the same",
    "class_imbalance": "nearly all training data is of one class, test data is not",
    "frozen_layer": "part of the model is cut off from the loss (detach, no_grad)",
    "optimiser_missing_parameters": "the optimiser was not given all parameters",
    "exploding_rnn": "a recurrent state grows without bounds, and nothing is clipped",
    "fp16_overflow": "float16 gradients overflow: a fixed loss scale, and nobody looks at them",
    "data_leak": "the answer is among the inputs",
    "weight_decay": "weight decay is so large that nothing is learned",
    "without_split": "trees cannot split",
    "overfit": "too little data and no regularisation",
    "stalled": "the training hangs",
}

BY_CONSTRUCTION: Final[Mapping[str, str]] = {
    "data_leak": "validation cannot show it: the answer is missing where the model is used",
    "stalled": "what is not trained any more does not get better, and costs",
}
"""Faults whose harm the validation error at the end does not show, and why they harm."""
