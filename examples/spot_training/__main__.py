"""Interrupt a training twice, resume it elsewhere, and evaluate it as one run.

python -m examples.spot_training [FOLDER]
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from examples.spot_training.plan import NUM_STEPS, SAVE_INTERVAL
from stepwatch import EvaluationState, Trial, create_trial, evaluate, status_details

ROOT = Path(__file__).resolve().parents[2]
INTERRUPTIONS = (110, 190)
RULES = ("NonFinite", "VanishingGradient", "ExplodingTensor")


def main(folder: Path) -> int:
    """Train on three machines in turn; return 0 if that made one whole run."""
    out_dir = train_on_three_machines(folder)
    trial = create_trial(str(out_dir))
    steps = trial.steps()
    print(
        f"{len(steps)} saved steps, {steps[0]} to {steps[-1]}, each of them once: {is_whole(trial)}"
    )
    for name, state in evaluate_steps(out_dir).items():
        print(f"{name}: {state.status.value}: {status_details(name, state)}")
    return 0 if is_whole(trial) else 1


def train_on_three_machines(folder: Path) -> Path:
    """Train, interrupted twice, and return where the tensors are.

    Raises:
        RuntimeError: A training ended otherwise than it was made to.
    """
    out_dir, storage = folder.resolve() / "tensors", folder.resolve() / "checkpoints"
    storage.mkdir(parents=True)
    for machine, at in enumerate([*INTERRUPTIONS, None]):
        local = folder.resolve() / f"machine-{machine}"
        shutil.copytree(storage, local)  # as the platform does before it starts the script
        status = train(out_dir, local, at)
        shutil.copytree(local, storage, dirs_exist_ok=True)  # and behind it
        shutil.rmtree(local)
        expected = 0 if at is None else -signal.SIGTERM
        print(f"machine {machine}: exit status {status}", flush=True)
        if status != expected:
            raise RuntimeError(f"the training ended with {status}, not {expected}")
    return out_dir


def train(out_dir: Path, checkpoints: Path, interrupted_at: int | None) -> int:
    """Run the script on a machine of its own, and return its exit status."""
    config = checkpoints.with_name(f"{checkpoints.name}.json")
    config.write_text(json.dumps({"LocalPath": str(checkpoints)}))
    command = [sys.executable, "-m", "examples.spot_training.train", str(out_dir), str(checkpoints)]
    command += [] if interrupted_at is None else [str(interrupted_at)]
    environment = {**os.environ, "CHECKPOINT_CONFIG_FILE_PATH": str(config)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    print(done.stdout, end="", flush=True)
    return done.returncode


def is_whole(trial: Trial) -> bool:
    """Return whether a trial has each expected step once, and its end."""
    return trial.steps() == list(range(0, NUM_STEPS, SAVE_INTERVAL)) and trial.loaded_all_steps


def evaluate_steps(out_dir: Path) -> Mapping[str, EvaluationState]:
    """Return what the rules make of the one run."""
    return evaluate(out_dir, RULES)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/spot")))
