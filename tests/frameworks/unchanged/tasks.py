"""The same small task, once for each framework, and how its script is run."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.python_path import PYTHON_PATH

__all__ = ["SAVED_EVERY", "SCRIPTS", "TASKS", "Run", "Task", "configuration", "run"]

ROOT: Final = Path(__file__).resolve().parents[3]
SCRIPTS: Final = Path(__file__).resolve().parent / "scripts"
SAVED_EVERY: Final = 10
NUM_BATCHES: Final = 20
"""Steps in an epoch; `scripts/small_task.py` has the same number."""
_TIMEOUT_S: Final = 600


@dataclass(frozen=True)
class Task:
    """A script that knows nothing of hooks.

    Attributes:
        name: Name of the framework.
        script: The script, in the folder `scripts`.
        collections: What is saved beside what always is.
        tensors: What then has to be there.
        environment: Kind of the environment that it runs in.
        variables: Environment variables that it runs with.
        lines: What stands in the lines of its layers, losses and optimizers.
        logs_at_end: Whether the framework logs scalars after the last step, which has them then.
    """

    name: str
    script: str
    collections: tuple[str, ...]
    tensors: frozenset[str]
    environment: str = "frameworks"
    variables: Mapping[str, str] = field(default_factory=dict)
    lines: Mapping[str, str] = field(default_factory=dict)
    logs_at_end: bool = False


@dataclass(frozen=True)
class Run:
    """A run of a script.

    Attributes:
        status: Its exit status.
        output: What it printed.
        errors: What it printed as errors.
    """

    status: int
    output: str
    errors: str

    @property
    def seconds(self) -> float:
        """How long the training took, as the script tells it."""
        found = re.search(r"^trained in (\S+) s$", self.errors, re.MULTILINE)
        if found is None:
            raise ValueError(f"the script did not train: {self.errors}")
        return float(found[1])


def _torch_names(loss: str) -> frozenset[str]:
    return frozenset(("Classifier_hidden.weight", "gradient/Classifier_head.weight", loss))


def _keras(backend: str) -> Task:
    names = {"loss", "hidden/weights/hidden/kernel:0", "gradients/head/kernelGrad"}
    return Task(
        f"keras-{backend}",
        "keras_script.py",
        ("weights", "gradients"),
        frozenset(names),
        variables={"KERAS_BACKEND": backend},
        lines={
            "layers": "keras.layers.Dense(",
            "losses": "model.compile(",
            "optimizers": "model.compile(",
        },
        logs_at_end=True,
    )


def _torch_lines(loss: str, optimizer: str = "torch.optim.SGD(") -> dict[str, str]:
    return {"layers": "nn.Linear(", "losses": loss, "optimizers": optimizer}


_BOOSTED: Final = ("feature_importance", "hyperparameters")

TASKS: Final = (
    Task(
        "torch",
        "torch_script.py",
        ("weights", "gradients"),
        _torch_names("CrossEntropyLoss_output_0"),
        lines=_torch_lines("criterion(model(batch), expected)"),
    ),
    _keras("tensorflow"),
    _keras("torch"),
    _keras("jax"),
    Task(
        "mxnet",
        "mxnet_script.py",
        ("weights", "gradients"),
        frozenset(("hidden_weight", "gradient/head_weight", "softmaxcrossentropyloss0_output_0")),
        "mxnet",
    ),
    Task(
        "xgboost",
        "xgboost_script.py",
        _BOOSTED,
        frozenset(("train-mlogloss", "feature_importance/gain/f0", "hyperparameters/eta")),
    ),
    Task(
        "xgboost-sklearn",
        "sklearn_script.py",
        _BOOSTED,
        frozenset(
            ("validation_0-mlogloss", "feature_importance/gain/f0", "hyperparameters/max_depth")
        ),
    ),
    Task(
        "lightning",
        "lightning_script.py",
        ("weights", "gradients"),
        _torch_names("Loss_output_0"),
        lines=_torch_lines("nn.functional.cross_entropy("),
    ),
    Task(
        "huggingface",
        "huggingface_script.py",
        ("weights", "gradients"),
        _torch_names("Loss_output_0"),
        lines=_torch_lines("nn.functional.cross_entropy(", "trainer.train()"),
        logs_at_end=True,
    ),
)
"""All tasks."""


def configuration(task: Task, folder: Path) -> Path:
    """Write a configuration file for a task, with the tensors beside it.

    Args:
        task: The task.
        folder: Where to write; the tensors go into its folder `tensors`.
    """
    file = folder / "stepwatch.json"
    hook = {
        "LocalPath": str(folder / "tensors"),
        "HookParameters": {"save_interval": str(SAVED_EVERY)},
        "CollectionConfigurations": [{"CollectionName": name} for name in task.collections],
    }
    file.write_text(json.dumps({"TrainingJobName": task.name, "DebugHookConfig": hook}))
    return file


def run(task: Task, *, config: Path | None = None, num_epochs: int = 2) -> Run:
    """Run a task's script, plainly or with a hook.

    Args:
        task: The task.
        config: The hook's configuration file; None: plainly.
        num_epochs: How long it trains.
    """
    python = ROOT / f".venv-{task.environment}" / "bin" / "python"
    hook = [] if config is None else ["-m", "hook_layer", "--config", str(config)]
    inherited = {name: value for name, value in os.environ.items() if "CONFIG" not in name}
    done = subprocess.run(
        [str(python), "-W", "ignore", *hook, str(SCRIPTS / task.script), str(num_epochs)],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        env={
            **inherited,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": PYTHON_PATH,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            **task.variables,
        },
        check=False,
    )
    return Run(done.returncode, done.stdout, done.stderr)
