"""Logs the same numbers to each logging library, and prints what each of them stored."""

import json
import math
from pathlib import Path

import mlflow
import numpy as np
import tensorboardX
import torch
import trackio
import wandb
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

LOSSES = [0.5, 0.25, math.nan, 0.125]


def scalars_in(folder):
    files = EventAccumulator(folder).Reload()
    tags = sorted(files.Tags()["scalars"])
    return {tag: [(event.step, event.value) for event in files.Scalars(tag)] for tag in tags}


def with_wandb(mode):
    with wandb.init(mode=mode, project="p", dir=f"of-{mode}", settings={"silent": True}) as run:
        for loss in LOSSES:
            nested = {"accuracy": np.float32(1 - loss), "label": "text"}
            wandb.log({f"{mode}/loss": loss, f"{mode}/eval": nested}, commit=False)
            wandb.log({f"{mode}/rate": torch.tensor(0.1), "histogram": wandb.Histogram([1, 2])})
        summary = dict(run.summary)
    return {name: str(summary[name]) for name in (f"{mode}/loss", f"{mode}/rate")}


def with_writer(kind, folder):
    with kind(folder) as writer:
        for step, loss in enumerate(LOSSES):
            writer.add_scalar(f"{folder}/loss", loss, 10 * step)
            writer.add_scalars(f"{folder}/both", {"a": step, "b": torch.tensor(step)}, 10 * step)
            writer.add_histogram(f"{folder}/histogram", np.arange(3), step)
    return scalars_in(folder)


def with_mlflow():
    with mlflow.start_run() as run:
        for step, loss in enumerate(LOSSES):
            mlflow.log_metric("mlflow/loss", loss, step=step)
            mlflow.log_metrics({"mlflow/one": step, "mlflow/two": 2.0 * step}, step=step)
    client = mlflow.MlflowClient()
    names = ("mlflow/loss", "mlflow/one", "mlflow/two")
    histories = (client.get_metric_history(run.info.run_id, name) for name in names)
    return [[(metric.key, metric.step, metric.value) for metric in each] for each in histories]


def with_trackio():
    from trackio.sqlite_storage import SQLiteStorage

    trackio.init(project="p", name="n")
    for loss in LOSSES:
        trackio.log({"trackio/loss": loss, "trackio/nested": {"x": 1}})
    trackio.finish()
    rows = SQLiteStorage.get_logs("p", "n")
    return [{k: row[k] for k in sorted(row) if k not in {"timestamp", "log_id"}} for row in rows]


def fail():
    try:
        mlflow.log_metric("unseen", "text")
    except mlflow.MlflowException as error:
        return type(error).__name__


stored = {
    "offline": with_wandb("offline"),
    "disabled": with_wandb("disabled"),
    "torch": with_writer(SummaryWriter, "torch"),
    "tensorboardX": with_writer(tensorboardX.SummaryWriter, "tensorboardX"),
    "mlflow": with_mlflow(),
    "trackio": with_trackio(),
    "failed": fail(),
}
Path("stored.json").write_text(json.dumps(stored, indent=1, default=str))
