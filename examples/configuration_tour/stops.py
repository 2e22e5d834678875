"""The stops of the tour: what each configures, as arguments of `prepare`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from stepwatch.configuration import (
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
        about: What it configures, in one sentence.
        hook_config: What the hook saves; False for no hook.
        rules: The rules.
        tensorboard: Where TensorBoard's files go.
        num_steps: Number of steps, unless a rule stops the run.
    """

    name: str
    about: str
    hook_config: DebuggerHookConfig | Literal[False] | None = None
    rules: Sequence[Rule] = ()
    tensorboard: TensorBoardOutputConfig | None = None
    num_steps: int = NUM_STEPS

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `prepare`."""
        return {
            "hook_config": self.hook_config,
            "rules": self.rules,
            "tensorboard": self.tensorboard,
        }

    def request(self, output_path: str = "s3://my-bucket/output") -> dict[str, Any]:
        """Return the members of CreateTrainingJob for this stop; limits are checked."""
        return DebugConfiguration.of(output_path, **self.arguments()).to_request(self.name)


COLLECTIONS = Stop(
    "collections",
    "Built-in collections and one of your own, each saved at its own steps.",
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
    "Defaults of all collections: at which steps they are saved, and in which form.",
    hook_config=DebuggerHookConfig(
        hook_parameters={
            "save_interval": 30,
            "train.end_step": 100,
            "eval.save_steps": "1,4",
            "eval.end_step": 0,  # and at no others
            "reductions": "mean,abs_max",  # instead of the values
        },
        collection_configs=[
            CollectionConfig("weights"),
            CollectionConfig("gradients", {"train.start_step": 60, "reductions": "l2"}),
        ],
    ),
)
BUILT_IN_RULES = Stop(
    "built-in-rules",
    "Rules of SageMaker Debugger. The hook also saves what they need.",
    hook_config=DebuggerHookConfig(
        # The rule needs every 500th step, as the original does; the smaller interval counts.
        collection_configs=[CollectionConfig("gradients", {"save_interval": 20})]
    ),
    rules=[
        Rule.sagemaker(rule_configs.vanishing_gradient()),
        Rule.sagemaker(rule_configs.exploding_tensor()),
    ],
)
CUSTOMISED_RULES = Stop(
    "customised-rules",
    "Built-in rules with your own names, parameters, collections and actions.",
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
    f"A rule of your own in the file {RULE_FILE.name}. Its action stops training.",
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
    "TensorBoard files next to the tensors: scalars of losses, histograms of the others.",
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
OPTED_OUT = Stop("opted-out", "No hook.", hook_config=False)

STOPS = (
    COLLECTIONS,
    HOOK_PARAMETERS,
    BUILT_IN_RULES,
    CUSTOMISED_RULES,
    CUSTOM_RULE,
    TENSORBOARD,
    OPTED_OUT,
)
