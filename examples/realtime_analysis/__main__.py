"""Draw the activations of a network while it trains, and its kernels afterwards.

python -m examples.realtime_analysis [FOLDER]
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

# Now, for it may look for fonts for seconds, in which the training would end.
from matplotlib.figure import Figure

from stepwatch import Trial, create_trial

ROOT = Path(__file__).resolve().parents[2]
ACTIVATIONS = "relu0_output_0"
KERNELS = "Net_conv0.weight"
_POLL_S = 0.2


def main(folder: Path) -> int:
    """Train in one process, draw in this one; return the exit status of the training."""
    out_dir, pictures = folder / "tensors", folder / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    with start_training(out_dir) as training:
        for step, figure in activations_so_far(out_dir, training):
            # Polled after the picture, so "during" proves that it was there in time.
            when = "after" if training.poll() is not None else "during"
            figure.savefig(pictures / f"activations-{step:04d}.png")
            print(f"step {step}: drawn {when} the training", flush=True)
    if training.returncode:
        return training.returncode
    trial = create_trial(str(out_dir))
    trial.plot_kernels(KERNELS).savefig(pictures / "kernels.png")
    trial.plot().savefig(pictures / "loss.png")
    print(f"kernels over {len(trial.tensor(KERNELS).steps())} steps: {pictures / 'kernels.png'}")
    return 0


def start_training(out_dir: Path) -> subprocess.Popen[bytes]:
    """Start the training in a process of its own."""
    command = [sys.executable, "-m", "examples.realtime_analysis.train", str(out_dir.resolve())]
    return subprocess.Popen(command, cwd=ROOT)


def activations_so_far(
    out_dir: Path, training: subprocess.Popen[bytes]
) -> Iterator[tuple[int, Figure]]:
    """Yield each saved step and a picture of its activations as soon as it is there.

    Ends when all are drawn and the training has ended.
    """
    trial = create_trial(str(out_dir))  # which need not hold anything yet
    drawn: set[int] = set()
    while True:
        is_over = training.poll() is not None
        for step in [step for step in saved_steps(trial) if step not in drawn]:
            yield step, trial.plot_activations(ACTIVATIONS, steps=step, max_channels=8)
            drawn.add(step)
        if is_over:
            return
        time.sleep(_POLL_S)


def saved_steps(trial: Trial) -> list[int]:
    """Return the steps at which the activations have been saved so far."""
    return trial.tensor(ACTIVATIONS).steps() if trial.has_tensor(ACTIVATIONS) else []


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/realtime")))
