"""Settings: every mistake in one message, text and JSON read alike."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra import rule_settings
from infra.config import BOUNDARY, ConfigurationError, StepwatchConfig
from infra.custom_rule_settings import CustomRuleFile
from infra.rule_settings import RuleCheckError
from rule_runtime.configuration.packs import PACKS
from rule_runtime.engine.registry import available_rules

MINE = {"mine.py": "ab" * 32}


def read(**settings: Any) -> StepwatchConfig:
    given = {"rules": ["VanishingGradient"], **settings}
    context = {f"stepwatch:{key}": value for key, value in given.items()}
    return StepwatchConfig.from_context(context)


def mistakes(**settings: Any) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        read(**settings)
    return caught.value.mistakes


def test_all_mistakes_stand_in_one_message() -> None:
    context = {
        "stepwatch:stage": "Not A Stage",
        "stepwatch:stop_polcy": "stop",
        "stepwatch:retention_days": "8",
        "stepwatch:batch_size": "many",
        "stepwatch:rules": {"a b": {}, "X": {"rule_to_invoke": "VanishingGradeint", "t": [1]}},
        "stop_rules": "X",
    }
    with pytest.raises(ConfigurationError) as caught:
        StepwatchConfig.from_context(context)
    message = str(caught.value)
    assert message.startswith("9 mistakes in the settings")
    assert "stepwatch:stage = 'Not A Stage': allowed: at most 20 lower-case letters" in message
    assert "did you mean stepwatch:stop_policy?" in message
    assert "stepwatch:retention_days = '8': allowed: 1, 3, 5, 7, 14" in message
    assert "nearest: 7\n" in message
    assert "stepwatch:batch_size = 'many': allowed: a whole number from 1 to 10000" in message
    assert "stepwatch:rules.a b = 'a b': allowed: a name of at most 64" in message
    assert "rules.X.rule_to_invoke = 'VanishingGradeint'" in message
    assert "nearest: VanishingGradient" in message
    assert "stepwatch:rules.X.t = [1]: allowed: text, a number, true or false" in message
    assert "stop_rules = 'X': unknown key" in message
    assert "did you mean stepwatch:stop_rules?" in message
    assert "stepwatch:max_silence_s" not in message, "a table has all keys, a message the nearest"


def test_a_key_that_is_like_no_other_is_reported_where_all_are() -> None:
    (mistake,) = mistakes(quux="1")
    assert mistake == (
        "stepwatch:quux = '1': unknown key; docs/reference/stack.md lists all settings"
    )


@pytest.mark.parametrize("boundary", ['{"name": "Boundary"}', "Boundary", {"nam": "Boundary"}])
def test_a_boundary_that_cdk_would_leave_out_is_a_mistake(boundary: Any) -> None:
    context = {"stepwatch:rules": ["VanishingGradient"], BOUNDARY: boundary}
    with pytest.raises(ConfigurationError, match=r"in cdk\.json; -c gives text, not an object"):
        StepwatchConfig.from_context(context)


def test_defaults() -> None:
    config = read()
    assert config.stack_name == "Stepwatch-dev"
    assert (config.architecture, config.stop_policy, config.stop_rules) == ("arm64", "opt_in", ())


@pytest.mark.parametrize(
    "rules",
    [
        {"VanishingGradient": {"threshold": 1e-06}, "fast": {"rule_to_invoke": "ExplodingTensor"}},
        '{"VanishingGradient": {"threshold": 1e-06}, "fast": {"rule_to_invoke":"ExplodingTensor"}}',
        [
            {
                "RuleConfigurationName": "VanishingGradient",
                "RuleParameters": {"threshold": "1e-06"},
            },
            {
                "RuleConfigurationName": "fast",
                "RuleParameters": {"rule_to_invoke": "ExplodingTensor"},
            },
        ],
    ],
)
def test_rules_are_read_from_each_form(rules: Any) -> None:
    first, second = read(rules=rules).rules
    assert (first.name, first.rule_to_invoke) == ("VanishingGradient", "VanishingGradient")
    assert first.parameters == {"threshold": "1e-06"}
    assert (second.name, second.rule_to_invoke) == ("fast", "ExplodingTensor")
    assert second.environment_value() == '{"rule_to_invoke": "ExplodingTensor"}'


def test_names_can_be_typed_with_commas() -> None:
    config = read(rules="VanishingGradient,ExplodingTensor", stop_rules="ExplodingTensor")
    assert [rule.name for rule in config.rules] == ["VanishingGradient", "ExplodingTensor"]
    assert config.stop_rules == ("ExplodingTensor",)


@pytest.mark.parametrize("given", [MINE, json.dumps(MINE), {"mine.py": "AB" * 32}])
def test_files_of_rules_are_read_from_each_form(given: Any) -> None:
    config = read(custom_rules=given, custom_rule_bucket="my.rules")
    assert config.custom_rules == (CustomRuleFile("mine.py", "ab" * 32),)
    assert config.custom_rule_bucket == "my.rules"
    assert read(custom_rules="").custom_rules == ()


@pytest.mark.parametrize(("text", "value"), [("true", True), ("FALSE", False), (False, False)])
def test_flags_are_read_from_text(text: Any, value: bool) -> None:
    assert read(per_job_rules=text).per_job_rules is value


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"rules": []}, "at least one rule"),
        ({"rules": 3}, "an object of rule configuration names"),
        (
            {"rules": ["VanishingGradient", "VanishingGradient"]},
            "each rule configuration name once",
        ),
        ({"stop_rules": ["VanishingGradeint"]}, "nearest: VanishingGradient"),
        ({"stop_policy": "Observe"}, "nearest: observe"),
        ({"stop_policy": "stop"}, "= 'stop': allowed: opt_in, observe, watched, all"),
        ({"data_retention": "keep"}, "= 'keep': allowed: retain, destroy"),
        ({"batch_size": "11", "batching_window_s": "0"}, "at least 1 with a stepwatch:batch_size"),
        ({"evaluator_timeout_s": True}, "a whole number from 1 to 900"),
        ({"evaluator_timeout_s": 1.5}, "a whole number from 1 to 900"),
        ({"evaluator_memory_mb": 64}, "a whole number from 128 to 10240"),
        ({"tensor_bucket_name": "My_Bucket"}, "3 to 63 lower-case letters"),
        ({"tensor_buckets": ["ok-bucket", "X"]}, "stepwatch:tensor_buckets = 'X': allowed: names"),
        ({"tensor_buckets": ["twice", "twice"]}, "= 'twice': allowed: each once"),
        (
            {"new_tensor_buckets": ["one-bucket"], "tensor_buckets": ["one-bucket"]},
            "stepwatch:tensor_buckets = 'one-bucket': allowed: names that no other setting lists",
        ),
        (
            {"tensor_bucket_name": "one-bucket", "new_tensor_buckets": ["one-bucket"]},
            "stepwatch:new_tensor_buckets = 'one-bucket': allowed: names that no other",
        ),
        ({"alert_emails": "somebody"}, "addresses such as name@example.com"),
        ({"notify_statuses": "IssuesFound,Fine"}, "= 'Fine': allowed: IssuesFound, NoIssuesFound"),
        ({"notify_statuses": ""}, "at least 1 of IssuesFound"),
        ({"kms_key_arn": "alias/mine"}, "the ARN of a key, arn:aws:kms"),
        ({"encryption": "KMS"}, "nearest: kms"),
        ({"stop_platforms": ["batch", "local"]}, "= 'local': allowed: batch, ecs"),
        ({"stop_observed_rules": "NonFinite"}, "allowed: the configured rules VanishingGradient"),
        ({"per_job_rules": "some"}, "true or false"),
        ({"custom_rules": "mine.py"}, "an object of keys and their SHA-256"),
        ({"custom_rules": ["mine.py"]}, "an object of keys and their SHA-256"),
        ({"custom_rules": {"mine.py": "ab"}}, "custom_rules.mine.py = 'ab': allowed: the SHA-256"),
        ({"custom_rules": {"mine.py": None}}, "the SHA-256 of the file, 64 hexadecimal"),
        ({"custom_rules": {"../mine.py": "ab" * 32}}, "the key of a Python file"),
        ({"custom_rules": {"a//mine.py": "ab" * 32}}, "the key of a Python file"),
        ({"custom_rules": {"mine.zip": "ab" * 32}}, "the key of a Python file"),
        (
            {"custom_rules": MINE, "per_job_rules": False},
            "custom_rules = ['mine.py']: allowed: none with stepwatch:per_job_rules = false",
        ),
        (
            {"custom_rules": {f"team/rule-{n}.py": "ab" * 32 for n in range(20)}},
            "put several rules into one file",
        ),
        ({"custom_rule_bucket": "my.rules"}, "nothing without stepwatch:custom_rules"),
        (
            {
                "custom_rules": MINE,
                "custom_rule_bucket": "one-bucket",
                "tensor_buckets": ["one-bucket"],
            },
            "= 'one-bucket': allowed: a bucket that no training process writes to",
        ),
        ({"stop_min_rules": 0}, "a whole number from 1 to 100"),
        ({"stop_confirm_s": 10}, "a whole number from 60 to 86400"),
        ({"max_silence_s": 10}, "a whole number from 300 to"),
        ({"alarms": "none"}, "all, essential"),
        ({"event_schema": "yes"}, "true or false"),
        ({"stop_any_native_job": "true"}, "unknown key"),
        ({"architecture": "host"}, "arm64, x86_64"),
        (
            {"rules": {"LossNotDecreasing": {"use_losses_collection": False}}},
            "LossNotDecreasing = {'use_losses_collection': 'false'}: allowed: parameters that fit",
        ),
        (
            {"rules": ["recommended", {"VanishingGradient": {"patients": 20}}]},
            "stepwatch:rules.VanishingGradient.patients",
        ),
        ({"rules": ["recommended", "original"], "stop_rules": ""}, "allowed: one pack, with rules"),
        ({"rules": ["recommended", {"Overfit": 5}]}, "{'Overfit': 5}: allowed: the name of a pack"),
    ],
)
def test_one_mistake(settings: dict[str, Any], expected: str) -> None:
    (mistake,) = mistakes(**settings)
    assert expected in mistake


def test_missing_rules_are_a_mistake() -> None:
    with pytest.raises(ConfigurationError, match="stepwatch:rules: missing"):
        StepwatchConfig.from_context({})


def test_keys_of_cdk_are_left_alone() -> None:
    context = {
        "stepwatch:rules": ["VanishingGradient"],
        "@aws-cdk/core:newStyleStackSynthesis": True,
        "aws:cdk:enable-path-metadata": True,
        "aws-cdk:enableDiffNoFail": "true",
        "availability-zones:account=1:region=x": ["a"],
    }
    assert StepwatchConfig.from_context(context).stage == "dev"


def test_rules_say_what_is_wrong_with_their_parameters() -> None:
    rules = {
        "VanishingGradient": {"thresold": "1e-7", "threshold": "abc"},
        "slow": {"rule_to_invoke": "LossNotDecreasing", "diff_percent": 500, "mode": "EVL"},
        "ExplodingTensor": {"only_nan": "maybe"},
        "Overfitt": {},
    }
    found = mistakes(rules=rules, batch_size=0, stop_rules=["fast"])
    assert found[0].startswith("stepwatch:batch_size = 0")
    allowed = {
        "ExplodingTensor.only_nan = 'maybe'": "true or false",
        "Overfitt.rule_to_invoke = 'Overfitt'": (
            f"the rules {', '.join(available_rules())}; nearest: Overfit"
        ),
        "VanishingGradient.threshold = 'abc'": "a number, at least 0, in mean of absolute values",
        "VanishingGradient.thresold = '1e-7'": (
            "the parameters threshold, max_share, patience; nearest: threshold"
        ),
        "slow.diff_percent = '500'": "a number, greater than 0, less than 100, in %",
        "slow.mode = 'EVL'": "one of EVAL, TRAIN, PREDICT, GLOBAL, or none; nearest: EVAL",
    }
    expected = [f"stepwatch:rules.{given}: allowed: {text}" for given, text in allowed.items()]
    assert list(found[1:-1]) == expected
    assert found[-1].startswith("stepwatch:stop_rules = 'fast': allowed: the configured rules")


def test_a_pack_is_configured_by_its_name() -> None:
    pack = PACKS["recommended"]
    config = read(rules="recommended")
    assert [rule.name for rule in config.rules] == list(pack.parameters)
    by_name = {rule.name: rule.parameters for rule in config.rules}
    assert by_name["NonFinite"] == {}
    assert by_name["DeadRelu"] == {"threshold_layer": "80.0"}
    assert by_name["StalledTrainingRule"] == {"check_gaps": "false"}
    assert by_name["PoorWeightInitialization"] == {"conditions": "scale,symmetry"}
    assert (config.stop_rules, config.stop_severity) == ((), "fatal")


def test_what_stops_jobs_is_ones_own_choice() -> None:
    named = read(rules="recommended", stop_rules="LossSpike")
    assert (named.stop_rules, named.stop_severity) == (("LossSpike",), "any")
    everything = read(rules="recommended", stop_rules="")
    assert (everything.stop_rules, everything.stop_severity) == ((), "any")
    assert read(rules="recommended", stop_severity="any").stop_severity == "any"
    assert read(rules="recommended", stop_rules="", stop_severity="fatal").stop_severity == "fatal"
    (mistake,) = mistakes(rules="recommended", stop_severity="serious")
    assert "stepwatch:stop_severity = 'serious': allowed: any, fatal" in mistake
    (mistake,) = mistakes(rules="recommended", stop_rules="ExplodingTensor")
    assert "allowed: the configured rules NonFinite, LossDiverging" in mistake


@pytest.mark.parametrize("as_text", [False, True])
def test_a_pack_can_have_other_parameters_and_rules_beside_it(as_text: bool) -> None:
    pack = PACKS["recommended"]
    rules = ["recommended", {"VanishingGradient": {"patience": 20}, "Overfit": {}}, "LossSpike"]
    config = read(rules=json.dumps(rules) if as_text else rules)
    by_name = {rule.name: rule.parameters for rule in config.rules}
    assert by_name.keys() == {*pack.parameters, "Overfit"}
    assert by_name["VanishingGradient"] == {"max_share": "1e-06", "patience": "20"}
    assert by_name["DeadRelu"] == {"threshold_layer": "80.0"}
    assert config.stop_severity == "fatal", "a rule beside it stops none unless that is said"
    assert len(read(rules="recommended,Overfit").rules) == len(pack.parameters) + 1


def test_a_name_of_a_pack_can_be_given_to_another_rule() -> None:
    given = {"DeadRelu": {"rule_to_invoke": "NonFinite"}}
    config = read(rules=["recommended", given])
    (rule,) = [rule for rule in config.rules if rule.name == "DeadRelu"]
    assert (rule.rule_to_invoke, rule.parameters) == ("NonFinite", {})


def test_packs_that_cannot_be_asked_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_settings, "PRINT_PACKS", "raise SystemExit('no packs today')")
    with pytest.raises(RuleCheckError, match="no packs today"):
        read(rules="recommended")


def test_too_many_rules_for_a_functions_environment_are_a_mistake() -> None:
    rules = {f"Rule{number:02}": {"rule_to_invoke": "NonFinite"} for number in range(250)}
    (mistake,) = mistakes(rules=rules)
    assert mistake.startswith("stepwatch:rules = '250 rules': allowed: fewer rules")
    assert "under another stepwatch:stage" in mistake


def test_too_many_buckets_are_a_mistake() -> None:
    names = [f"bucket-{number:02}" for number in range(15)]
    assert read(tensor_buckets=names).tensor_buckets == tuple(names)
    (mistake,) = mistakes(tensor_buckets=[*names, "one-more"])
    assert mistake.startswith("stepwatch:tensor_buckets = '17 buckets': allowed: at most 16")


def test_buckets_and_rules_share_a_functions_environment() -> None:
    rules = {f"Rule{number:02}": {"rule_to_invoke": "NonFinite"} for number in range(200)}
    assert len(read(rules=rules).rules) == 200
    (mistake,) = mistakes(rules=rules, tensor_buckets=[f"{n:063}" for n in range(14)])
    assert mistake.startswith("stepwatch:rules = '200 rules': allowed: fewer rules")


@pytest.mark.parametrize(
    ("tags", "reported"),
    [
        ([{"Key": "aws:team", "Value": "ml"}], "tags: Key = 'aws:team': allowed: 1 to 128 letters"),
        ([{"Key": "team", "Value": "a*"}], "tags: Value = 'a*': allowed: at most 256 letters"),
        ({"team": "ml"}, "tags = {'team': 'ml'}: allowed: a list of "),
        ([{"Key": "team"}], "tags = [{'Key': 'team'}]: allowed: a list of "),
    ],
)
def test_tags_of_the_stack_that_aws_refuses_are_a_mistake(tags: Any, reported: str) -> None:
    context = {"stepwatch:rules": ["VanishingGradient"]}
    with pytest.raises(ConfigurationError) as caught:
        StepwatchConfig.from_context(context, tags)
    assert caught.value.mistakes[0].startswith(reported)
    assert StepwatchConfig.from_context(context, [{"Key": "team", "Value": "ml"}])


def test_lists_are_read_from_json_and_from_text() -> None:
    for given in (["a@example.com", "b@example.org"], "a@example.com, b@example.org"):
        assert read(alert_emails=given).alert_emails == ("a@example.com", "b@example.org")
    assert read(tensor_buckets="").tensor_buckets == ()


@pytest.mark.parametrize(
    ("settings", "retains"),
    [
        ({}, False),
        ({"stage": "dev"}, False),
        ({"stage": "prod"}, True),
        ({"stage": "team-b"}, True),
        ({"stage": "dev", "data_retention": "retain"}, True),
        ({"stage": "prod", "data_retention": "destroy"}, False),
    ],
)
def test_data_outlives_the_stack_unless_the_stage_is_dev(
    settings: dict[str, Any], retains: bool
) -> None:
    assert read(**settings).retains_data is retains


class TestAgreementThatCannotBeReached:
    RULES = ("NonFinite", "LossSpike", "VanishingGradient")

    @pytest.mark.parametrize(
        ("settings", "stopping"),
        [
            ({}, "3 (LossSpike, NonFinite, VanishingGradient)"),
            ({"stop_rules": ["NonFinite", "LossSpike"]}, "2 (LossSpike, NonFinite)"),
            ({"stop_observed_rules": ["NonFinite"]}, "2 (LossSpike, VanishingGradient)"),
            (
                {"stop_rules": ["NonFinite"], "stop_observed_rules": ["NonFinite"]},
                "0 (none)",
            ),
        ],
    )
    def test_is_a_mistake(self, settings: dict[str, Any], stopping: str) -> None:
        (mistake,) = mistakes(rules=list(self.RULES), stop_min_rules=4, **settings)
        assert mistake == (
            "stepwatch:stop_min_rules = 4: allowed: at most the number of rules that may stop "
            f"jobs, {stopping}; or more rules in stepwatch:stop_rules"
        )

    def test_counts_the_rules_of_a_pack_that_stop_jobs(self) -> None:
        stops = len(PACKS["recommended"].parameters)
        assert read(rules="recommended", stop_min_rules=stops).stop_min_rules == stops
        (mistake,) = mistakes(rules="recommended", stop_min_rules=stops + 1)
        assert f"jobs, {stops} (" in mistake

    def test_does_not_matter_where_no_job_is_stopped(self) -> None:
        assert read(stop_min_rules=5, stop_policy="observe").stop_min_rules == 5


@pytest.mark.parametrize(
    "name",
    [
        *("xn--bucket", "sthree-bucket", "amzn-s3-demo-bucket"),
        *("bucket-s3alias", "bucket--ol-s3", "bucket--x-s3", "bucket--table-s3"),
    ],
)
@pytest.mark.parametrize("key", ["tensor_bucket_name", "new_tensor_buckets", "tensor_buckets"])
def test_names_that_s3_keeps_for_itself_are_a_mistake(key: str, name: str) -> None:
    (mistake,) = mistakes(**{key: name if key == "tensor_bucket_name" else [name]})
    assert mistake.startswith(f"stepwatch:{key} = '{name}': allowed: ")
    assert "that do not begin with xn--, sthree-, amzn-s3-demo- or end with -s3alias" in mistake


@pytest.mark.parametrize("name", ["a..bucket", "a.-bucket", "a-.bucket", "192.168.5.4", "a.mrap"])
def test_names_with_dots_that_s3_refuses_are_a_mistake(name: str) -> None:
    (mistake,) = mistakes(tensor_buckets=[name])
    assert f"= '{name}': allowed: names of buckets" in mistake
    assert read(tensor_buckets=["a.b-c.d", "1.2.3"]).tensor_buckets == ("a.b-c.d", "1.2.3")


@pytest.mark.parametrize("tag", ["aws:mine", "AWS:mine", "", " mine", "mine ", "a*", "x" * 129])
def test_tags_that_aws_refuses_are_a_mistake(tag: str) -> None:
    (mistake,) = mistakes(stop_tag=tag)
    assert mistake.startswith(f"stepwatch:stop_tag = {tag!r}: allowed: 1 to 128 letters")
    assert read(stop_tag="team/watched by").stop_tag == "team/watched by"


def test_an_empty_value_lets_every_rule_stop() -> None:
    for empty in ("", [], "[]"):
        assert read(stop_rules=empty).stop_rules == ()


def test_rules_that_cannot_be_asked_are_not_taken_for_valid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rule_settings, "CHECKER", "no_such_module")
    with pytest.raises(RuleCheckError, match="No module named no_such_module"):
        read(rules={"VanishingGradient": {"threshold": "0.125"}})
