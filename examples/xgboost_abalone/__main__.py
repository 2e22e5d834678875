"""Train gradient-boosted trees with a hook, evaluate the run, and draw what it saved.

python -m examples.xgboost_abalone [--data abalone.csv] [--eta 0.2] [FOLDER]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import xgboost

from examples.xgboost_abalone.data import load_channels, write_libsvm
from rule_runtime.engine.registry import create_rule
from stepwatch import (
    EvaluationState,
    RuleStatus,
    SaveConfig,
    Trial,
    create_trial,
    evaluate,
    status_details,
)
from stepwatch.xgboost import Hook

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HYPERPARAMETERS = {
    "max_depth": 5,
    "gamma": 4,
    "min_child_weight": 6,
    "subsample": 0.7,
    "objective": "reg:squarederror",
    "seed": 0,
}
NUM_ROUNDS = 51
SAVE_INTERVAL = 5
IMPORTANCES = ("weight", "gain", "cover", "total_gain", "total_cover")
RULE = ("LossNotDecreasing", {"collection_names": "metrics", "num_steps": str(SAVE_INTERVAL * 2)})


def main() -> int:
    """Train, evaluate and draw; return 0 for every verdict."""
    arguments = parse_arguments()
    folder: Path = arguments.folder
    write_libsvm(folder / "channels", arguments.data)
    train(folder, arguments.eta)
    print_verdict(evaluate_losses(folder))
    save(pictures(create_trial(str(folder / "tensors"))), folder / "pictures")
    return 0


def train(folder: Path, eta: float) -> None:
    """Train as the user's script does, with a hook among the callbacks."""
    channels = load_channels(folder / "channels")
    parameters = {**HYPERPARAMETERS, "eta": eta}
    hook = Hook(
        folder / "tensors",
        save_config=SaveConfig(save_interval=SAVE_INTERVAL),
        include_collections=[
            *("metrics", "feature_importance", "average_shap", "full_shap"),
            *("hyperparameters", "labels", "predictions"),
        ],
        hyperparameters=parameters,
        train_data=channels["train"],
        validation_data=channels["validation"],
    )
    watched = [(data, name) for name, data in channels.items()]
    xgboost.train(
        parameters,
        channels["train"],
        NUM_ROUNDS,
        evals=watched,
        callbacks=[hook],
        verbose_eval=False,
    )


def evaluate_losses(folder: Path) -> EvaluationState:
    """Evaluate LossNotDecreasing, as the rule of the training job would."""
    name, parameters = RULE
    return evaluate(folder / "tensors", {name: create_rule(name, parameters)})[name]


def print_verdict(state: EvaluationState) -> None:
    """Print what the rule says."""
    name, _ = RULE
    print(f"{name}: {state.status.value}")
    if state.status is RuleStatus.ISSUES_FOUND:
        print(status_details(name, state))


def pictures(trial: Trial) -> dict[str, Figure]:
    """Draw the metrics, five kinds of feature importance, and SHAP values."""
    return {
        "metrics": trial.plot_metrics(),
        **{f"importance-{kind}": trial.plot_feature_importance(kind) for kind in IMPORTANCES},
        "average-shap": trial.plot_average_shap(),
        "full-shap": trial.plot_full_shap(),
    }


def save(figures: Mapping[str, Figure], folder: Path) -> None:
    """Write pictures into a folder."""
    folder.mkdir(exist_ok=True)
    for name, figure in figures.items():
        figure.savefig(folder / f"{name}.png", bbox_inches="tight")
    print(f"{len(figures)} pictures in {folder}")


def parse_arguments() -> argparse.Namespace:
    """Return the command line's arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/abalone"))
    parser.add_argument("--data", type=Path, help="UCI's Abalone as CSV; default: diabetes")
    parser.add_argument("--eta", type=float, default=0.2, help="learning rate")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
