"""What to change where rules lack what losses tell: of each framework in its own words."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = [
    "OF_BOOSTING",
    "Framework",
    "framework_of",
    "input_values_advice",
    "loss_inputs_advice",
    "why_no_validation",
]


class Framework(Enum):
    """What trains the model, as far as advice differs."""

    TORCH = "torch"
    KERAS = "keras"
    TENSORFLOW = "tensorflow"
    MXNET = "mxnet"
    XGBOOST = "xgboost"


OF_BOOSTING: Final = "average_shap"
"""A collection that is in every run of XGBoost, and in no other."""
_OF_KERAS: Final = "sm_metrics"
"""One that is in every run of Keras or of TensorFlow's sessions."""
_OF_BLOCKS: Final = ".*loss._(?!input).*output"
"""What the collection `losses` holds of MXNet, and of no other."""

_LOSS_INPUTS: Final = {
    Framework.TORCH: "compute the loss with one of torch, as nn.CrossEntropyLoss or "
    "F.cross_entropy: of others, and of sums of several, the hook sees less",
    Framework.KERAS: "the hook for Keras saves no inputs of losses, but those of the model, labels "
    "and predictions, where `fit` trains it",
    Framework.TENSORFLOW: "the hook for sessions of TensorFlow saves no inputs of losses",
    Framework.MXNET: "compute the loss with a block of gluon.loss, as SoftmaxCrossEntropyLoss: of "
    "others, and of sums of several, the hook sees less",
    Framework.XGBOOST: "boosted trees have none; their labels and predictions are those of the "
    "data in `evals` (`eval_set` of `fit`)",
}
_INPUT_VALUES: Final = _LOSS_INPUTS | {
    Framework.KERAS: "the hook for Keras saves them where `fit` trains the model with labels",
    Framework.TENSORFLOW: "the hook for sessions of TensorFlow saves none",
    Framework.MXNET: "the hook for MXNet is asked for none",
}
_NO_VALIDATION: Final = {
    Framework.TORCH: "call model.eval() ahead of it, and model.train() behind; compute it with one "
    "of torch, as nn.CrossEntropyLoss or F.cross_entropy; one of your own, and a sum of several, "
    "needs a name in training and in validation: get_hook().record_tensor_value('loss', loss); and "
    "call the model that is trained, as copies of it (a moving average) are not watched",
    Framework.KERAS: "give `fit` validation_data= or validation_split=, or call `evaluate` between "
    "epochs",
    Framework.TENSORFLOW: "run it with other data, too, behind hook.set_mode(modes.EVAL)",
    Framework.MXNET: "compute it with a block of gluon.loss outside of autograd.record(); one of "
    "your own needs a name in training and in validation: hook.save_tensor('loss', loss, 'losses')",
    Framework.XGBOOST: "give data that is not trained on in `evals` (`eval_set` of `fit`), and "
    "measure it by a loss, such as eval_metric='logloss' or 'rmse'; shares of errors, and what is "
    "better the larger it is, are not judged",
}


def framework_of(step: StepView) -> Framework:
    """Return what trains the model, by the collections that its hook has; torch if nobody knows.

    Args:
        step: The step.
    """
    files = (step.collections_file(worker) for worker in step.workers)
    collections = next((file.collections for file in files if file is not None), {})
    if OF_BOOSTING in collections:
        return Framework.XGBOOST
    losses = collections.get("losses")
    patterns = () if losses is None else losses.include_regex
    if _OF_KERAS in collections:
        return Framework.KERAS if patterns else Framework.TENSORFLOW
    return Framework.MXNET if _OF_BLOCKS in patterns else Framework.TORCH


def loss_inputs_advice(step: StepView) -> str:
    """Return what to change where a rule lacks inputs of losses, or labels.

    Args:
        step: The step.
    """
    return _LOSS_INPUTS[framework_of(step)]


def input_values_advice(step: StepView) -> str:
    """Return what to change where a rule lacks values of the model's inputs beside targets.

    Args:
        step: The step.
    """
    return _INPUT_VALUES[framework_of(step)]


def why_no_validation(step: StepView) -> str:
    """Return that there is no loss of validation, and what to change.

    Args:
        step: The step.
    """
    return f"there is no loss of validation to judge: {_NO_VALIDATION[framework_of(step)]}"
