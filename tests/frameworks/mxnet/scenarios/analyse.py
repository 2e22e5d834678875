"""Real-time analysis: what the first layer does, read while the training runs.

    python -m tests.frameworks.mxnet.scenarios.analyse OUT_DIR

Prints a line of JSON for each step as soon as it is there.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

from rule_runtime import create_trial

POLL_S = 0.1


def main(out_dir: str) -> None:
    trial = create_trial(out_dir)
    step = -1
    while True:
        is_all = trial.loaded_all_steps
        later = [known for known in trial.steps() if known > step]
        if not later:
            if is_all:
                break
            time.sleep(POLL_S)
            continue
        step = later[0]
        names = trial.tensor_names(regex="conv0.*")
        activations = trial.tensor("conv0_relu_output_0").value(step)
        gradient = trial.tensor("gradient/conv0_weight").value(step)
        line = {
            "step": step,
            "names": names,
            "shape": activations.shape,
            "active_pct": float(100 * (activations > 0).mean()),
            "channels": np.abs(activations).mean((0, 2, 3)).round(4).tolist(),
            "gradient_norm": float(np.linalg.norm(gradient)),
            "has_ended": (Path(out_dir) / "training_job_end.ts").exists(),
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
