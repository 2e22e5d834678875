"""Real-time analysis: a training that saves what happens in its first layer.

    python -m tests.frameworks.mxnet.scenarios.train OUT_DIR [--steps 200] [--data FOLDER]

`analyse.py` reads what it saves while it runs.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import hook_layer.mxnet as smd
from tests.frameworks.mxnet.scenarios.images import load_images
from tests.frameworks.mxnet.scenarios.network import BATCH_SIZE, Training, batches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out_dir")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--save-interval", type=int, default=10)
    parser.add_argument("--data", type=Path, help="folder with Fashion-MNIST's idx files")
    parser.add_argument("--hybridize", action="store_true")
    parser.add_argument("--wait", action="store_true", help="for a line before the last ten steps")
    arguments = parser.parse_args()
    images, labels = load_images(arguments.data, min(arguments.steps * BATCH_SIZE, 60_000))
    hook = smd.Hook(
        arguments.out_dir,
        save_config=smd.SaveConfig(save_interval=arguments.save_interval),
        include_regex="conv0.*",
    )
    training = Training(hybridize=arguments.hybridize)
    hook.register_block(training.net)
    hook.register_block(training.loss)
    hook.set_mode(smd.modes.TRAIN)
    for step, inputs, targets in batches(images, labels, 0, arguments.steps):
        if arguments.wait and step == arguments.steps - 10:
            hook.flush()
            print("waiting", flush=True)
            input()
        loss, accuracy = training.step(inputs, targets)
        if step % 50 == 0 or step == arguments.steps - 1:
            print(f"step {step}: loss {loss:.3f}, accuracy {accuracy:.2f}", flush=True)
    hook.close()


if __name__ == "__main__":
    main()
