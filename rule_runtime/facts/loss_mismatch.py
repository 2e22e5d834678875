"""What is said of a loss that gets what it is not made for, and what to try."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["REMEDY_OF", "LossMismatch"]

REMEDY_OF: Final = {
    "elements": "Give outputs and targets the same shape: outputs.squeeze(-1), or "
    "targets.unsqueeze(-1).",
    "means": "Take the mean of distances, not the distance of means: ((outputs - targets) ** 2)"
    ".mean().",
    "largest": "Put LogSoftmax (or log) ahead of this loss, or take CrossEntropyLoss, which has it "
    "inside.",
    "target": "Map the targets to the numbers that this loss is made for.",
    "loss": "Look at the sign of the loss: what is trained must fall while the model gets better.",
    "probability": "Put a sigmoid (or softmax) ahead of this loss.",
    "row_sum": "Where several classes may hold together take BCEWithLogitsLoss; else give each row "
    "one class.",
    "axis": "Give the softmax the dimension of the classes: dim=1 of [B, C] and [B, C, T].",
    "order": "Move the dimension of the classes by transpose or permute, [B, T, C] to [B, C, T]; "
    "view and reshape leave the elements where they are.",
    "weight": "Set pos_weight to about how many times rarer yes is than no, or leave it out.",
    "places": "Give scores and targets one order: both row by row, or both column by column.",
    "scores": "Give the model an output for each class, or take a loss of numbers or of yes or no.",
    "formula": "Compare the loss with its definition, part by part, or take torch's own module.",
    "left_out": "Look at ignore_index and at weights of classes: 0 leaves out all rows of a class.",
    "column": "Compare all columns of the outputs with those of the targets.",
    "tokens": "Ask for the tokens that follow: text[:, 1:] of what is given text[:, :-1].",
    "zero": "Look at what the loss is of: the softmax of a single score, or a mask of nothing.",
    "smallest": "Leave out the exponential, or give PoissonNLLLoss log_input=False.",
    "classes": "Take a loss of classes (CrossEntropyLoss, multi:softprob) with one output for each "
    "class; if the numbers are amounts in truth, switch this rule off.",
}
"""What to try, by what was measured."""


class LossMismatch(NamedTuple):
    """What is wrong with a loss: what was measured, beside which limit, and the words."""

    measure: str
    value: float
    threshold: float
    message: str
