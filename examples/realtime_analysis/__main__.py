"""Draw the activations of a network while it trains, and its kernels afterwards.

python -m examples.realtime_analysis [FOLDER]
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from rule_runtime import create_trial
from rule_runtime.trial.trial import Trial

ACTIVATIONS = "relu0_output_0"
KERNELS = "Net_conv0.weight"
_POLL_S = 0.2


def main(folder: Path) -> int:
    """Train in one process, draw in this one; return the exit status of the training."""
    out_dir, pictures = folder / "tensors", folder / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "examples.realtime_analysis.train", str(out_dir)]
    with subprocess.Popen(command) as training:
        draw_while_it_trains(out_dir, pictures, training)
    if training.returncode:
        return training.returncode
    trial = create_trial(str(out_dir))
    trial.plot_kernels(KERNELS).savefig(pictures / "kernels.png")
    trial.plot().savefig(pictures / "loss.png")
    print(f"kernels over {len(trial.tensor(KERNELS).steps())} steps: {pictures / 'kernels.png'}")
    return 0


def draw_while_it_trains(out_dir: Path, pictures: Path, training: subprocess.Popen[bytes]) -> None:
    """Draw the activations of every saved step as soon as it is there."""
    trial = create_trial(str(out_dir))  # which need not hold anything yet
    drawn: set[int] = set()
    while True:
        is_over = training.poll() is not None
        for step in [step for step in saved_steps(trial) if step not in drawn]:
            figure = trial.plot_activations(ACTIVATIONS, steps=step, max_channels=8)
            figure.savefig(pictures / f"activations-{step:04d}.png")
            drawn.add(step)
            print(
                f"step {step}: {'drawn behind' if is_over else 'drawn during'} the training",
                flush=True,
            )
        if is_over:
            return
        time.sleep(_POLL_S)


def saved_steps(trial: Trial) -> list[int]:
    """Return the steps at which the activations have been saved so far."""
    return trial.tensor(ACTIVATIONS).steps() if trial.has_tensor(ACTIVATIONS) else []


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/realtime")))
