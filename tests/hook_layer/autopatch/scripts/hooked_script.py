"""A training with a hook of its own, in the folder that is named."""

import sys

import torch
from torch import nn

from hook_layer.pytorch import Hook, SaveConfig

model = nn.Linear(4, 2)
hook = Hook(sys.argv[1], save_config=SaveConfig(save_interval=1))
hook.register_module(model)
for _ in range(3):
    model(torch.ones(2, 4)).sum().backward()
hook.close()
