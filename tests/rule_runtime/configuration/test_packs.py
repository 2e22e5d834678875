from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hook_layer.configuration.hook_json import load_hook_configuration
from hook_layer.pytorch import Hook, modes
from rule_runtime import create_trial
from rule_runtime.cli.evaluation import evaluate_run
from rule_runtime.configuration.packs import PACKS, Pack, find_pack
from rule_runtime.engine.registry import available_rules, create_rule
from rule_runtime.rules.vanishing_gradient import VanishingGradient
from rule_runtime.trial.errors import TensorUnavailableForStep
from tests.rule_runtime.recommended_hook import hook_file

NEED_AN_ARGUMENT = {"AllZero", "SimilarAcrossRuns", "TensorVariance", "UnchangedTensor"}
OF_THE_ORIGINAL = {
    "CheckInputImages", "ClassImbalance", "Confusion", "DeadRelu", "ExplodingTensor",
    "FeatureImportanceOverweight", "LossNotDecreasing", "NLPSequenceRatio", "Overfit",
    "Overtraining", "PoorWeightInitialization", "SaturatedActivation", "StalledTrainingRule",
    "TreeDepth", "VanishingGradient", "WeightUpdateRatio",
}  # fmt: skip


def test_the_rules_of_the_original_have_their_defaults() -> None:
    rules = PACKS["original"].rules()
    assert set(rules) == OF_THE_ORIGINAL
    assert not OF_THE_ORIGINAL & NEED_AN_ARGUMENT
    for name, rule in rules.items():
        assert rule == available_rules()[name]()


def test_the_recommended_pack_leaves_out_what_alarms_on_healthy_runs() -> None:
    rules = PACKS["recommended"].rules()
    assert {"NonFinite", "LossDiverging", "DeadOptimizer", "PlateauedLoss"} <= set(rules)
    assert not {"LossNotDecreasing", "Overtraining", "TreeDepth"} & set(rules)
    vanishing = rules["VanishingGradient"]
    assert isinstance(vanishing, VanishingGradient)
    assert (vanishing.max_share, vanishing.patience) == (1e-6, 10)


@pytest.mark.parametrize("name", PACKS)
def test_every_rule_is_named_and_told_apart(name: str) -> None:
    pack = PACKS[name]
    assert pack.name == name
    assert pack.summary.endswith(".")
    assert all(rule in available_rules() for rule in pack.parameters)
    assert {type(rule).__name__ for rule in pack.rules().values()} == set(pack.rules())


def test_what_the_recommended_pack_has_saved() -> None:
    configs = {
        config.name: dict(config.parameters) for config in PACKS["recommended"].collections()
    }
    for name in ("weights", "biases", "gradients"):
        assert configs[name]["save_interval"] == "10"
        assert configs[name]["save_raw_tensor"] == "False"
    assert configs["losses"]["eval.save_interval"] == "1"
    for name in ("relu_output", "tanh_input", "sigmoid_input"):
        assert configs[name]["save_raw_tensor"] == "True"
        assert configs[name]["save_interval"] == "100"
        assert "raw_max_elements" not in configs[name]
    assert {"biases", "labels", "loss_inputs", "module_io"} <= set(configs)


@pytest.mark.parametrize("name", PACKS)
def test_the_hook_takes_what_a_pack_asks_for(name: str, tmp_path: Path) -> None:
    collections = [config.to_json() for config in PACKS[name].collections()]
    text = json.dumps({"S3OutputPath": "s3://b/p", "CollectionConfigurations": collections})
    (tmp_path / "hook.json").write_text(text)
    found = load_hook_configuration(tmp_path / "hook.json")
    assert found is not None
    assert {c.name for c in found.collections} == {c["CollectionName"] for c in collections}


@pytest.mark.parametrize("activation", [torch.nn.ReLU, torch.nn.GELU])
def test_a_training_saves_what_the_recommended_pack_asks_for(
    activation: type[torch.nn.Module], tmp_path: Path
) -> None:
    hook = Hook.create_from_json_file(hook_file(tmp_path))
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), activation(), torch.nn.Linear(3, 2))
    criterion = torch.nn.CrossEntropyLoss()
    hook.register_module(model)
    hook.register_loss(criterion)
    for _ in range(71):
        criterion(model(torch.ones(5, 4)), torch.zeros(5, dtype=torch.long)).backward()
    hook.close()
    trial = create_trial(str(tmp_path / "run"))
    assert trial.steps() == [*range(11), *range(12, 51, 2), 60, 70]
    saved = set(trial.tensor_names())
    weight = "Sequential_0.weight"
    assert {weight, f"gradient/{weight}", "CrossEntropyLoss_output_0", "0_output_0"} <= saved
    with pytest.raises(TensorUnavailableForStep):
        trial.tensor(weight).value(10)
    if activation is torch.nn.ReLU:
        # Values of activations are most of what a run stores: every 100 steps are enough.
        for step in (0, 5, 10, 50):
            assert trial.tensor("1_output_0").value(step).shape == (5, 3)
        for step in (12, 60):
            with pytest.raises(TensorUnavailableForStep):
                trial.tensor("1_output_0").value(step)


def test_validation_does_not_begin_densely(tmp_path: Path) -> None:
    hook = Hook.create_from_json_file(hook_file(tmp_path))
    model = torch.nn.Linear(4, 3)
    hook.register_module(model)
    hook.set_mode(modes.EVAL)
    for _ in range(15):
        model(torch.ones(5, 4))
    hook.close()
    assert create_trial(str(tmp_path / "run")).steps(mode=modes.EVAL) == [0, 10]


def test_an_interval_that_is_given_counts_from_the_first_step() -> None:
    pack = PACKS["recommended"].with_interval(7)
    asked = [config.parameters for config in pack.collections()]
    assert {parameters["save_interval"] for parameters in asked} == {"7"}
    assert not any("save_steps" in key for parameters in asked for key in parameters)


@pytest.mark.parametrize(
    ("activation", "shift", "rule"),
    [(torch.nn.ReLU, -50.0, "DeadRelu"), (torch.nn.Tanh, 50.0, "SaturatedActivation")],
)
def test_activations_saved_rarely_are_enough(
    activation: type[torch.nn.Module], shift: float, rule: str, tmp_path: Path
) -> None:
    hook = Hook.create_from_json_file(hook_file(tmp_path))
    first = torch.nn.Linear(4, 32)
    model = torch.nn.Sequential(first, activation(), torch.nn.Linear(32, 2))
    hook.register_module(model)
    for step in range(400):
        if step == 150:
            with torch.no_grad():
                first.bias.add_(shift)
        model(torch.randn(5, 4)).sum().backward()
    hook.close()
    states = evaluate_run(str(tmp_path / "run"), [(rule, PACKS["recommended"].rules()[rule])])
    evidence = states[rule].evidence
    assert evidence is not None
    assert evidence.step == 200


@pytest.mark.parametrize("name", PACKS)
def test_boosted_trees_save_what_a_pack_asks_for(name: str, tmp_path: Path) -> None:
    xgboost = pytest.importorskip("xgboost")
    from hook_layer.xgboost import Hook as BoosterHook

    collections = [config.to_json() for config in PACKS[name].collections()]
    configuration = {"LocalPath": str(tmp_path / "run"), "CollectionConfigurations": collections}
    (tmp_path / "hook.json").write_text(json.dumps(configuration))
    hook = BoosterHook.create_from_json_file(tmp_path / "hook.json")
    data = xgboost.DMatrix(np.random.default_rng(0).normal(size=(50, 3)), np.arange(50) % 2)
    xgboost.train({"nthread": 1}, data, 11, evals=[(data, "train")], callbacks=[hook])
    trial = create_trial(str(tmp_path / "run"))
    assert "train-rmse" in trial.tensor_names()
    assert any(n.startswith("feature_importance/") for n in trial.tensor_names())


@pytest.mark.parametrize("rule", sorted({name for pack in PACKS.values() for name in pack.rules()}))
def test_no_rule_of_a_pack_has_shap_values_computed(
    rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    xgboost = pytest.importorskip("xgboost")
    from hook_layer.xgboost import Hook as BoosterHook

    explained: list[bool] = []
    original = xgboost.Booster.predict

    def predict(*args: Any, **kwargs: Any) -> Any:
        explained.append(kwargs.get("pred_contribs", False))
        return original(*args, **kwargs)

    monkeypatch.setattr(xgboost.Booster, "predict", predict)
    pack = PACKS["recommended"]
    rules = [create_rule(rule, {})]
    configuration = {
        "LocalPath": str(tmp_path / "run"),
        "CollectionConfigurations": [each.to_json() for each in pack.collections_for(rules)],
    }
    (tmp_path / "hook.json").write_text(json.dumps(configuration))
    hook = BoosterHook.create_from_json_file(tmp_path / "hook.json")
    values = np.random.default_rng(0).normal(size=(50, 3))
    names = ["conv.weight", "no_bias", "gamma:0"]
    hook.train_data = data = xgboost.DMatrix(values, np.arange(50) % 2, feature_names=names)
    hook.validation_data = data
    xgboost.train({"nthread": 1}, data, 1, evals=[(data, "train")], callbacks=[hook])
    assert True not in explained
    assert not [n for n in create_trial(str(tmp_path / "run")).tensor_names() if "shap" in n]


def test_an_unknown_pack_is_reported_with_the_nearest() -> None:
    assert find_pack("original") is PACKS["original"]
    with pytest.raises(ValueError, match="did you mean 'recommended'"):
        find_pack("recomended")


def test_a_pack_of_ones_own() -> None:
    pack = Pack("mine", "Mine.", {"VanishingGradient": {"threshold": "1e-9"}, "NonFinite": {}})
    assert pack.rules()["VanishingGradient"] == available_rules()["VanishingGradient"](
        threshold=1e-9  # type: ignore[call-arg]
    )
    configs = {config.name: dict(config.parameters) for config in pack.collections()}
    assert configs["gradients"] == {"include_regex": "^gradient", "save_interval": "10"}
    with pytest.raises(ValueError, match="there is no rule"):
        Pack("bad", "Bad.", {"NoRule": {}}).rules()
