"""Watches every step of a training job and stops the job when it goes wrong.

`stepwatch.torch.Hook` captures, `stepwatch.create_trial` reads, `stepwatch.evaluate` evaluates, and
`stepwatch.Rule` is the base class of your own rules. Each name is imported on first use, so
`import stepwatch` needs no framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hook_layer.frameworks import FRAMEWORKS
from hook_layer.lazy_names import lazy_names

__all__ = [
    "AtLeast",
    "AtMost",
    "CollectionConfig",
    "CollectionKeys",
    "DebugConfiguration",
    "DebugJob",
    "DebuggerHookConfig",
    "EvaluationState",
    "Evidence",
    "GreaterThan",
    "HookConfigurationError",
    "IssueFound",
    "LessThan",
    "LocalStore",
    "Memory",
    "Missing",
    "ModeKeys",
    "Needs",
    "NotApplicable",
    "NotEnough",
    "NotEvaluated",
    "Outcome",
    "Pack",
    "ParameterError",
    "Passed",
    "PreparedJob",
    "ReductionConfig",
    "Regex",
    "Rule",
    "RuleStatus",
    "SaveConfig",
    "SaveConfigMode",
    "StepView",
    "StopTraining",
    "TensorBoardOutputConfig",
    "TrainingStoppedError",
    "Trial",
    "TrialError",
    "Unit",
    "__version__",
    "available_rules",
    "collections_for",
    "configuration",
    "create_trial",
    "evaluate",
    "huggingface",
    "job_report",
    "keras",
    "lightning",
    "load_custom_rule",
    "mxnet",
    "prepare",
    "rule_configs",
    "status_details",
    "tensorflow",
    "testing",
    "torch",
    "watch_logging",
    "xgboost",
]

if TYPE_CHECKING:
    from hook_layer import __version__
    from hook_layer.capture.reductions import ReductionConfig
    from hook_layer.configuration.collections import CollectionKeys
    from hook_layer.configuration.save_config import SaveConfig, SaveConfigMode
    from hook_layer.errors import HookConfigurationError, TrainingStoppedError
    from hook_layer.format.modes import ModeKeys
    from hook_layer.logged_scalars.recording import watch_logging
    from hook_layer.storage.local import LocalStore
    from rule_runtime.configuration import rule_configs
    from rule_runtime.configuration.actions import StopTraining
    from rule_runtime.configuration.collection_config import CollectionConfig
    from rule_runtime.configuration.debug_configuration import DebugConfiguration
    from rule_runtime.configuration.hook_config import DebuggerHookConfig, TensorBoardOutputConfig
    from rule_runtime.configuration.named_rules import collections_for
    from rule_runtime.configuration.packs import Pack
    from rule_runtime.custom_rules.loader import load_custom_rule
    from rule_runtime.engine.constraints import (
        AtLeast,
        AtMost,
        GreaterThan,
        LessThan,
        Regex,
        Unit,
    )
    from rule_runtime.engine.needs import Needs
    from rule_runtime.engine.outcome import (
        Evidence,
        IssueFound,
        Missing,
        NotApplicable,
        NotEnough,
        NotEvaluated,
        Outcome,
        Passed,
        RuleStatus,
        status_details,
    )
    from rule_runtime.engine.parameters import ParameterError
    from rule_runtime.engine.registry import available_rules
    from rule_runtime.engine.rule import Memory, Rule
    from rule_runtime.engine.state import EvaluationState
    from rule_runtime.engine.stored_run import evaluate
    from rule_runtime.jobs.debug_job import DebugJob
    from rule_runtime.jobs.job_preparation import prepare
    from rule_runtime.jobs.prepared_job import PreparedJob
    from rule_runtime.reporting.html_report import job_report
    from rule_runtime.trial.errors import TrialError
    from rule_runtime.trial.opening import create_trial
    from rule_runtime.trial.step_view import StepView
    from rule_runtime.trial.trial import Trial
    from stepwatch import (
        configuration,
        huggingface,
        keras,
        lightning,
        mxnet,
        tensorflow,
        testing,
        torch,
        xgboost,
    )
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "__version__": "hook_layer",
            "CollectionKeys": "hook_layer.configuration.collections",
            "HookConfigurationError": "hook_layer.errors",
            "TrainingStoppedError": "hook_layer.errors",
            "ModeKeys": "hook_layer.format.modes",
            "watch_logging": "hook_layer.logged_scalars.recording",
            "ReductionConfig": "hook_layer.capture.reductions",
            "SaveConfig": "hook_layer.configuration.save_config",
            "SaveConfigMode": "hook_layer.configuration.save_config",
            "LocalStore": "hook_layer.storage.local",
            "StopTraining": "rule_runtime.configuration.actions",
            "CollectionConfig": "rule_runtime.configuration.collection_config",
            "collections_for": "rule_runtime.configuration.named_rules",
            "DebugConfiguration": "rule_runtime.configuration.debug_configuration",
            "DebuggerHookConfig": "rule_runtime.configuration.hook_config",
            "TensorBoardOutputConfig": "rule_runtime.configuration.hook_config",
            "Pack": "rule_runtime.configuration.packs",
            "rule_configs": "rule_runtime.configuration.rule_configs:",
            "load_custom_rule": "rule_runtime.custom_rules.loader",
            "AtLeast": "rule_runtime.engine.constraints",
            "AtMost": "rule_runtime.engine.constraints",
            "GreaterThan": "rule_runtime.engine.constraints",
            "LessThan": "rule_runtime.engine.constraints",
            "Regex": "rule_runtime.engine.constraints",
            "Unit": "rule_runtime.engine.constraints",
            "Needs": "rule_runtime.engine.needs",
            "Evidence": "rule_runtime.engine.outcome",
            "IssueFound": "rule_runtime.engine.outcome",
            "Missing": "rule_runtime.engine.outcome",
            "NotApplicable": "rule_runtime.engine.outcome",
            "NotEnough": "rule_runtime.engine.outcome",
            "NotEvaluated": "rule_runtime.engine.outcome",
            "Outcome": "rule_runtime.engine.outcome",
            "Passed": "rule_runtime.engine.outcome",
            "RuleStatus": "rule_runtime.engine.outcome",
            "status_details": "rule_runtime.engine.outcome",
            "ParameterError": "rule_runtime.engine.parameters",
            "available_rules": "rule_runtime.engine.registry",
            "Memory": "rule_runtime.engine.rule",
            "Rule": "rule_runtime.engine.rule",
            "EvaluationState": "rule_runtime.engine.state",
            "evaluate": "rule_runtime.engine.stored_run",
            "DebugJob": "rule_runtime.jobs.debug_job",
            "PreparedJob": "rule_runtime.jobs.prepared_job",
            "prepare": "rule_runtime.jobs.job_preparation",
            "job_report": "rule_runtime.reporting.html_report",
            "TrialError": "rule_runtime.trial.errors",
            "create_trial": "rule_runtime.trial.opening",
            "StepView": "rule_runtime.trial.step_view",
            "Trial": "rule_runtime.trial.trial",
            "configuration": "stepwatch.configuration:",
            "testing": "stepwatch.testing:",
            **{each.extra: f"stepwatch.{each.extra}:" for each in FRAMEWORKS},
        },
    )
