"""The frameworks that have a hook, and all that Stepwatch knows about each by name.

Every watched Python imports this module when it starts, so it imports nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import Final

__all__ = [
    "FALLING_METRIC",
    "FRAMEWORKS",
    "HUGGING_FACE",
    "KERAS",
    "LIGHTNING",
    "MXNET",
    "TENSORFLOW",
    "TORCH",
    "WATCHED",
    "XGBOOST",
    "Advice",
    "Facts",
    "Framework",
]


class Advice:
    """How a script provides missing data.

    Attributes:
        validation: How to save a validation loss.
        loss_inputs: How to save the outputs and targets that the loss compares.
        input_values: How to save the model's inputs and targets; by default, like `loss_inputs`.
    """

    def __init__(self, validation: str, loss_inputs: str, input_values: str = "") -> None:
        self.validation = validation
        self.loss_inputs = loss_inputs
        self.input_values = input_values or loss_inputs


class Facts:
    """What rules can know about the runs of a hook.

    Attributes:
        wrote: Returns whether the hook wrote a run, from the names of its collections and the
            patterns of its collection `losses`. PyTorch's runs are those that no other hook wrote.
        advice: How a script provides missing data.
        lacks: Data that the hook cannot provide: `rule_runtime/configuration/applicability.py`.
        unfilled: Collections that rules need of other frameworks, and that this hook never fills.
    """

    def __init__(
        self,
        wrote: Callable[[Collection[str], Collection[str]], bool],
        advice: Advice,
        lacks: Collection[str] = (),
        unfilled: Collection[str] = (),
    ) -> None:
        self.wrote = wrote
        self.advice = advice
        self.lacks = frozenset(lacks)
        self.unfilled = frozenset(unfilled)


class Framework:
    """A framework with a hook.

    Attributes:
        name: Its displayed name.
        extra: The extra of `pyproject.toml` that installs it, and its module in `stepwatch`.
        hook: The hook or callback in this module.
        watch: What a script imports of it, and the module that then looks for its training.
        facts: What rules can know about its runs.
        requires: What must be installed; default: its name.
        hint: What to do besides installing the extra.
        distributions: Packages that provide it and its backends; one of each tuple is enough.
    """

    def __init__(
        self,
        name: str,
        extra: str,
        hook: str,
        watch: Mapping[str, str],
        facts: Facts,
        *,
        requires: str = "",
        hint: str = "",
        distributions: Collection[tuple[str, ...]] = (),
    ) -> None:
        self.name = name
        self.extra = extra
        self.hook = f"stepwatch.{extra}.{hook}"
        self.watch = watch
        self.facts = facts
        self.requires = requires or name
        self.hint = hint
        self.distributions = tuple(distributions) or ((extra,),)

    def __repr__(self) -> str:
        return self.name

    def missing(self) -> ImportError:
        """Return the error of a hook whose framework is not installed."""
        from hook_layer.install_hint import install_hint  # noqa: PLC0415 - for an error only

        what = f"stepwatch.{self.extra} needs {self.requires}"
        text = f"{what}: {install_hint(self.extra)}{self.hint}"
        return ImportError(text, name=self.distributions[0][0])


_OF_TREES = ("feature_importance", "hyperparameters", "trees")
_KERAS_INPUTS = ("keras_inputs", "layer_inputs")
_OF_LAYERS = (
    *(*_KERAS_INPUTS, "loss_inputs", "model_inputs", "module_io"),
    *("relu_input", "relu_output", "sigmoid_input", "sigmoid_output", "tanh_input", "tanh_output"),
)
_OF_MXNET_BLOCKS = ".*loss._(?!input).*output"
"""A pattern in the collection `losses` of MXNet only."""
FALLING_METRIC: Final = (
    "use a metric that is known to fall, such as eval_metric='logloss' or 'rmse', or a metric of "
    "your own with maximize=False"
)

TORCH: Final = Framework(
    "PyTorch",
    "torch",
    "Hook",
    {"torch": "hook_layer.pytorch.unchanged"},
    Facts(
        lambda *_: False,
        Advice(
            validation="call model.eval() before validation and model.train() after it, on the "
            "model that is trained; compute the loss with one of torch, such as "
            "nn.CrossEntropyLoss, or record it by name in training and validation: "
            "get_hook().record_tensor_value('loss', loss)",
            loss_inputs="compute the loss with one of torch, such as nn.CrossEntropyLoss or "
            "F.cross_entropy, or record what your own compares: "
            "get_hook().record_loss(outputs, targets, loss)",
        ),
        lacks=("trees",),
        unfilled=(*_OF_TREES, *_KERAS_INPUTS),
    ),
)
LIGHTNING: Final = Framework(
    "Lightning",
    "lightning",
    "StepwatchCallback",
    {"lightning": "hook_layer.lightning", "pytorch_lightning": "hook_layer.lightning"},
    TORCH.facts,
    distributions=(("lightning", "pytorch-lightning"),),
)
HUGGING_FACE: Final = Framework(
    "Transformers",
    "huggingface",
    "StepwatchCallback",
    {"transformers.trainer": "hook_layer.huggingface"},
    TORCH.facts,
    distributions=(("transformers",),),
)
KERAS: Final = Framework(
    "Keras",
    "keras",
    "KerasHook",
    {"keras": "hook_layer.keras.unchanged"},
    Facts(
        lambda names, losses: "sm_metrics" in names and bool(losses),
        Advice(
            validation="pass validation_data= or validation_split= to `fit`, or call `evaluate` "
            "between epochs",
            loss_inputs="train with `fit` or `train_on_batch` and a loss of keras.losses, or call "
            "a loss object, such as keras.losses.MeanSquaredError(), within the tape",
            input_values="the hook for Keras saves them if `fit` or `train_on_batch` trains the "
            "model with labels, or a loss object of keras.losses is called within the tape",
        ),
        lacks=("counts of optimizer steps", "several ranks", "trees"),
        unfilled=_OF_TREES,
    ),
    requires="Keras 3 and one of its backends",
    hint=", and `pip install tensorflow`, torch or jax",
    distributions=(("keras",), ("jax",)),
)
TENSORFLOW: Final = Framework(
    "TensorFlow sessions",
    "tensorflow",
    "SessionHook",
    {"tensorflow": "hook_layer.tensorflow.unchanged"},
    Facts(
        lambda names, losses: "sm_metrics" in names and not losses,
        Advice(
            validation="call hook.set_mode(modes.EVAL) and run the session with validation data",
            loss_inputs="the hook for TensorFlow sessions saves no inputs of losses",
            input_values="the hook for TensorFlow sessions does not save them",
        ),
        lacks=(
            *("counts of optimizer steps", "inputs and outputs of linear layers", "labels"),
            *("inputs of layers", "inputs of the loss", "outputs of activations"),
            *("predictions, or inputs of the loss", "several ranks"),
            *("the parameter of each gradient", "trees"),
        ),
        unfilled=(
            *(*_OF_LAYERS, *_OF_TREES),
            *("input_values", "labels", "optimizer_steps", "predictions"),
        ),
    ),
    requires="TensorFlow",
    distributions=(("tensorflow", "tensorflow-cpu"),),
)
XGBOOST: Final = Framework(
    "XGBoost",
    "xgboost",
    "Hook",
    {"xgboost": "hook_layer.xgboost.unchanged"},
    Facts(
        lambda names, _: "average_shap" in names,
        Advice(
            validation="pass validation data in `evals` (`eval_set` of `fit`), and "
            f"{FALLING_METRIC}; error rates are not evaluated",
            loss_inputs="XGBoost saves labels and predictions of the data in `evals` (`eval_set` "
            "of `fit`)",
        ),
        lacks=(
            *("gradients", "images and sequences", "inputs and outputs of linear layers"),
            *("inputs of layers", "inputs of the loss", "outputs of activations"),
            *("several ranks", "the parameter of each gradient", "weights"),
        ),
        unfilled=(*_OF_LAYERS, "biases", "gradients", "weights"),
    ),
    hint=", or `pip install xgboost-cpu`",
    distributions=(("xgboost", "xgboost-cpu"),),
)
MXNET: Final = Framework(
    "MXNet",
    "mxnet",
    "Hook",
    {"mxnet": "hook_layer.mxnet.unchanged"},
    Facts(
        lambda _, losses: _OF_MXNET_BLOCKS in losses,
        Advice(
            validation="compute it with a block of gluon.loss outside autograd.record(), or record "
            "it by name in training and validation: hook.save_tensor('loss', loss, 'losses')",
            loss_inputs="compute the loss with a block of gluon.loss, such as "
            "SoftmaxCrossEntropyLoss; the hook does not see all inputs of other losses",
            input_values="the hook for MXNet does not save them",
        ),
        lacks=("counts of optimizer steps", "several ranks", "trees"),
        unfilled=(*_OF_TREES, *_KERAS_INPUTS, "input_values", "optimizer_steps"),
    ),
    requires="MXNet 1.9",
    hint=", with Python 3.11 or older, because it needs numpy before 1.24",
)

FRAMEWORKS: Final = (TORCH, LIGHTNING, HUGGING_FACE, KERAS, TENSORFLOW, XGBOOST, MXNET)
WATCHED: Final = {imported: by for each in FRAMEWORKS for imported, by in each.watch.items()}
"""What a script imports of each framework, and the module that then looks for its training."""
