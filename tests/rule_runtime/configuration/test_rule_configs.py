"""The configurations of the built-in rules, and the actions, as `smdebug_rulesconfig` has them."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest

from rule_runtime.configuration import rule_configs
from rule_runtime.configuration.actions import (
    SMS,
    Action,
    ActionList,
    Email,
    StopTraining,
    is_valid_action_object,
)
from rule_runtime.custom_rules.rule_actions import Actions, MessageAction, StopTrainingAction
from rule_runtime.engine.rule import snake_case

EVERY_500 = {"save_interval": "500"}
COLLECTIONS: dict[str, list[tuple[str, dict[str, str]]]] = {
    "VanishingGradient": [("gradients", EVERY_500)],
    "LossNotDecreasing": [("losses", EVERY_500)],
    "WeightUpdateRatio": [("weights", EVERY_500)],
    "CheckInputImages": [
        ("input_image", {"include_regex": ".*hybridsequential0_input_0", **EVERY_500})
    ],
    "DeadRelu": [("relu_output", {"include_regex": ".*relu_output", **EVERY_500})],
    "PoorWeightInitialization": [("relu_input", {"include_regex": ".*relu_input", **EVERY_500})],
    "NLPSequenceRatio": [
        ("input_sequence", {"include_regex": ".*embedding0_input_0", **EVERY_500})
    ],
    "FeatureImportanceOverweight": [("feature_importance", EVERY_500)],
    "CreateXgboostReport": [
        ("metrics", {"save_interval": "5"}),
        ("feature_importance", {"save_interval": "5"}),
        ("hyperparameters", {"save_steps": "0"}),
        ("predictions", {"save_interval": "5"}),
        ("labels", {"save_interval": "5"}),
    ],
    **{
        rule: []
        for rule in (
            *("AllZero", "ClassImbalance", "Confusion", "ExplodingTensor", "Overfit"),
            *("Overtraining", "SaturatedActivation", "SimilarAcrossRuns", "StalledTrainingRule"),
            *("TensorVariance", "TreeDepth", "UnchangedTensor"),
        )
    },
}
"""Rule -> its collections, as smdebug_rulesconfig 1.0.2 has them."""


@pytest.mark.parametrize("rule", COLLECTIONS)
def test_configurations_are_the_originals(rule: str) -> None:
    make = getattr(rule_configs, snake_case(rule))
    expected: dict[str, Any] = {
        "DebugRuleConfiguration": {
            "RuleConfigurationName": rule,
            "RuleParameters": {"rule_to_invoke": rule},
        }
    }
    if COLLECTIONS[rule]:
        expected["CollectionConfigurations"] = [
            {"CollectionName": name, "CollectionParameters": parameters}
            for name, parameters in COLLECTIONS[rule]
        ]
    made = make()
    assert made == expected
    made["DebugRuleConfiguration"]["RuleParameters"]["threshold"] = "1"
    for collection in made.get("CollectionConfigurations", ()):
        collection["CollectionParameters"]["save_interval"] = "1"
    assert make() == expected, "each call makes a new one"


def test_there_is_one_function_for_each_rule() -> None:
    functions = {
        name
        for name in rule_configs.__all__
        if inspect.isfunction(getattr(rule_configs, name))
        and name not in ("get_collection", "is_valid_action_object")
    }
    assert functions == {snake_case(rule) for rule in COLLECTIONS}


@pytest.mark.parametrize(
    "name",
    [
        "weights",
        "gradients",
        "losses",
        "input_image",
        "input_sequence",
        "relu_output",
        "relu_input",
    ],
)
def test_ready_made_collections_are_well_formed(name: str) -> None:
    collection = rule_configs.get_collection(name)
    assert collection["CollectionName"] == name
    assert collection["CollectionParameters"]["save_interval"] == "500"


def test_a_collection_that_is_none_is_reported() -> None:
    with pytest.raises(ValueError, match="built-in collection 'wieghts'; did you mean 'weights'"):
        rule_configs.get_collection("wieghts")


class TestActions:
    def test_they_are_serialised_as_the_originals(self) -> None:
        assert Email("a@b.de").serialize() == r"{\"endpoint\": \"a@b.de\", \"name\": \"email\"}"
        assert SMS("+123").serialize() == r"{\"endpoint\": \"+123\", \"name\": \"sms\"}"
        actions = ActionList(StopTraining(), StopTraining("mine"), Email("a@b.de"))
        assert actions.serialize() == (
            r"[{\"name\": \"stoptraining\"}, "
            r"{\"training_job_prefix\": \"mine\", \"name\": \"stoptraining\"}, "
            r"{\"endpoint\": \"a@b.de\", \"name\": \"email\"}]"
        )
        actions.update_training_job_prefix_if_not_specified("Job-1")
        first, second, _ = json.loads(actions.serialize().replace('\\"', '"'))
        assert first["training_job_prefix"] == "Job-1"
        assert second["training_job_prefix"] == "mine"

    @pytest.mark.parametrize("address", ["ab@mail.abc.com", "A.b+c@abc.com", "x@abc.museum"])
    def test_ordinary_addresses_are_taken(self, address: str) -> None:
        assert Email(address).action_parameters["endpoint"] == address

    @pytest.mark.parametrize("address", ["ab", "a@b", "a@@b.com", "a b@c.com", 'a"@b.com', None])
    def test_what_is_no_address_is_refused(self, address: Any) -> None:
        with pytest.raises(ValueError, match=r"email_address=.* must be an address"):
            Email(address)

    @pytest.mark.parametrize("number", ["123", "+", "+1234567890123456", "+12a", 123, "+1\n"])
    def test_what_is_no_number_is_refused(self, number: Any) -> None:
        with pytest.raises(ValueError, match="phone_number="):
            SMS(number)

    @pytest.mark.parametrize("prefix", ["", "a b", "a_b", 'a"', 7])
    def test_what_begins_no_name_is_refused(self, prefix: Any) -> None:
        with pytest.raises(ValueError, match="training_job_prefix="):
            StopTraining(prefix)

    def test_one_alone_does_what_a_list_does(self) -> None:
        for action in (Email("a@b.de"), SMS("+1"), StopTraining()):
            assert is_valid_action_object(action)
            action.update_training_job_prefix_if_not_specified("Job-1")
            assert ("Job-1" in action.serialize()) == isinstance(action, StopTraining)
        assert is_valid_action_object(ActionList())
        assert not is_valid_action_object({"name": "email"})
        with pytest.raises(
            TypeError, match="'email' is not an action; give StopTraining, Email, SMS"
        ):
            ActionList("email")

    def test_what_no_request_can_carry_is_refused(self) -> None:
        job = "a" * 63
        fitting = ActionList(StopTraining(), Email("ab@abcdef.com"), SMS("+123456789012345"))
        fitting.update_training_job_prefix_if_not_specified(job)
        assert len(fitting.serialize()) <= 256
        long = ActionList(StopTraining(job), Email(f"{'b' * 60}@abc.com"), Email("c@abc.com"))
        with pytest.raises(ValueError, match=r"the actions take \d+ characters"):
            long.serialize()

    def test_an_evaluator_reads_them(self) -> None:
        read = Actions(ActionList(StopTraining("My-Job"), SMS("+1")).serialize(), "R").actions
        assert read == [StopTrainingAction("R", "My-Job"), MessageAction("R", "sms", "+1")]
        assert repr(Action(a="b")) == "Action({'a': 'b', 'name': 'action'})"
