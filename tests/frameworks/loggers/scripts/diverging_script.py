"""Trains with a learning rate that is far too large; its arguments: libraries that it logs to."""

import json
import os
import sys
from pathlib import Path

import torch

LIBRARIES = sys.argv[1:]
own = {}
log = []
if "wandb" in LIBRARIES:
    import wandb

    run = wandb.init(mode="offline", project="p", dir="logs", settings={"silent": True})
    own["wandb"] = run.id
    log.append(lambda loss, _: run.log({"loss": loss}))
if "mlflow" in LIBRARIES:
    import mlflow

    own["mlflow"] = mlflow.start_run().info.run_id
    log.append(lambda loss, step: mlflow.log_metric("loss", loss, step=step))
if "tensorboard" in LIBRARIES:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter("board/one")
    log.append(lambda loss, step: writer.add_scalar("loss", loss, step))

Path("own.json").write_text(json.dumps({**own, "pid": os.getpid()}))
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e20)
inputs, targets = torch.randn(8, 4), torch.randn(8, 1)
for step in range(20):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    for each in log:
        each(loss.item(), step)
