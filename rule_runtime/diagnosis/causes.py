"""The causes of failed trainings: which findings show each, and which it explains.

A finding is called `Rule` or `Rule.measure`. The order of the table is that of a training: data,
outputs and loss, loop, optimizer, initial weights and architecture, precision, generalisation,
distribution, system. Where two causes explain a run equally well, the first counts.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["CAUSES", "Cause"]


class Cause(NamedTuple):
    """A cause of failed trainings.

    Attributes:
        name: Name for programs.
        title: The cause in words, as the begin of a sentence.
        shown_by: Findings that show it; any of them is enough.
        explains: Further findings that it may lead to.
        change: What to change; "" for the remedy of the finding that shows it.
        is_of_tensor: Whether the tensor of the finding shows where it is.
        is_of_gradients: Whether the operation that stops the gradient is what to change.
        line_of: Whose line of the script to change: that of the `loss`, of the `optimizer`, or of
            the `tensor`; "" for the tensor's if that shows where the cause is.
        is_of_scale: Whether inputs or targets that are not scaled are what to change.
    """

    name: str
    title: str
    shown_by: tuple[str, ...]
    explains: tuple[str, ...] = ()
    change: str = ""
    is_of_tensor: bool = False
    is_of_gradients: bool = False
    line_of: str = ""
    is_of_scale: bool = False


_UNSTABLE: Final = (
    "LossDiverging.loss_rise_percent",
    "LossSpike",
    "OscillatingLoss",
    "GradientNormExplosion",
    "ExplodingTensor",
    "NonFinite",
)
_GENERALISATION: Final = ("GeneralisationGap", "Overfit", "Overtraining")
_NOT_LEARNING: Final = (
    "PlateauedLoss",
    "LossNotDecreasing",
    "WorseThanGuessing",
    "GeneralisationGap.best_validation_percent",
    "OutputContract.output_range",
    "Confusion",
)
_INACTIVE_UNITS: Final = ("DeadRelu", "SaturatedActivation", "AllZero", "TensorVariance")
_NO_GRADIENT: Final = ("VanishingGradient", "MissingGradient", "IneffectiveSteps.without_gradient")
_NO_UPDATE: Final = ("DeadOptimizer", "UnchangedTensor", "LearningRateTooLow", "WeightUpdateRatio")
_WRONG_SCALE: Final = (
    *(*_UNSTABLE, *_NOT_LEARNING, *_INACTIVE_UNITS, *_NO_GRADIENT, *_GENERALISATION),
    *("LearningRateTooHigh", "IneffectiveSteps.skipped", "TrainingLoop.clipped"),
)
"""What gradients of a wrong size or direction may lead to."""
_WIDE: Final = ("InitialLossMismatch", *_WRONG_SCALE, *_NO_UPDATE)
_MISFITS: Final = tuple(
    f"OutputContract.{measure}"
    for measure in (
        *("width", "softmax_of_one", "column_sum", "row_sum", "output", "sigmoid_twice"),
        *("relu_before_loss", "target", "target_sum", "target_mean", "shape", "dropout"),
    )
)

CAUSES: Final = (
    # Data
    Cause(
        "missing_values",
        "The data has values that are not finite",
        ("NonFinite.nan_in_inputs", "NonFinite.inf_in_inputs"),
        _WIDE,
        is_of_tensor=True,
    ),
    Cause(
        "inputs_not_scaled",
        "Inputs or targets are not scaled",
        ("InputStatistics.rms", "CheckInputImages"),
        _WIDE,
        is_of_tensor=True,
    ),
    Cause(
        "inputs_are_no_tokens",
        "An embedding gets fractions",
        ("InputStatistics.fraction",),
        _NOT_LEARNING,
        is_of_tensor=True,
    ),
    Cause(
        "validation_inputs_differ",
        "Validation has other inputs than training",
        tuple(f"InputStatistics.{name}" for name in ("mean", "std", "min", "max")),
        _GENERALISATION,
        is_of_tensor=True,
    ),
    Cause(
        "labels_of_one_class",
        "All labels so far are of one class",
        ("LabelDegenerate.distinct_labels", "ClassImbalance.only_class"),
        (
            *("ClassImbalance", "SuspiciouslyGood", "IneffectiveSteps.without_split"),
            *(*_NOT_LEARNING, *_GENERALISATION),
        ),
        "Check from which column the labels come, how they become class numbers, and whether rows "
        "are shuffled.",
    ),
    Cause(
        "sorted_labels",
        "Batches have rows of one class",
        ("LabelDegenerate.share_of_batches_of_one_class",),
        ("ClassImbalance", "OscillatingLoss", *_NOT_LEARNING, *_GENERALISATION),
        "Shuffle the rows of the training data.",
    ),
    Cause(
        "ignored_targets",
        "All targets are ignored",
        ("NonFinite.ignored_targets",),
        ("OutputContract.target", *_UNSTABLE, *_NOT_LEARNING),
        line_of="loss",
    ),
    Cause(
        "validation_of_other_classes",
        "Validation has other classes than training",
        ("ClassImbalance.unseen",),
        ("ClassImbalance", "Confusion", *_GENERALISATION),
        "Shuffle the rows before you split them into training and validation.",
    ),
    Cause(
        "rare_classes",
        "Some classes are rare",
        ("ClassImbalance",),
        ("Confusion", *_GENERALISATION),
        "Weigh the classes in the loss (XGBoost: scale_pos_weight).",
    ),
    Cause(
        "target_leakage",
        "The inputs contain the targets",
        ("SuspiciouslyGood", "FeatureImportanceOverweight"),
        _GENERALISATION,
        is_of_tensor=True,
    ),
    Cause("padding", "Most tokens are padding", ("NLPSequenceRatio",)),
    # Outputs and loss
    Cause(
        "wrong_loss_formula",
        "The loss is computed wrongly",
        ("LossInputMismatch", "OutputContract.pairs"),
        ("OutputContract", *_WIDE),
        is_of_tensor=True,
        line_of="loss",
    ),
    Cause(
        "loss_without_bound",
        "The loss has no lower bound",
        ("LossDiverging.loss",),
        _WIDE,
        line_of="loss",
    ),
    Cause(
        "outputs_do_not_fit_the_loss",
        "The outputs or targets do not fit the loss",
        (*_MISFITS, "InitialLossMismatch.impossible_loss"),
        ("OutputContract", "DoubleActivation", "PoorWeightInitialization", *_WIDE),
        is_of_tensor=True,
    ),
    Cause(
        "activation_twice",
        "An activation is applied twice",
        ("DoubleActivation",),
        ("OutputContract", "InitialLossMismatch", *_NO_GRADIENT, *_NOT_LEARNING, *_NO_UPDATE),
        is_of_tensor=True,
    ),
    # Loop
    Cause(
        "gradients_not_cleared",
        "Gradients are not cleared",
        ("TrainingLoop.gradients_left",),
        (*_WRONG_SCALE, *_NO_UPDATE),
    ),
    Cause(
        "gradients_cleared_too_early",
        "Gradients are cleared before the optimizer steps",
        ("IneffectiveSteps.gradients_cleared",),
        ("DeadOptimizer", "TrainingLoop", *_NO_GRADIENT, *_NOT_LEARNING, *_NO_UPDATE),
    ),
    Cause(
        "no_optimizer_step",
        "No weight changes",
        ("TrainingLoop.backward_passes_since", "DeadOptimizer.all_unchanged_saved_steps"),
        ("TrainingLoop", *_NOT_LEARNING, *_NO_UPDATE),
        "Call optimizer.step() after backward(), with an optimizer of this model's parameters.",
        line_of="optimizer",
    ),
    Cause(
        "all_frozen",
        "All weights are frozen",
        ("TrainingLoop.all_frozen",),
        ("TrainingLoop", *_NOT_LEARNING, *_NO_UPDATE),
    ),
    Cause(
        "gradients_clipped",
        "Gradients are clipped to almost nothing",
        ("TrainingLoop.clipped_while_scaled", "TrainingLoop.clipped"),
        (*_NO_GRADIENT, *_NOT_LEARNING, *_NO_UPDATE),
    ),
    Cause(
        "learning_rate_is_zero",
        "The learning rate fell to 0",
        ("TrainingLoop.learning_rate",),
        (*_NOT_LEARNING, *_NO_UPDATE),
        line_of="optimizer",
    ),
    Cause(
        "validation_in_training_mode",
        "Validation runs in training mode",
        ("TrainingLoop.validation_passes_in_training_mode",),
        _GENERALISATION,
    ),
    # Optimizer
    Cause(
        "optimizer_of_unused_parameters",
        "An optimizer trains parameters that are not used",
        ("IneffectiveSteps.of_other_parameters", "IneffectiveSteps.of_unused_parameters"),
        ("TrainingLoop", "DeadOptimizer", *_UNSTABLE, *_NOT_LEARNING, *_NO_UPDATE),
        line_of="optimizer",
    ),
    Cause(
        "parameters_not_in_optimizer",
        "The optimizer does not train all of the model",
        ("DeadOptimizer", "UnchangedTensor"),
        (*_NOT_LEARNING, "WeightUpdateRatio", "LearningRateTooLow"),
        "Create the optimizer after the model is complete, with all of its parameters.",
        is_of_tensor=True,
        line_of="optimizer",
    ),
    Cause(
        "learning_rate_too_high",
        "The learning rate is too high",
        ("LearningRateTooHigh.least_update_ratio", "NonFinite.growth"),
        ("WeightUpdateRatio", *_WRONG_SCALE),
        "Lower the learning rate tenfold.",
        is_of_scale=True,
        line_of="optimizer",
    ),
    Cause(
        "shrinkage_too_weak",
        "The learning rate of the boosted trees is too high",
        ("LearningRateTooHigh.learning_rate",),
        (*_UNSTABLE, *_NOT_LEARNING, *_GENERALISATION),
    ),
    Cause(
        "learning_rate_too_low",
        "The learning rate is too low",
        ("LearningRateTooLow",),
        (*_NOT_LEARNING, "WeightUpdateRatio", "UnchangedTensor"),
        "Raise the learning rate tenfold.",
        line_of="optimizer",
    ),
    # Initial weights and architecture
    Cause(
        "constant_initial_weights",
        "The units of a layer begin with equal weights",
        ("PoorWeightInitialization.initial_value", "TensorVariance"),
        ("PoorWeightInitialization", *_WIDE),
        "Draw the initial weights at random.",
        is_of_tensor=True,
    ),
    Cause(
        "initial_scale",
        "The initial weights have the wrong scale",
        ("PoorWeightInitialization",),
        _WIDE,
        "Use the default initialisation of the layer.",
        is_of_tensor=True,
    ),
    Cause(
        "large_initial_loss",
        "The first loss is far above that of a guess",
        ("InitialLossMismatch.initial_loss",),
        (
            *("TrainingLoop.clipped", "LossSpike", "GradientNormExplosion", "DeadRelu"),
            *("WorseThanGuessing", "GeneralisationGap", "PlateauedLoss.correlation"),
        ),
        "Initialise the last layer with small weights.",
        is_of_scale=True,
    ),
    Cause(
        "inactive_relu",
        "ReLU units are never active",
        ("DeadRelu", "AllZero"),
        (*_NO_GRADIENT, *_NOT_LEARNING, *_NO_UPDATE, *_GENERALISATION),
        "Use LeakyReLU or GELU in this layer.",
        is_of_tensor=True,
    ),
    Cause(
        "saturated_units",
        "Units are saturated",
        ("SaturatedActivation",),
        (*_NO_GRADIENT, *_NOT_LEARNING, *_NO_UPDATE, *_GENERALISATION),
        "Normalise what this layer gets, for example with LayerNorm or BatchNorm.",
        is_of_tensor=True,
    ),
    Cause(
        "missing_activation",
        "An activation between layers is missing",
        ("MissingActivation",),
        ("InitialLossMismatch", *_NOT_LEARNING, *_GENERALISATION),
        is_of_tensor=True,
    ),
    Cause(
        "gradient_is_cut",
        "A part of the model gets no gradient",
        ("MissingGradient", "IneffectiveSteps.without_gradient", "VanishingGradient.zero_gradient"),
        (*_NOT_LEARNING, *_NO_UPDATE),
        "Remove what cuts this layer off from the loss, such as detach() or no_grad().",
        is_of_tensor=True,
        is_of_gradients=True,
    ),
    Cause(
        "vanishing_gradient",
        "Gradients vanish on the way to the first layers",
        ("VanishingGradient.abs_mean",),
        ("VanishingGradient", "MissingGradient", *_NOT_LEARNING, *_NO_UPDATE, *_GENERALISATION),
        "Use ReLU or GELU between the layers, with normalisation or residual connections.",
        is_of_tensor=True,
    ),
    Cause(
        "diverging",
        "The training diverges",
        ("LossDiverging.loss_rise_percent", "OscillatingLoss", "GradientNormExplosion"),
        (*_UNSTABLE, *_NOT_LEARNING),
        "Lower the learning rate tenfold.",
        is_of_scale=True,
        line_of="optimizer",
    ),
    Cause(
        "loss_spikes",
        "The loss jumps at a few steps",
        ("LossSpike",),
        ("NonFinite",),
        "Clip gradients, for example to a norm of 1.",
    ),
    # Precision
    Cause(
        "not_finite",
        "A number is not finite",
        ("NonFinite", "ExplodingTensor", "IneffectiveSteps.skipped"),
        (*_UNSTABLE, *_NOT_LEARNING, *_NO_GRADIENT, *_NO_UPDATE),
        is_of_tensor=True,
        is_of_scale=True,
    ),
    # Generalisation
    Cause(
        "labels_do_not_belong_to_inputs",
        "Nothing is learned that holds for other data",
        ("GeneralisationGap.best_validation_percent",),
        ("PlateauedLoss", "LossNotDecreasing", "Confusion"),
        "Check with some rows of a batch that each input has its own label.",
    ),
    Cause(
        "overfitting",
        "The model overfits",
        _GENERALISATION,
        (),
        "Stop where the validation loss was smallest.",
    ),
    Cause(
        "trees_without_splits",
        "Boosting rounds add trees without splits",
        ("IneffectiveSteps.without_split", "TreeDepth"),
        ("LearningRateTooLow", *_NOT_LEARNING),
    ),
    Cause(
        "constant_outputs",
        "The model predicts the same for all inputs",
        ("OutputContract.output_range",),
        (*_NOT_LEARNING, *_NO_GRADIENT),
        is_of_tensor=True,
    ),
    Cause(
        "not_learning",
        "The loss does not fall",
        ("PlateauedLoss", "LossNotDecreasing", "WorseThanGuessing", "Confusion"),
        (),
        "Check with some rows of a batch that each input has its own label.",
        is_of_scale=True,
    ),
    # Distribution
    Cause(
        "ranks_get_one_batch",
        "All ranks get the same batch",
        ("TrainingLoop.same_inputs",),
        _GENERALISATION,
    ),
    Cause(
        "replicas_diverge",
        "The replicas of the model are not equal",
        ("ReplicaDivergence",),
        (*_UNSTABLE, *_NOT_LEARNING),
        "Remove what changes weights on one rank only, such as loading a checkpoint there.",
        is_of_tensor=True,
    ),
    # System
    Cause(
        "stalled",
        "The training stalls",
        ("StalledTrainingRule",),
        (),
        "Find out where it hangs: data loading, a checkpoint, or a rank that others wait for.",
    ),
)
