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
    """

    name: str
    title: str
    shown_by: tuple[str, ...]
    explains: tuple[str, ...] = ()
    change: str = ""


_UNSTABLE: Final = (
    "LossDiverging",
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
_ANY_STEP: Final = (
    *(*_UNSTABLE, *_NOT_LEARNING, *_INACTIVE_UNITS, *_NO_GRADIENT, *_GENERALISATION),
    "LearningRateTooHigh",
)
"""What a wrong gradient or a wrong scale may lead to."""

CAUSES: Final = (
    # Data
    Cause(
        "inputs_not_scaled",
        "Inputs or targets are not scaled",
        ("InputStatistics", "CheckInputImages"),
        ("InitialLossMismatch", "TrainingLoop.clipped", *_ANY_STEP, *_NO_UPDATE),
    ),
    Cause(
        "labels_of_one_class",
        "All labels are of one class",
        ("LabelDegenerate.distinct_labels",),
        (
            *("ClassImbalance", "SuspiciouslyGood", "IneffectiveSteps.without_split"),
            *(*_NOT_LEARNING, *_GENERALISATION),
        ),
    ),
    Cause(
        "sorted_labels",
        "Batches have rows of one class",
        ("LabelDegenerate.share_of_batches_of_one_class",),
        ("ClassImbalance", "OscillatingLoss", *_NOT_LEARNING, *_GENERALISATION),
    ),
    Cause(
        "rare_classes",
        "Some classes are rare",
        ("ClassImbalance",),
        ("Confusion", *_GENERALISATION),
    ),
    Cause(
        "target_leakage",
        "The inputs contain the targets",
        ("SuspiciouslyGood", "FeatureImportanceOverweight"),
        _GENERALISATION,
    ),
    Cause("padding", "Most tokens are padding", ("NLPSequenceRatio",)),
    # Outputs and loss
    Cause(
        "wrong_loss_formula",
        "The loss is computed wrongly",
        ("LossInputMismatch", "OutputContract.pairs"),
        ("InitialLossMismatch", "OutputContract", *_ANY_STEP, *_NO_UPDATE),
    ),
    Cause(
        "outputs_do_not_fit_the_loss",
        "The outputs or targets do not fit the loss",
        tuple(
            f"OutputContract.{measure}"
            for measure in (
                *("width", "softmax_of_one", "column_sum", "row_sum", "output", "sigmoid_twice"),
                *("relu_before_loss", "target", "target_sum", "target_mean", "shape", "dropout"),
            )
        ),
        (
            *("InitialLossMismatch", "DoubleActivation", "InputStatistics", "LabelDegenerate"),
            *("OutputContract", "PoorWeightInitialization", *_ANY_STEP, *_NO_UPDATE),
        ),
    ),
    Cause(
        "activation_twice",
        "An activation is applied twice",
        ("DoubleActivation",),
        ("OutputContract", "InitialLossMismatch", *_NO_GRADIENT, *_NOT_LEARNING, *_NO_UPDATE),
    ),
    # Loop
    Cause(
        "gradients_not_cleared",
        "Gradients are not cleared",
        ("TrainingLoop.gradients_left",),
        (*_ANY_STEP, *_NO_UPDATE),
    ),
    Cause(
        "no_optimizer_step",
        "The optimizer takes no step",
        ("TrainingLoop.backward_passes_since", "IneffectiveSteps.skipped"),
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
    ),
    Cause(
        "validation_in_training_mode",
        "Validation runs in training mode",
        ("TrainingLoop.validation_passes_in_training_mode",),
        _GENERALISATION,
    ),
    # Optimizer
    Cause(
        "wrong_parameters",
        "The optimizer does not train all of the model",
        ("IneffectiveSteps.of_other_parameters", "DeadOptimizer", "UnchangedTensor"),
        (*_NOT_LEARNING, "WeightUpdateRatio", "LearningRateTooLow"),
    ),
    Cause(
        "learning_rate_too_high",
        "The learning rate is too high",
        ("LearningRateTooHigh", "NonFinite.growth"),
        ("WeightUpdateRatio", *_ANY_STEP),
        "Lower the learning rate tenfold, or raise it over the first steps.",
    ),
    Cause(
        "learning_rate_too_low",
        "The learning rate is too low",
        ("LearningRateTooLow",),
        (*_NOT_LEARNING, "WeightUpdateRatio", "UnchangedTensor"),
    ),
    # Initial weights and architecture
    Cause(
        "constant_initial_weights",
        "The units of a layer begin with equal weights",
        ("PoorWeightInitialization.initial_value", "TensorVariance"),
        (
            *("InitialLossMismatch", *_INACTIVE_UNITS, *_NO_GRADIENT, *_NOT_LEARNING, *_NO_UPDATE),
            *_GENERALISATION,
        ),
    ),
    Cause(
        "initial_scale",
        "The initial weights have the wrong scale",
        ("PoorWeightInitialization",),
        ("InitialLossMismatch", "TrainingLoop.clipped", *_ANY_STEP, *_NO_UPDATE),
    ),
    Cause(
        "large_initial_loss",
        "The first loss is far above that of a guess",
        ("InitialLossMismatch",),
        ("TrainingLoop.clipped", *_ANY_STEP, *_NO_UPDATE),
    ),
    Cause(
        "inactive_relu",
        "ReLU units are never active",
        ("DeadRelu", "AllZero"),
        (*_NO_GRADIENT, *_NOT_LEARNING, *_NO_UPDATE, *_GENERALISATION),
    ),
    Cause(
        "saturated_units",
        "Units are saturated",
        ("SaturatedActivation",),
        (*_NO_GRADIENT, *_NOT_LEARNING, *_NO_UPDATE, *_GENERALISATION),
    ),
    Cause(
        "missing_activation",
        "An activation between layers is missing",
        ("MissingActivation",),
        ("InitialLossMismatch", *_NOT_LEARNING, *_GENERALISATION),
    ),
    Cause(
        "gradient_is_cut",
        "A part of the model gets no gradient",
        ("MissingGradient", "IneffectiveSteps.without_gradient"),
        (*_NOT_LEARNING, *_NO_UPDATE),
    ),
    Cause(
        "vanishing_gradient",
        "Gradients vanish on the way to the first layers",
        ("VanishingGradient",),
        ("MissingGradient", *_NOT_LEARNING, *_NO_UPDATE, *_GENERALISATION),
        "Use ReLU or GELU between the layers, with normalisation or residual connections.",
    ),
    Cause(
        "diverging",
        "The training diverges",
        ("LossDiverging", "OscillatingLoss", "GradientNormExplosion"),
        (*_UNSTABLE, *_NOT_LEARNING),
        "Lower the learning rate tenfold, or clip gradients.",
    ),
    Cause("loss_spikes", "The loss jumps at a few steps", ("LossSpike",), ("NonFinite",)),
    # Precision
    Cause(
        "not_finite",
        "A number is not finite",
        ("NonFinite", "ExplodingTensor"),
        (*_UNSTABLE, *_NOT_LEARNING, *_NO_GRADIENT, *_NO_UPDATE),
    ),
    # Generalisation
    Cause(
        "labels_do_not_belong_to_inputs",
        "Nothing is learned that holds for other data",
        ("GeneralisationGap.best_validation_percent",),
        ("PlateauedLoss", "LossNotDecreasing", "Confusion"),
        "Check that each input has its own label: print some rows of a batch, and look for a "
        "shuffle of one of them. If they belong together, the inputs do not determine the labels.",
    ),
    Cause(
        "overfitting",
        "The model overfits",
        _GENERALISATION,
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
    ),
    Cause(
        "not_learning",
        "The loss does not fall",
        ("PlateauedLoss", "LossNotDecreasing", "WorseThanGuessing", "Confusion"),
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
    ),
    # System
    Cause("stalled", "The training stalls", ("StalledTrainingRule",)),
)
