"""Deep Q-network with replay memory and a softly updated target network on a hand-written cart-pole, in the manner of PyTorch's DQN tutorial."""

import math
import random
import sys
from collections import deque, namedtuple

import torch
import torch.nn as nn
import torch.optim as optim

torch.set_num_threads(1)
seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
random.seed(seed)
torch.manual_seed(seed)

Transition = namedtuple("Transition", ("state", "action", "next_state", "alive", "reward"))

BATCH_SIZE = 128
GAMMA = 0.97
EPS_START, EPS_END, EPS_DECAY = 0.9, 0.02, 1500
TAU = 0.01
LR = 1e-3
MAX_STEPS = 8000


class CartPole:
    def reset(self):
        self.state = [random.uniform(-0.05, 0.05) for _ in range(4)]
        self.steps = 0
        return self.observe()

    def observe(self):
        x, v, th, w = self.state
        return [x / 2.4, v / 2, th / 0.21, w / 2]

    def step(self, action):
        x, v, th, w = self.state
        tmp = ((10.0 if action else -10.0) + 0.05 * w * w * math.sin(th)) / 1.1
        acc = (9.8 * math.sin(th) - math.cos(th) * tmp) / (
            0.5 * (4 / 3 - 0.1 * math.cos(th) ** 2 / 1.1)
        )
        xacc = tmp - 0.05 * acc * math.cos(th) / 1.1
        self.state = [x + 0.02 * v, v + 0.02 * xacc, th + 0.02 * w, w + 0.02 * acc]
        self.steps += 1
        terminated = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.2095
        # upright and in the middle is best
        reward = 0.2 - 0.1 * abs(self.state[0]) / 2.4 - 0.1 * abs(self.state[2]) / 0.21
        return self.observe(), 0.0 if terminated else reward, terminated, self.steps >= 200


class ReplayMemory:
    def __init__(self, capacity):
        self.memory = deque([], maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, batch_size):
        return random.sample(self.memory, batch_size)

    def __len__(self):
        return len(self.memory)


class DQN(nn.Module):
    def __init__(self, n_observations, n_actions):
        super().__init__()
        self.layer1 = nn.Linear(n_observations, 128)
        self.layer2 = nn.Linear(128, 128)
        self.layer3 = nn.Linear(128, n_actions)

    def forward(self, x):
        x = torch.relu(self.layer1(x))
        x = torch.relu(self.layer2(x))
        return self.layer3(x)


policy_net = DQN(4, 2)
target_net = DQN(4, 2)
target_net.load_state_dict(policy_net.state_dict())
optimizer = optim.AdamW(policy_net.parameters(), lr=LR, amsgrad=True)
memory = ReplayMemory(10000)
scheduler = optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, MAX_STEPS)
criterion = nn.SmoothL1Loss()


def select_action(state, eps):
    if random.random() < eps:
        return random.randrange(2)
    with torch.no_grad():
        return policy_net(torch.tensor([state])).argmax(1).item()


def optimize_model():
    batch = Transition(*zip(*memory.sample(BATCH_SIZE)))
    state = torch.tensor(batch.state)
    action = torch.tensor(batch.action).unsqueeze(1)
    reward = torch.tensor(batch.reward)
    alive = torch.tensor(batch.alive)

    q = policy_net(state).gather(1, action)
    with torch.no_grad():
        next_q = target_net(torch.tensor(batch.next_state)).max(1).values
    expected = reward + GAMMA * next_q * alive
    loss = criterion(q, expected.unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
    optimizer.step()
    scheduler.step()
    return loss.item()


def evaluate(episodes=5):
    env, total = CartPole(), 0.0
    for _ in range(episodes):
        state, over = env.reset(), False
        while not over:
            state, _, terminated, truncated = env.step(select_action(state, 0.0))
            total += 1
            over = terminated or truncated
    return total / episodes


env = CartPole()
state = env.reset()
lengths, losses, solved = [], [], 0
for step in range(1, MAX_STEPS + 1):
    eps = EPS_END + (EPS_START - EPS_END) * math.exp(-step / EPS_DECAY)
    action = select_action(state, eps)
    next_state, reward, terminated, truncated = env.step(action)
    memory.push(state, action, next_state, float(not terminated), reward)
    state = next_state
    if terminated or truncated:
        lengths.append(env.steps)
        state = env.reset()
    if len(memory) >= 400:
        losses.append(optimize_model())
        with torch.no_grad():
            for target, source in zip(target_net.parameters(), policy_net.parameters()):
                target.lerp_(source, TAU)
    if step % 500 == 0:
        recent = lengths[-10:]
        print(
            f"step {step} eps {eps:.2f} loss {sum(losses[-200:]) / len(losses[-200:]):.4f} length {sum(recent) / len(recent):.0f}"
        )
        score = evaluate()
        print(f"greedy length {score:.1f}")
        solved = solved + 1 if score >= 195 else 0
        if solved == 4:
            break
