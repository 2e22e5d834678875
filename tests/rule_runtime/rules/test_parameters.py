"""Parameters of rules: what is refused, and what a hook must save for them."""

from __future__ import annotations

from typing import Any

import pytest

from rule_runtime.engine.parameters import ParameterError
from rule_runtime.engine.registry import create_rule
from rule_runtime.engine.rule import Rule
from rule_runtime.rules.non_finite import ExplodingTensor
from rule_runtime.rules.similar_across_runs import SimilarAcrossRuns

SELECT = "select tensors by collection_names or tensor_regex"


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("AllZero", {}, SELECT),
        ("AllZero", {"tensor_regex": "a", "threshold": "0"}, "threshold is 0"),
        ("AllZero", {"tensor_regex": "a", "threshold": "100.1"}, "threshold is 100.1"),
        ("CheckInputImages", {"channel": "0"}, "channel is 0 axis, but must be at least 1"),
        ("ClassImbalance", {"threshold_imbalance": "0.5"}, "threshold_imbalance is 0.5"),
        ("Confusion", {"category_no": "1"}, "category_no is 1 classes, but must be at least 2"),
        ("ExplodingTensor", {"tensor_regex": "["}, "tensor_regex is ('[',), but must be a regular"),
        ("FeatureImportanceOverweight", {"threshold": "80"}, "threshold is 80"),
        ("LossNotDecreasing", {"diff_percent": "0"}, "is 0.0 %, but must be greater than 0"),
        ("LossNotDecreasing", {"diff_percent": "100"}, "but must be less than 100"),
        ("LossNotDecreasing", {"num_steps": "2.5"}, "is '2.5', but must be a whole number"),
        ("LossNotDecreasing", {"mode": "TRAINING"}, "one of EVAL, TRAIN, PREDICT, GLOBAL, or none"),
        ("LossNotDecreasing", {"num_step": "3"}, "'num_step'; did you mean 'num_steps'?"),
        ("LossNotDecreasing", {"use_losses_collection": "False"}, "no loss to evaluate"),
        ("NLPSequenceRatio", {"token_values": "0,3"}, "2 token_values and 1 token_thresholds_"),
        (
            "NLPSequenceRatio",
            {"token_values": "", "token_thresholds_percent": ""},
            "0 token_values and 0 token",
        ),
        ("Overfit", {"patience": "0"}, "patience is 0 validation passes, but must be at"),
        ("Overtraining", {"delta": "-1"}, "delta is -1.0 units of the loss"),
        ("PoorWeightInitialization", {"threshold": "0"}, "threshold"),
        ("PoorWeightInitialization", {"patience": "0"}, "patience"),
        ("PoorWeightInitialization", {"steps": "0"}, "steps"),
        ("SaturatedActivation", {"threshold_tanh_min": "10"}, "tanh_min is 10, but must be less"),
        ("SimilarAcrossRuns", {}, "give other_trials"),
        ("TensorVariance", {"max_threshold": "1"}, SELECT),
        ("TensorVariance", {"tensor_regex": "a"}, "give max_threshold, min_threshold or both"),
        ("TensorVariance", {"tensor_regex": "a", "max_threshold": "-1"}, "at least 0"),
        (
            "TensorVariance",
            {"tensor_regex": "a", "max_threshold": "1", "min_threshold": "2"},
            "max_threshold is 1, but must be at least min_threshold, which is 2",
        ),
        ("TreeDepth", {"depth": "0"}, "depth is 0.0 levels, but must be greater than 0"),
        ("UnchangedTensor", {}, SELECT),
        ("UnchangedTensor", {"tensor_regex": "a", "num_steps": "1"}, "num_steps"),
        ("UnchangedTensor", {"tensor_regex": "a", "num_steps": "129"}, "num_steps"),
        ("WeightUpdateRatio", {"num_steps": "0"}, "num_steps"),
        ("WeightUpdateRatio", {"large_threshold": "0"}, "large_threshold"),
        ("WeightUpdateRatio", {"epsilon": "0"}, "epsilon"),
    ],
)
def test_refused_parameters(name: str, parameters: dict[str, str], message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        create_rule(name, parameters)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("rule", "parameters"),
    [
        (
            ExplodingTensor(tensor_regex=("a{1,2}$", "b"), only_nan=True),
            {"rule_to_invoke": "ExplodingTensor", "tensor_regex": "a{1,2}$,b", "only_nan": "True"},
        ),
        (
            SimilarAcrossRuns(other_trials=("job-1", "s3://bucket/job-2"), other_trial_0="job-1"),
            {"other_trials": "job-1, s3://bucket/job-2", "other_trial_0": "job-1"}
            | {"base_trial": "x"},
        ),
    ],
)
def test_parameters_of_a_service_are_strings(rule: Rule, parameters: dict[str, str]) -> None:
    assert create_rule(type(rule).__name__, parameters) == rule


EVERY_10 = {"save_interval": "10"}
EVERY_500 = {"save_interval": "500"}
VALUES = {"save_raw_tensor": "True"}
RARELY = EVERY_500 | VALUES
REGEX = ".*relu_input|.*ReLU_input"


@pytest.mark.parametrize(
    ("name", "parameters", "saved"),
    [
        ("AllZero", {"collection_names": "a"}, {"a": {}}),
        ("AllZero", {"collection_names": "a,b", "threshold": "80"}, {"a": VALUES, "b": VALUES}),
        ("ClassImbalance", {"labels_regex": "y"}, {"labels": {"include_regex": "y"}}),
        ("Confusion", {"labels": "y"}, {"labels": {"include_regex": "^y$"}}),
        ("DeadRelu", {"tensor_regex": REGEX}, {"relu_output": RARELY | {"include_regex": REGEX}}),
        # They show that a recurrent layer gets one time step.
        (
            "MissingGradient",
            {},
            {"gradients": EVERY_10, "module_io": EVERY_10, "layer_inputs": EVERY_10},
        ),
        (
            "PoorWeightInitialization",
            {"activation_inputs_regex": REGEX, "steps": "20"},
            {
                "relu_input": {"include_regex": REGEX},
                "gradients": EVERY_500,
                "losses": EVERY_500,
                "first_steps": VALUES | {"save_interval": "1", "end_step": "20"},
            },
        ),
        (
            "PoorWeightInitialization",
            {"activation_inputs_regex": ""},
            {"relu_input": {"save_interval": "1", "include_regex": None}},
        ),
        ("SaturatedActivation", {}, {"tanh_input": VALUES, "sigmoid_input": VALUES}),
        ("SaturatedActivation", {"collection_names": "mine"}, {"tanh_input": {}, "mine": VALUES}),
        ("SaturatedActivation", {"threshold_slope": "0.07"}, {"module_io": {}, "weights": {}}),
        ("SimilarAcrossRuns", {"other_trials": "a", "collection_names": "b"}, {"b": VALUES}),
        ("TensorVariance", {"collection_names": "a", "max_threshold": "1"}, {"a": {}}),
        ("UnchangedTensor", {"collection_names": "a"}, {"a": VALUES}),
        ("WeightUpdateRatio", {}, {"weights": RARELY}),
    ],
)
def test_required_collections(
    name: str, parameters: dict[str, str], saved: dict[str, dict[str, Any]]
) -> None:
    required = {each.name: each.parameters for each in create_rule(name, parameters).requires()}
    for collection, expected in saved.items():
        found = {key: required[collection].get(key) for key in expected}
        assert found == expected
    if name in ("AllZero", "TensorVariance") and not any(saved.values()):
        assert not any(required.values()), "statistics suffice"
