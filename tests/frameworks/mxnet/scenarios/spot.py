"""Spot training: saves checkpoints, goes on from the last one, and is interrupted as told.

    python -m tests.frameworks.mxnet.scenarios.spot OUT_DIR CHECKPOINTS [--interrupt STEP]

The directory of the checkpoints is the one that `CHECKPOINT_CONFIG_FILE_PATH` names.
"""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path

import hook_layer.mxnet as smd
from tests.frameworks.mxnet.scenarios.images import load_images
from tests.frameworks.mxnet.scenarios.network import BATCH_SIZE, Training, batches

CHECKPOINT_EVERY = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out_dir")
    parser.add_argument("checkpoints", type=Path)
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--data", type=Path, help="folder with Fashion-MNIST's idx files")
    parser.add_argument("--hybridize", action="store_true")
    parser.add_argument("--interrupt", type=int, help="step behind which SIGTERM comes")
    arguments = parser.parse_args()
    images, labels = load_images(arguments.data, arguments.steps * BATCH_SIZE)
    training = Training(hybridize=arguments.hybridize)
    first = 0
    saved = sorted(arguments.checkpoints.glob("*.params"))
    if saved:
        training.net.load_parameters(str(saved[-1]))
        training.trainer.load_states(str(saved[-1].with_suffix(".states")))
        first = int(saved[-1].stem) + 1
    hook = smd.Hook(
        arguments.out_dir,
        save_config=smd.SaveConfig(save_interval=1),
        include_regex="conv0.*",
        include_collections=["weights", "gradients", "losses"],
    )
    hook.register_block(training.net)
    hook.register_block(training.loss)
    hook.set_mode(smd.modes.TRAIN)
    for step, inputs, targets in batches(images, labels, first, arguments.steps):
        loss, _ = training.step(inputs, targets)
        print(f"step {step}: loss {loss:.3f}", flush=True)
        if step % CHECKPOINT_EVERY == CHECKPOINT_EVERY - 1:
            path = arguments.checkpoints / f"{step:03d}.params"
            training.trainer.save_states(str(path.with_suffix(".states")))
            training.net.save_parameters(str(path))
        if step == arguments.interrupt:
            os.kill(os.getpid(), signal.SIGTERM)
    hook.close()


if __name__ == "__main__":
    main()
