"""The packs of rules judge what the hook for MXNet saves when it is configured for them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hook_layer.mxnet as smd
from rule_runtime.configuration.packs import PACKS
from rule_runtime.engine.evaluator import Evaluation
from tests.frameworks.mxnet.scenarios.images import load_images
from tests.frameworks.mxnet.scenarios.network import BATCH_SIZE, Training, batches
from tests.frameworks.stored_views import views_of

NUM_STEPS = 40
NEED_SOMETHING_ELSE = {
    "original": {
        "ClassImbalance",  # labels and predictions, which the script saves
        "Confusion",
        "FeatureImportanceOverweight",  # XGBoost
        "NLPSequenceRatio",  # texts
        "SaturatedActivation",  # tanh or sigmoid layers
        "TreeDepth",  # XGBoost
    },
    "recommended": {
        "ClassImbalance",
        "IneffectiveSteps",  # counts of the hook for PyTorch
        "InitialLossMismatch",  # these know losses and layers by PyTorch's names
        "InputStatistics",  # no model is known by its name
        "LabelDegenerate",
        "LossInputMismatch",  # values of what losses compare
        "MissingActivation",
        "PoorWeightInitialization",
        "SuspiciouslyGood",  # as InputStatistics
        "WorseThanGuessing",
        "PlateauedLoss",  # more steps
        "ReplicaDivergence",  # more than one worker
        "SaturatedActivation",
        "TrainingLoop",  # counts of the hook for PyTorch
    },
}


def train(folder: Path, pack: str) -> Path:
    """Train with a hook that a file configures for a pack, and return where it wrote."""
    collections = PACKS[pack].with_interval(1).collections()
    configuration = {
        "LocalPath": str(folder / "trial"),
        "CollectionConfigurations": [
            {"CollectionName": of.name, "CollectionParameters": dict(of.parameters)}
            for of in collections
        ],
    }
    (folder / "hook.json").write_text(json.dumps(configuration))
    hook = smd.Hook.create_from_json_file(folder / "hook.json")
    training = Training()
    hook.register_block(training.net)
    hook.register_block(training.loss)
    images, labels = load_images(None, (NUM_STEPS + 4) * BATCH_SIZE)
    for epoch in range(2):
        hook.set_mode(smd.modes.TRAIN)
        begin = epoch * NUM_STEPS // 2
        for _, inputs, targets in batches(images, labels, begin, begin + NUM_STEPS // 2):
            training.step(inputs, targets)
        hook.set_mode(smd.modes.EVAL)
        for _, inputs, targets in batches(images, labels, NUM_STEPS, NUM_STEPS + 4):
            training.loss(training.net(inputs), targets)
    hook.close()
    assert hook.report().errors == {}
    return folder / "trial"


@pytest.mark.parametrize("pack", ["original", "recommended"])
def test_all_rules_that_can_judge_do(tmp_path: Path, pack: str) -> None:
    path = train(tmp_path, pack)
    rules = PACKS[pack].rules()
    evaluations = {name: Evaluation.fresh(rule) for name, rule in rules.items()}
    for view in views_of(path):
        for evaluation in evaluations.values():
            evaluation.feed(view)
    unjudged = {
        name: e.counts.last_reason
        for name, e in evaluations.items()
        if not (e.counts.evaluated or e.counts.is_undecided)
    }
    assert unjudged.keys() <= NEED_SOMETHING_ELSE[pack], unjudged
    assert not [name for name, e in evaluations.items() if e.counts.failure]
    found = {name for name, e in evaluations.items() if e.evidence}
    if pack == "recommended":  # it is a training that learns
        assert not found
