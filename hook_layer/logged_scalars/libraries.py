"""The logging libraries that are watched: where each logs, and which reader knows its arguments.

Every watched Python imports this module when it starts, so it imports nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

__all__ = ["LIBRARIES"]

_LIGHTNING: Final = ("_LoggerConnector", "log_metrics", "lightning")
_CONNECTOR: Final = "trainer.connectors.logger_connector.logger_connector"
_SUMMARY_WRITER: Final = (
    ("SummaryWriter", "add_scalar", "summary_scalar"),
    ("SummaryWriter", "add_scalars", "summary_scalars"),
)

LIBRARIES: Final[Mapping[str, tuple[tuple[str, str, str], ...]]] = {
    "keras.src.callbacks.callback_list": (("CallbackList", "on_epoch_end", "keras_epoch"),),
    f"lightning.pytorch.{_CONNECTOR}": (_LIGHTNING,),
    "mlflow.tracking.client": (
        ("MlflowClient", "log_metric", "mlflow_metric"),
        ("MlflowClient", "log_batch", "mlflow_batch"),
    ),
    f"pytorch_lightning.{_CONNECTOR}": (_LIGHTNING,),
    "tensorboardX.writer": _SUMMARY_WRITER,
    "torch.utils.tensorboard.writer": _SUMMARY_WRITER,
    "trackio.run": (("Run", "log", "trackio"),),
    "transformers.trainer": (("Trainer", "log", "transformers"),),
    "wandb.sdk.lib.noop_run": (("NoopRun", "log", "wandb"),),
    "wandb.sdk.wandb_run": (("Run", "log", "wandb"),),
}
"""Modules, each with class, method and the function of `readers.py` that reads its arguments."""
