"""Prints pairs of JSON: what objects of the SageMaker SDK say, and what ours make of them.

Runs in an environment of one major version of the SDK, with the checkout on the path.
"""

from __future__ import annotations

import copy
import json
import logging
from typing import Any

try:
    from sagemaker.core import debugger as sdk
except ImportError:
    from sagemaker import debugger as sdk

import smdebug_rulesconfig

from rule_runtime import configuration as ours
from rule_runtime.configuration.debug_configuration import DebugConfiguration

JOB = "mnist-7"
OUTPUT = "s3://bucket/output"
NO_CONFIGURATIONS = ("get_collection", "is_valid_action_object")
FUNCTIONS = [
    name for name in ours.rule_configs.__all__ if name.islower() and name not in NO_CONFIGURATIONS
]


def dumped(value: Any) -> str:
    return json.dumps(value)


def rules_of(module: Any, configs: Any, collection: Any) -> dict[str, Any]:
    """Return the same rules by the classes of one library."""
    rules = {name: module.Rule.sagemaker(getattr(configs, name)()) for name in FUNCTIONS}
    rules["named"] = module.Rule.sagemaker(
        configs.loss_not_decreasing(),
        name="slow loss",
        container_local_output_path="/opt/ml/output/rule",
        s3_output_path="s3://bucket/rules",
        other_trials_s3_input_paths=["s3://bucket/one", "s3://bucket/two"],
        rule_parameters={"num_steps": "20"},
        collections_to_save=[collection("losses", {"save_interval": "5"}), collection("weights")],
    )
    rules["stopping"] = module.Rule.sagemaker(
        configs.overtraining(),
        actions=configs.ActionList(
            configs.StopTraining(), configs.Email("me@abc.com"), configs.SMS("+4912")
        ),
    )
    rules["with prefix"] = module.Rule.sagemaker(
        configs.overtraining(), actions=configs.StopTraining("mnist")
    )
    rules["custom"] = module.Rule.custom(
        "mine",
        image_uri="012.dkr.ecr.eu-west-1.amazonaws.com/evaluator:latest",
        instance_type="ml.t3.medium",
        volume_size_in_gb=30,
        source="s3://bucket/mine.py",
        rule_to_invoke="Mine",
        rule_parameters={"threshold": "20"},
        collections_to_save=[collection("custom", {"include_regex": "relu"})],
    )
    rules["image alone"] = module.Rule.custom("image", "image", "ml.m5.large", 1)
    return rules


def rule_pairs() -> dict[str, tuple[str, str, str]]:
    theirs = rules_of(sdk, smdebug_rulesconfig, sdk.CollectionConfig)
    written = rules_of(ours, ours.rule_configs, ours.CollectionConfig)
    pairs = {}
    for name, rule in theirs.items():
        taken = ours_of(copy.deepcopy(rule))
        rule.prepare_actions(JOB)
        pairs[name] = (
            dumped(rule.to_debugger_rule_config_dict()),
            dumped(taken.to_request(JOB)["DebugRuleConfigurations"][0]),
            dumped(written[name].to_json(JOB)),
        )
        assert taken.rules[0].collection_configs == written[name].collection_configs, name
    return pairs


def ours_of(rule: Any) -> DebugConfiguration:
    return DebugConfiguration.of(OUTPUT, rules=[rule])


def hook_pairs() -> dict[str, tuple[str, str, str]]:
    pairs = {}
    for name, make in {
        "all": lambda module: module.DebuggerHookConfig(
            "s3://bucket/x",
            "/opt/ml/output/tensors",
            {"save_interval": "10"},
            [module.CollectionConfig("losses", {"save_interval": "1"})],
        ),
        "collections": lambda module: module.DebuggerHookConfig(
            s3_output_path=OUTPUT, collection_configs=[module.CollectionConfig("b")]
        ),
        "none": lambda module: module.DebuggerHookConfig(s3_output_path=OUTPUT),
    }.items():
        theirs = make(sdk)
        taken = DebugConfiguration.of(OUTPUT, hook_config=theirs).to_request(JOB)
        pairs[name] = (
            dumped(theirs._to_request_dict()),
            dumped(taken["DebugHookConfig"]),
            dumped(make(ours).to_json()),
        )
    board = sdk.TensorBoardOutputConfig("s3://bucket/tb", "/opt/tb")
    taken = DebugConfiguration.of(OUTPUT, tensorboard=board).to_request(JOB)
    pairs["tensorboard"] = (
        dumped(board._to_request_dict()),
        dumped(taken["TensorBoardOutputConfig"]),
        dumped(ours.TensorBoardOutputConfig("s3://bucket/tb", "/opt/tb").to_json()),
    )
    return pairs


def inside_pairs() -> dict[str, tuple[str, str]]:
    """Return JSON of objects of ours that hold the SDK's, and of those that hold ours."""
    pairs = {}
    made = {}
    for which, module, configs in (
        ("theirs", sdk, smdebug_rulesconfig),
        ("ours", ours, ours.rule_configs),
    ):
        mail = configs.Email("me@abc.com")
        collections = [module.CollectionConfig("losses", {"save_interval": "1"})]
        asked = ours.Rule.sagemaker(
            configs.overfit(),
            collections_to_save=collections,
            actions=configs.ActionList(configs.StopTraining()),
        )
        custom = ours.Rule.custom("mine", collections_to_save=collections, actions=mail)
        made[which] = {
            "sagemaker": asked.to_json(JOB),
            "its collections": [each.to_json() for each in asked.collection_configs],
            "custom": custom.to_json(JOB),
            "list": ours.ActionList(configs.StopTraining(), mail, configs.SMS("+4912")).serialize(),
            "hook": ours.DebuggerHookConfig(collection_configs=collections).to_json(),
            "is valid": ours.rule_configs.is_valid_action_object(configs.ActionList(mail)),
        }
    for name, ours_inside in made["ours"].items():
        pairs[name] = dumped(made["theirs"][name]), dumped(ours_inside)
    return pairs


def main() -> None:
    reported = {
        "rules": rule_pairs(),
        "hooks": hook_pairs(),
        "inside": inside_pairs(),
        "variable": refused_variable(),
        "lost": told_of_lost_actions(),
    }
    print(json.dumps(reported))


def told_of_lost_actions() -> list[str]:
    """Return what is told of actions among the parameters, which the SDK leaves out."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("stepwatch").addHandler(handler)
    rule = sdk.Rule.sagemaker(
        smdebug_rulesconfig.overfit(), rule_parameters={"action_json": "stoptraining"}
    )
    taken = ours_of(copy.deepcopy(rule)).to_request(JOB)["DebugRuleConfigurations"][0]
    rule.prepare_actions(JOB)
    assert taken == rule.to_debugger_rule_config_dict()
    return lines


def refused_variable() -> str:
    """Return the message about a value that only a running pipeline knows."""
    try:
        from sagemaker.core.workflow.parameters import ParameterString
    except ImportError:
        from sagemaker.workflow.parameters import ParameterString
    rule = sdk.Rule.custom("mine", "image", "ml.m5.large", 1, rule_parameters={"x": "1"})
    rule.rule_parameters["x"] = ParameterString(name="x")
    try:
        ours_of(rule)
    except ValueError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main()
