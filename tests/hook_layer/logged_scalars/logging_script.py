"""Logs numbers, and what is none, from several threads, without a hook of a framework."""

import math
import sys
import threading

import numpy as np
from torch.utils.tensorboard import SummaryWriter

import stepwatch

stepwatch.watch_logging(sys.argv[1])
stepwatch.watch_logging(sys.argv[1])
writer = SummaryWriter("board")


def log(name: str) -> None:
    for step in range(500):
        writer.add_scalar(name, step, step)


threads = [threading.Thread(target=log, args=(f"thread-{number}",)) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for step in range(20_000):
    writer.add_scalar("many", step, step)
for _ in range(3):
    try:
        writer.add_scalar("text", "no number", 0)
    except Exception as error:  # noqa: BLE001 - the script's own
        print(type(error).__name__)
    try:
        writer.add_scalar("bad step", 1.0, "no step")
    except Exception as error:  # noqa: BLE001
        print(type(error).__name__)
writer.add_histogram("histogram", np.arange(10), 0)
writer.add_scalar("last", math.nan, 0)
writer.close()
