"""What rules need and nobody configured is saved, and what they cannot get is told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hook_layer.configuration.configuration_file import ConfigurationFile
from hook_layer.configuration.hook_json import parse_hook_configuration
from hook_layer.configuration.save_config import SaveConfigMode
from hook_layer.pytorch import Hook
from rule_runtime import create_trial
from rule_runtime.configuration import CollectionConfig, DebuggerHookConfig, Rule, rule_configs
from rule_runtime.engine.parameters import ParameterError
from rule_runtime.engine.registry import available_rules, create_rule
from rule_runtime.jobs import PreparedJob, prepare
from rule_runtime.jobs.rule_needs import RuleNeeds, SaveSteps, saved_for_rules

OVERFIT = Rule.sagemaker(rule_configs.overfit())
SATURATED = Rule.sagemaker(rule_configs.saturated_activation())
VANISHING = Rule.sagemaker(rule_configs.vanishing_gradient())
NEEDED_BY_OVERFIT = {"eval.save_interval": "10", "train.save_interval": "100"}


def in_folder(folder: Path, *rules: object, **hook: Any) -> PreparedJob:
    hook_config = DebuggerHookConfig(**hook) if hook else None
    return prepare(job_name="job", output_path=folder, rules=rules, hook_config=hook_config)


def saved(job: PreparedJob) -> dict[str, dict[str, str]]:
    document = json.loads(Path(job.environment["STEPWATCH_CONFIG"]).read_text())
    return {
        each["CollectionName"]: each.get("CollectionParameters", {})
        for each in document["DebugHookConfig"].get("CollectionConfigurations", ())
    }


class TestWhatIsAdded:
    @pytest.mark.parametrize(
        ("config", "collections"),
        [
            (rule_configs.class_imbalance, {"labels", "predictions", "training_data"}),
            (rule_configs.confusion, {"labels", "predictions"}),
            (rule_configs.overfit, {"losses"}),
            (rule_configs.overtraining, {"losses"}),
            (rule_configs.saturated_activation, {"tanh_input", "sigmoid_input"}),
            (rule_configs.tree_depth, {"trees", "hyperparameters"}),
            (rule_configs.exploding_tensor, set()),
        ],
    )
    def test_a_rule_whose_configuration_names_no_collection_gets_what_it_needs(
        self, tmp_path: Path, config: Any, collections: set[str]
    ) -> None:
        job = in_folder(tmp_path, Rule.sagemaker(config()))
        assert set(saved(job)) == collections

    def test_what_a_configuration_of_the_original_says_stays(self, tmp_path: Path) -> None:
        rules = (VANISHING, Rule.sagemaker(rule_configs.loss_not_decreasing()))
        every_500 = {"save_interval": "500"}
        assert saved(in_folder(tmp_path, *rules)) == {"gradients": every_500, "losses": every_500}

    def test_what_it_leaves_out_is_added_to_it(self, tmp_path: Path) -> None:
        found = saved(
            in_folder(tmp_path, Rule.sagemaker(rule_configs.poor_weight_initialization()))
        )
        assert list(found) == ["relu_input", "first_steps", "gradients", "losses"]
        assert found["relu_input"]["save_interval"] == "500"
        assert found["first_steps"]["end_step"] == "10"

    def test_the_order_of_what_is_given_decides_alone(self, tmp_path: Path) -> None:
        trees = Rule.sagemaker(rule_configs.tree_depth())
        rates = Rule.custom("LearningRateTooHigh")
        for rules in ((OVERFIT, trees, rates), (rates, trees, OVERFIT)):
            found = saved(in_folder(tmp_path, *rules))
            # The first step is one of every tenth.
            assert found["hyperparameters"]["save_interval"] == "10"
            assert "save_steps" not in found["hyperparameters"]
        assert list(found) == ["weights", "losses", "hyperparameters", "trees"]

    def test_parameters_decide_what_a_rule_needs(self, tmp_path: Path) -> None:
        rule = Rule.sagemaker(
            rule_configs.tensor_variance(),
            rule_parameters={"tensor_regex": ["relu", "tanh"], "max_threshold": 9},
        )
        (name,) = found = saved(in_folder(tmp_path, rule))
        assert found[name]["include_regex"] == "relu,tanh"

    def test_members_of_a_request_get_it_too(self, tmp_path: Path) -> None:
        assert saved(in_folder(tmp_path, OVERFIT.to_json())) == {"losses": NEEDED_BY_OVERFIT}

    def test_a_training_is_judged_by_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job = in_folder(tmp_path, SATURATED)
        monkeypatch.setenv("STEPWATCH_CONFIG", job.environment["STEPWATCH_CONFIG"])
        hook = Hook.create_from_json_file()
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
        hook.register_module(model)
        model(torch.ones(2, 3)).sum().backward()
        hook.close()
        assert create_trial(job.debug_output).tensor_names(collection="tanh_input")


class TestWhatTheUserSays:
    @pytest.mark.parametrize(
        ("hook", "expected"),
        [
            ({}, NEEDED_BY_OVERFIT),
            ({"collection_configs": [CollectionConfig("losses")]}, NEEDED_BY_OVERFIT),
            (
                {"hook_parameters": {"save_interval": 20}},
                {"save_interval": "20", "eval.save_interval": "10"},
            ),
        ],
    )
    def test_steps_that_nobody_said_are_those_of_the_rule(
        self, tmp_path: Path, hook: dict[str, Any], expected: dict[str, str]
    ) -> None:
        job = in_folder(tmp_path, OVERFIT, **hook)
        assert saved(job)["losses"] == expected
        assert job.warnings == ()

    def test_steps_of_a_collection_count_and_what_a_rule_misses_is_reported(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        said = CollectionConfig("losses", {"save_interval": 1000})
        job = in_folder(tmp_path, OVERFIT, collection_configs=[said])
        assert saved(job)["losses"] == {"save_interval": "1000"}
        warning, of_validation = job.warnings
        assert caplog.messages == [warning, of_validation]
        assert "Overfit" in warning
        assert "one of 1000 steps of mode EVAL" in of_validation
        assert "losses saved every 1000 steps in mode TRAIN, but every 100 are needed" in warning

    def test_more_than_a_rule_needs_is_no_loss(self, tmp_path: Path) -> None:
        said = CollectionConfig("losses", {"save_interval": 1})
        assert in_folder(tmp_path, OVERFIT, collection_configs=[said]).warnings == ()

    def test_values_that_are_not_stored(self, tmp_path: Path) -> None:
        said = CollectionConfig("tanh_input", {"reductions": "l2", "save_interval": 10})
        job = in_folder(tmp_path, SATURATED, collection_configs=[said])
        assert saved(job)["tanh_input"]["reductions"] == "l2"
        (warning,) = job.warnings
        assert "SaturatedActivation" in warning
        assert "save_raw_tensor" in warning

    def test_values_are_stored_for_a_rule_where_the_hook_stores_none(self, tmp_path: Path) -> None:
        rule = Rule.sagemaker(rule_configs.weight_update_ratio())
        found = saved(in_folder(tmp_path, rule, hook_parameters={"save_raw_tensor": False}))
        assert found["weights"] == {"save_interval": "500", "save_raw_tensor": "True"}

    def test_a_range_that_ends_before_the_first_steps(self, tmp_path: Path) -> None:
        rule = Rule.sagemaker(rule_configs.poor_weight_initialization())
        job = in_folder(tmp_path, rule, hook_parameters={"start_step": 100})
        assert "first_steps" not in saved(job)
        (warning,) = job.warnings
        assert "PoorWeightInitialization" in warning
        assert "first_steps at no step" in warning

    @pytest.mark.parametrize(
        "hook",
        [
            {"hook_parameters": {"dry_run": True}},
            {"hook_parameters": {"end_step": 0}},
            {"collection_configs": [CollectionConfig("losses", {"end_step": 0})]},
        ],
    )
    def test_a_rule_for_which_nothing_is_saved_is_refused(
        self, tmp_path: Path, hook: dict[str, Any]
    ) -> None:
        with pytest.raises(ValueError, match=r"Overfit cannot be evaluated.*remove"):
            in_folder(tmp_path, OVERFIT, **hook)
        assert not list(tmp_path.iterdir())

    def test_a_range_without_a_step_of_the_interval_is_refused(self, tmp_path: Path) -> None:
        bounds = {"start_step": 100, "end_step": 200}
        with pytest.raises(ValueError, match=r"VanishingGradient.*gradients at no step \(no"):
            in_folder(tmp_path, VANISHING, hook_parameters=bounds)
        listed = {**bounds, "save_steps": "7"}
        assert saved(in_folder(tmp_path, VANISHING, hook_parameters=listed))

    def test_a_rule_that_judges_no_step_that_is_saved(self, tmp_path: Path) -> None:
        bounds = {"start_step": 100, "end_step": 200}
        rule = Rule.sagemaker(rule_configs.vanishing_gradient(), rule_parameters=bounds)
        (warning,) = in_folder(tmp_path, rule).warnings
        assert "VanishingGradient probably evaluates no step" in warning
        assert "step from 100 to before 200" in warning
        often = [CollectionConfig("gradients", {"save_interval": 60})]
        rule = Rule.sagemaker(
            rule_configs.vanishing_gradient(), rule_parameters=bounds, collections_to_save=often
        )
        assert in_folder(tmp_path, rule).warnings == ()


class TestShortTrainings:
    def test_rules_that_would_see_one_step_are_reported_in_one_line(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        initial = Rule.sagemaker(rule_configs.poor_weight_initialization())
        job = in_folder(tmp_path, VANISHING, OVERFIT, initial, SATURATED)
        (warning,) = job.warnings
        assert caplog.messages == [warning]
        assert "VanishingGradient (every 500), SaturatedActivation (every 500);" in warning
        assert "collections_to_save" in warning

    def test_more_steps_are_asked_for_as_it_says(self, tmp_path: Path) -> None:
        often = [CollectionConfig("gradients", {"save_interval": 5})]
        rule = Rule.sagemaker(rule_configs.vanishing_gradient(), collections_to_save=often)
        job = in_folder(tmp_path, rule)
        assert job.warnings == ()
        assert saved(job) == {"gradients": {"save_interval": "5"}}

    @pytest.mark.parametrize("pattern", [".*weight", "fc[0-9].weight,conv1.*weight"])
    def test_a_collection_of_the_users_own_replaces_the_built_in_one(
        self, tmp_path: Path, pattern: str
    ) -> None:
        own = CollectionConfig("mine", {"include_regex": pattern, "save_interval": 2})
        rule = Rule.sagemaker(rule_configs.weight_update_ratio(), collections_to_save=[own])
        job = in_folder(tmp_path, rule, hook_parameters={"save_raw_tensor": False})
        assert job.warnings == ()
        assert saved(job) == {"mine": {**own.parameters, "save_raw_tensor": "True"}}

    def test_steps_of_a_collection_with_other_tensors_count(self, tmp_path: Path) -> None:
        own = [CollectionConfig("mine", {"include_regex": "fc", "save_interval": 2})]
        rule = Rule.sagemaker(rule_configs.vanishing_gradient(), collections_to_save=own)
        job = in_folder(tmp_path, rule)
        assert job.warnings == ()
        assert set(saved(job)) == {"mine", "gradients"}


class TestNames:
    @pytest.mark.parametrize(
        ("name", "meant"), [("gradient", "gradients"), ("tahn_input", "tanh_input")]
    )
    def test_a_name_that_is_nearly_a_built_in_one(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, meant: str
    ) -> None:
        job = in_folder(tmp_path, collection_configs=[CollectionConfig(name)])
        (warning,) = job.warnings
        assert caplog.messages == [warning]
        assert repr(name) in warning
        assert f"did you mean {meant!r}?" in warning

    @pytest.mark.parametrize(
        "collection",
        [
            CollectionConfig("gradient", {"include_regex": "^gradient"}),
            CollectionConfig("gradients"),
            CollectionConfig("my_relus"),
            CollectionConfig("first_steps"),
        ],
    )
    def test_others_are_the_users_own(self, tmp_path: Path, collection: CollectionConfig) -> None:
        assert in_folder(tmp_path, collection_configs=[collection]).warnings == ()


@given(
    st.dictionaries(st.sampled_from(["start_step", "end_step"]), st.integers(0, 60)),
    st.integers(1, 25),
    st.lists(st.integers(0, 60), max_size=2),
    st.tuples(st.integers(0, 60), st.integers(0, 90)),
)
def test_steps_are_known_to_be_saved_as_the_hook_saves_them(
    bounds: dict[str, int], interval: int, listed: list[int], looked_at: tuple[int, int]
) -> None:
    if bounds.get("start_step", 0) >= bounds.get("end_step", 99):
        bounds = {"end_step": 0}
    config = SaveConfigMode(save_interval=interval, save_steps=listed, **bounds)
    said = {"save_interval": str(interval), **{key: str(step) for key, step in bounds.items()}}
    if listed:
        said["save_steps"] = ",".join(map(str, listed))
    steps = SaveSteps.of(said, {}, "train")
    assert steps.is_any_of(*looked_at) == any(map(config.should_save_step, range(*looked_at)))
    assert steps.is_any == any(map(config.should_save_step, range(90)))


def needs_of_every_rule() -> list[RuleNeeds]:
    found = []
    for name in available_rules():
        try:
            found.append(RuleNeeds.of(Rule.custom(name), create_rule(name)))
        except ParameterError:
            continue  # it has to be told what to look at
    return found


EVERY_RULE = needs_of_every_rule()
INTERVALS = st.integers(1, 2000).map(str)
STEPS = st.dictionaries(
    st.sampled_from(["save_interval", "train.save_interval", "eval.save_interval"]), INTERVALS
)
FORM = st.dictionaries(st.sampled_from(["save_raw_tensor", "save_histogram"]), st.just("False"))
SAID = st.dictionaries(
    st.sampled_from(["losses", "gradients", "weights", "tanh_input", "mine"]),
    st.builds(lambda steps, form: {**steps, **form}, STEPS, FORM),
)


@given(st.permutations(EVERY_RULE).map(lambda rules: rules[:8]), STEPS, SAID)
def test_whatever_is_asked_for_the_hook_takes_and_the_user_gets_what_they_said(
    rules: Sequence[RuleNeeds], hook: dict[str, str], said: dict[str, dict[str, str]]
) -> None:
    named = [CollectionConfig(name, parameters) for name, parameters in said.items()]
    given_hook = DebuggerHookConfig("s3://bucket/x", None, hook, named)
    found, warnings = saved_for_rules(given_hook, rules)
    document = {"DebugHookConfig": found.to_json()}
    parse_hook_configuration(ConfigurationFile(document, "stepwatch.json", is_own=True))
    by_name = {each.name: dict(each.parameters) for each in found.collection_configs or ()}
    for name, parameters in said.items():
        assert parameters.items() <= by_name[name].items()
    assert {each.name for rule in rules for each in rule.collections} <= set(by_name)
    again, _ = saved_for_rules(given_hook, list(reversed(rules)))
    assert {each.name: dict(each.parameters) for each in again.collection_configs or ()} == by_name
    assert len(set(warnings)) == len(warnings)


class TestValidation:
    """Rules that compare with losses of validation see none where hardly an EVAL step is saved."""

    def warnings_of(self, folder: Path, **losses: object) -> tuple[str, ...]:
        steps = {key.replace("__", "."): value for key, value in losses.items()}
        job = in_folder(folder, OVERFIT, collection_configs=[CollectionConfig("losses", steps)])
        return job.warnings

    @pytest.mark.parametrize(
        ("losses", "reported"),
        [
            ({"train__save_interval": 10, "eval__save_interval": 500}, "one of 500 steps"),
            ({"train__save_interval": 10}, "one of 500 steps"),  # the hook's own interval
            ({"save_interval": 10, "eval__end_step": 5}, "1 step"),
            ({"save_interval": 10, "eval__start_step": 1, "eval__end_step": 9}, "no step"),
        ],
    )
    def test_a_rule_that_would_see_none_is_reported(
        self, tmp_path: Path, losses: dict[str, object], reported: str
    ) -> None:
        (warning,) = self.warnings_of(tmp_path, **losses)
        assert warning.startswith("Overfit probably cannot be evaluated")
        assert f"the hook saves losses at {reported} of mode EVAL" in warning
        assert "give losses eval.save_interval=10" in warning

    @pytest.mark.parametrize(
        "losses",
        [
            {"save_interval": 10},
            {"train__save_interval": 10, "eval__save_interval": 10},
            {"train__save_interval": 10, "eval__save_steps": "0,40,80"},
            {"save_interval": 10, "train__end_step": 5},
        ],
    )
    def test_a_rule_that_sees_some_is_told_of_nothing(
        self, tmp_path: Path, losses: dict[str, object]
    ) -> None:
        assert not [each for each in self.warnings_of(tmp_path, **losses) if "EVAL" in each]

    def test_steps_of_the_rules_own_configuration_are_looked_at_too(self, tmp_path: Path) -> None:
        own = [CollectionConfig("losses", {"train.save_interval": 10, "eval.save_interval": 200})]
        rule = Rule.sagemaker(rule_configs.overfit(), collections_to_save=own)
        (warning,) = in_folder(tmp_path, rule).warnings
        assert "one of 200 steps of mode EVAL" in warning

    def test_of_a_pack_those_rules_are_named_that_need_validation(self, tmp_path: Path) -> None:
        said = CollectionConfig("losses", {"train.save_interval": 10})
        hook = DebuggerHookConfig(collection_configs=[said])
        job = prepare(job_name="job", output_path=tmp_path, rules="recommended", hook_config=hook)
        (warning,) = job.warnings
        assert warning.startswith(
            "GeneralisationGap, SuspiciouslyGood probably cannot be evaluated"
        )
        assert "eval.save_interval=1" in warning
