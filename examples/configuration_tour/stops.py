"""The stops of the tour: what is configured at each, as one gives it to `prepare`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rule_runtime.configuration import (
    ActionList,
    CollectionConfig,
    DebugConfiguration,
    DebuggerHookConfig,
    Email,
    Rule,
    StopTraining,
    TensorBoardOutputConfig,
    rule_configs,
)

__all__ = ["NUM_STEPS", "STOPS", "Stop"]

NUM_STEPS = 120
RULE_FILE = Path(__file__).with_name("good_enough.py")


@dataclass(frozen=True)
class Stop:
    """One thing that can be configured.

    Attributes:
        name: Name of the stop, and of its job.
        about: What is configured, in a sentence.
        hook_config: What the hook saves; False for no hook.
        rules: The rules.
        tensorboard: Where TensorBoard's files go.
        num_steps: How many steps are made unless a rule stops them.
    """

    name: str
    about: str
    hook_config: DebuggerHookConfig | Literal[False] | None = None
    rules: Sequence[Rule] = ()
    tensorboard: TensorBoardOutputConfig | None = None
    num_steps: int = NUM_STEPS

    def asked(self) -> dict[str, Any]:
        """Return what is configured, as arguments of `prepare`."""
        return {
            "hook_config": self.hook_config,
            "rules": self.rules,
            "tensorboard": self.tensorboard,
        }

    def request(self, output_path: str = "s3://my-bucket/output") -> dict[str, Any]:
        """Return the members of CreateTrainingJob that say the same, its limits checked."""
        return DebugConfiguration.of(output_path, **self.asked()).to_request(self.name)


COLLECTIONS = Stop(
    "collections",
    "Which tensors: collections that exist, and one of one's own, each at steps of its own.",
    hook_config=DebuggerHookConfig(
        collection_configs=[
            CollectionConfig("weights"),  # at the hook's steps, which are every 500th
            CollectionConfig("losses", {"train.save_interval": 20, "eval.save_interval": 1}),
            CollectionConfig(
                "activations",
                {
                    "include_regex": "relu0_output|fc_output",
                    "train.save_interval": 50,
                    "eval.save_interval": 2,
                },
            ),
        ]
    ),
)
HOOK_PARAMETERS = Stop(
    "hook-parameters",
    "What holds for all collections that do not say otherwise: when, and in which form.",
    hook_config=DebuggerHookConfig(
        hook_parameters={
            "save_interval": 30,
            "train.end_step": 100,
            "eval.save_steps": "1,4",
            "eval.end_step": 0,  # and at no others
            "reductions": "mean,abs_max",  # in place of the values
        },
        collection_configs=[
            CollectionConfig("weights"),
            CollectionConfig("gradients", {"train.start_step": 60, "reductions": "l2"}),
        ],
    ),
)
BUILT_IN_RULES = Stop(
    "built-in-rules",
    "Rules of SageMaker Debugger as they are: what they need is merged into what the hook saves.",
    hook_config=DebuggerHookConfig(
        # The rule asks for every 500th step, as the original does; the smaller interval counts.
        collection_configs=[CollectionConfig("gradients", {"save_interval": 20})]
    ),
    rules=[
        Rule.sagemaker(rule_configs.vanishing_gradient()),
        Rule.sagemaker(rule_configs.exploding_tensor()),
    ],
)
CUSTOMISED_RULES = Stop(
    "customised-rules",
    "Built-in rules with names, parameters, collections and actions of one's own.",
    rules=[
        Rule.sagemaker(
            rule_configs.vanishing_gradient(),
            name="small gradients",
            rule_parameters={"threshold": 0.01},
            collections_to_save=[CollectionConfig("gradients", {"train.save_interval": 10})],
        ),
        Rule.sagemaker(
            rule_configs.loss_not_decreasing(),
            name="held-out loss",
            rule_parameters={"mode": "EVAL", "num_steps": 2, "diff_percent": 1},
            collections_to_save=[CollectionConfig("losses", {"eval.save_interval": 1})],
            actions=ActionList(Email("me@example.com"), StopTraining()),
        ),
    ],
)
CUSTOM_RULE = Stop(
    "custom-rule",
    f"A rule of one's own, in the file {RULE_FILE.name}; its action ends the training.",
    hook_config=DebuggerHookConfig(hook_parameters={"stop_poll_s": 0.1}),
    rules=[
        Rule.custom(
            "good enough",
            source=str(RULE_FILE),
            rule_to_invoke="GoodEnough",
            rule_parameters={"bound": 0.7},
            collections_to_save=[CollectionConfig("losses", {"eval.save_interval": 1})],
            actions=StopTraining(),
        )
    ],
    num_steps=100_000,  # so many that it cannot end by itself before it is stopped
)
TENSORBOARD = Stop(
    "tensorboard",
    "TensorBoard's files beside the tensors: scalars of losses, histograms of the rest.",
    hook_config=DebuggerHookConfig(
        hook_parameters={"save_interval": 20},
        collection_configs=[
            CollectionConfig("losses"),
            CollectionConfig("weights", {"save_histogram": True}),
            CollectionConfig("gradients", {"save_histogram": False}),
        ],
    ),
    tensorboard=TensorBoardOutputConfig(),
)
OPTED_OUT = Stop(
    "opted-out", "No hook at all: the training runs as if there were none.", hook_config=False
)

STOPS = (
    COLLECTIONS,
    HOOK_PARAMETERS,
    BUILT_IN_RULES,
    CUSTOMISED_RULES,
    CUSTOM_RULE,
    TENSORBOARD,
    OPTED_OUT,
)
