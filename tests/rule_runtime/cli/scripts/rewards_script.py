"""A policy that is trained without a framework, and logs its rewards; endless, unless stopped."""

import math

from torch.utils.tensorboard import SummaryWriter

with SummaryWriter("board") as writer:
    for episode in range(10**7):
        reward = 20.0 + episode % 7 if episode < 700 else math.nan
        writer.add_scalar("reward", reward, 10 * episode)
        writer.add_scalar("entropy", 1 / (1 + episode), 10 * episode)
print("trained to the end")
