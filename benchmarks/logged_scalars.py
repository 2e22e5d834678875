"""Print what a call of a watched logger costs besides the logger: `... [NUMBER OF CALLS]`."""

from __future__ import annotations

import sys
import tempfile
import time
from types import SimpleNamespace

from hook_layer.logged_scalars.recording import watch_logging, watch_method

TWO = {"loss": 0.5, "rate": 0.1}
METRIC = SimpleNamespace(key="loss", value=0.5, step=1)
CALLS = {
    "summary_scalar": ("loss", 0.5, 1),
    "summary_scalars": ("loss", TWO, 1),
    "wandb": (TWO, 1),
    "trackio": (TWO, 1),
    "mlflow_metric": ("run", "loss", 0.5, 0, 1),
    "mlflow_batch": ("run", [METRIC, METRIC]),
    "transformers": (TWO,),
    "lightning": (TWO, 1),
    "keras_epoch": (1, TWO),
}


def main() -> None:
    num_calls = int(sys.argv[1]) if sys.argv[1:] else 100_000
    with tempfile.TemporaryDirectory() as folder:
        watch_logging(folder)
        for reader, arguments in CALLS.items():
            logger = type(
                reader, (), {"log": lambda *_: None, "state": SimpleNamespace(global_step=1)}
            )
            took = []
            for _ in range(2):
                log, started = logger().log, time.thread_time()
                for _ in range(num_calls):
                    log(*arguments)
                took.append(time.thread_time() - started)
                watch_method(logger, "log", reader)
            print(f"{reader:15} {1e6 * (took[1] - took[0]) / num_calls:6.2f} us a call")


main()
