"""Maps names of the original to those of Stepwatch, without imports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from rule_runtime.trial import errors

__all__ = ["INTERNAL", "MODULES", "Home"]


class Home(NamedTuple):
    """The module of a name in Stepwatch, and the package that it requires."""

    module: str
    attribute: str
    framework: str = ""


Names = dict[str, Home]


def _of(module: str, *names: str, framework: str = "", **renamed: str) -> Names:
    same = {name: Home(module, name, framework) for name in names}
    return same | {name: Home(module, there, framework) for name, there in renamed.items()}


_PARTS: Final = "rule_runtime.smdebug_alias.parts"
_FILES: Final = "rule_runtime.smdebug_alias.files"
_COLLECTIONS: Final = "hook_layer.configuration.collections"
_OPENING: Final = "rule_runtime.trial.opening"

_MODES: Final = _of("hook_layer.format.modes", modes="ModeKeys")
_COMMON: Final = {
    **_MODES,
    **_of(_COLLECTIONS, "CollectionKeys"),
    **_of("hook_layer.configuration.save_config", "SaveConfig", "SaveConfigMode"),
}
_REDUCTION_CONFIG: Final = _of("hook_layer.capture.reductions", "ReductionConfig")
_CREATE_TRIAL: Final = _of(_PARTS, "create_trial")
_SINGLETON: Final = ("del_hook", "get_hook", "set_hook")
_TRIAL_ERRORS: Final = _of(
    "rule_runtime.trial.errors",
    *(name for name in errors.__all__ if name not in ("CollectionUnavailable", "TrialError")),
    SMDebugError="TrialError",
)
_RULE: Final = _of("rule_runtime.custom_rules.smdebug_rule", "Rule")
_INVOKER: Final = _of("rule_runtime.custom_rules.smdebug_rule", "invoke_rule")
_REQUIRED: Final = _of(
    "rule_runtime.custom_rules.required_tensors", "RequiredTensors", "RequiredTensorsForTrial"
)
_ACTIONS: Final = _of("rule_runtime.custom_rules.rule_actions", "Actions")
_TRIALS: Final = {
    **_CREATE_TRIAL,
    **_of("rule_runtime.trial.trial", "Trial"),
    **_of(_OPENING, "LocalTrial", "S3Trial"),
}
_RULE_CONFIGS: Final = _of(
    "rule_runtime.configuration.rule_configs",
    "all_zero",
    "check_input_images",
    "class_imbalance",
    "confusion",
    "create_xgboost_report",
    "dead_relu",
    "exploding_tensor",
    "feature_importance_overweight",
    "loss_not_decreasing",
    "nlp_sequence_ratio",
    "overfit",
    "overtraining",
    "poor_weight_initialization",
    "saturated_activation",
    "similar_across_runs",
    "stalled_training_rule",
    "tensor_variance",
    "tree_depth",
    "unchanged_tensor",
    "vanishing_gradient",
    "weight_update_ratio",
)
_GET_COLLECTION: Final = _of("rule_runtime.configuration.rule_configs", "get_collection")
_CONFIG_ACTIONS: Final = _of(
    "rule_runtime.configuration.actions",
    *("SMS", "ActionList", "Email", "StopTraining", "is_valid_action_object"),
)


def _framework(name: str, package: str, **hooks: Names) -> dict[str, Names]:
    """Return a framework's modules; only hooks and functions for its modules need the framework.

    `hooks` are the names of its hooks by submodule; by default `Hook`.
    """
    home = f"hook_layer.{name}"
    modules = hooks or {"hook": _of(home, "Hook", framework=package)}
    singleton = _of(home, *_SINGLETON, framework=package)
    if package in ("torch", "mxnet"):
        collection = _of(home, "Collection", framework=package)
    else:
        collection = _of(_COLLECTIONS, "Collection")
    own = {key: value for names in modules.values() for key, value in names.items()}
    reductions = {} if name == "xgboost" else _REDUCTION_CONFIG
    root = f"smdebug.{name}"
    return {
        root: {**_COMMON, **reductions, **_CREATE_TRIAL, **singleton, **collection, **own},
        f"{root}.collection": {**collection, **_of(_COLLECTIONS, "CollectionKeys")},
        f"{root}.singleton_utils": singleton,
        **{f"{root}.{module}": names for module, names in modules.items()},
    }


MODULES: Final[Mapping[str, Names]] = {
    "smdebug": {**_COMMON, **_REDUCTION_CONFIG, **_of(_PARTS, __version__="VERSION")},
    "smdebug.exceptions": {
        **_TRIAL_ERRORS,
        **_of(
            "rule_runtime.custom_rules.errors",
            "InsufficientInformationForRuleInvocation",
            "NoMoreProfilerData",
            "RuleEvaluationConditionMet",
        ),
        **_of(
            _PARTS,
            "SMDebugCustomerError",
            "SMDebugRuntimeError",
            "SMDebugTypeError",
        ),
        **_MODES,
    },
    "smdebug.trials": _TRIALS,
    "smdebug.trials.trial": _of("rule_runtime.trial.trial", "Trial"),
    "smdebug.trials.local_trial": _of(_OPENING, "LocalTrial"),
    "smdebug.trials.s3_trial": _of(_OPENING, "S3Trial"),
    "smdebug.trials.utils": _CREATE_TRIAL,
    "smdebug.rules": {**_RULE, **_INVOKER, **_REQUIRED},
    "smdebug.rules.rule": _RULE,
    "smdebug.rules.rule_invoker": _INVOKER,
    "smdebug.rules.req_tensors": _REQUIRED,
    "smdebug.rules.required_tensors": _REQUIRED,
    "smdebug.rules.action": _ACTIONS,
    "smdebug.rules.action.action": _ACTIONS,
    "smdebug.rules.action.message_action": _of(
        "rule_runtime.custom_rules.rule_actions", "MessageAction"
    ),
    "smdebug.rules.action.stop_training_action": _of(
        "rule_runtime.custom_rules.rule_actions", "StopTrainingAction"
    ),
    "smdebug.analysis": {},
    "smdebug.analysis.utils": {
        **_of("rule_runtime.trial.refreshing", "no_refresh", "refresh"),
        **_of(_PARTS, "parse_bool", "parse_list_from_str"),
    },
    "smdebug.core": {},
    "smdebug.core.access_layer": _of(_PARTS, "has_training_ended", "training_has_ended"),
    "smdebug.core.access_layer.utils": _of(
        _PARTS, "END_OF_JOB_FILENAME", "has_training_ended", "training_has_ended"
    ),
    "smdebug.core.collection": _of(_COLLECTIONS, "Collection", "CollectionKeys"),
    "smdebug.core.collection_manager": _of(
        "hook_layer.configuration.collection_manager", "CollectionManager"
    ),
    "smdebug.core.config_constants": _of(
        _PARTS,
        "CONFIG_FILE_PATH_ENV_STR",
        "DEFAULT_COLLECTIONS_FILE_NAME",
        "DEFAULT_CONFIG_FILE_PATH",
        "DEFAULT_SAGEMAKER_OUTDIR",
        "DEFAULT_WORKER_NAME",
    ),
    "smdebug.core.index_reader": {},
    "smdebug.core.json_config": _of(_PARTS, "create_hook_from_json_config"),
    "smdebug.core.locations": {},
    "smdebug.core.logger": _of(_PARTS, "get_logger"),
    "smdebug.core.modes": {
        **_of("hook_layer.format.modes", "ModeKeys"),
        **_of(_PARTS, "ALLOWED_MODES", "ALLOWED_MODE_NAMES", "str_to_mode_keys"),
    },
    "smdebug.core.reader": _of(_FILES, "FileReader"),
    "smdebug.core.reduction_config": _REDUCTION_CONFIG,
    "smdebug.core.save_config": _of(
        "hook_layer.configuration.save_config", "SaveConfig", "SaveConfigMode"
    ),
    "smdebug.core.state_store": {},
    "smdebug.core.tensor": {
        **_of("rule_runtime.trial.tensor", "Tensor"),
        **_of("rule_runtime.trial.tensor_steps", "StepState"),
    },
    "smdebug.core.utils": _of(_PARTS, "get_path_to_collections", "is_s3"),
    "smdebug.core.writer": _of(_FILES, "FileWriter"),
    **_framework("pytorch", "torch"),
    **_framework("xgboost", "xgboost"),
    **_framework("mxnet", "mxnet"),
    **_framework(
        "tensorflow",
        "tensorflow",
        keras=_of("hook_layer.keras", "KerasHook", framework="tensorflow"),
        session=_of(
            "hook_layer.tensorflow", "EstimatorHook", "SessionHook", framework="tensorflow"
        ),
    ),
    "smdebug_rulesconfig": {**_RULE_CONFIGS, **_GET_COLLECTION, **_CONFIG_ACTIONS},
    "smdebug_rulesconfig.actions": {},
    "smdebug_rulesconfig.actions.actions": _CONFIG_ACTIONS,
    "smdebug_rulesconfig.debugger_rules": {},
    "smdebug_rulesconfig.debugger_rules._collections": _GET_COLLECTION,
    "smdebug_rulesconfig.debugger_rules.builtin_rules": _RULE_CONFIGS,
}
"""The original's modules, with the Stepwatch module of each name."""

INTERNAL: Final[Mapping[str, frozenset[str]]] = {
    "smdebug.core.index_reader": frozenset({"IndexReader", "LocalIndexReader", "S3IndexReader"}),
    "smdebug.core.locations": frozenset(
        {"IndexFileLocationUtils", "TensorFileLocation", "TensorLocation", "TensorShape"}
    ),
    "smdebug.core.state_store": frozenset({"StateStore"}),
}
"""Names of modules that can be imported although Stepwatch has no replacement."""
