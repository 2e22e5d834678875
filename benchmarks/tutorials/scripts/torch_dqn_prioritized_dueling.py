"""Double dueling DQN with prioritised replay on a grid world with walls and pits, in the manner of Curt-Park's rainbow-is-all-you-need."""

import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.nn.utils import clip_grad_norm_

torch.set_num_threads(1)


class GridWorld:
    """Walk from anywhere to the goal in a 6 x 6 room; pits end the episode, each step costs a bit."""

    SIZE, GOAL = 6, (5, 5)
    WALLS = {(1, 1), (1, 2), (1, 3), (3, 2), (3, 3), (3, 4), (4, 0)}
    PITS = {(2, 5), (5, 2)}
    MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))

    def __init__(self, rng):
        self.rng = rng

    def reset(self, start=None):
        while start is None:
            cell = tuple(self.rng.integers(0, self.SIZE, 2).tolist())
            if cell not in self.WALLS | self.PITS and cell != self.GOAL:
                start = cell
        self.pos, self.t = start, 0
        return self._obs()

    def _obs(self):
        o = np.zeros(36, dtype=np.float32)
        o[6 * self.pos[0] + self.pos[1]] = 1
        return o

    def step(self, action):
        if self.rng.random() < 0.05:
            action = self.rng.integers(4)
        r, c = self.pos[0] + self.MOVES[action][0], self.pos[1] + self.MOVES[action][1]
        if 0 <= r < self.SIZE and 0 <= c < self.SIZE and (r, c) not in self.WALLS:
            self.pos = (r, c)
        self.t += 1
        if self.pos == self.GOAL:
            return self._obs(), 1.0, True, False
        if self.pos in self.PITS:
            return self._obs(), -1.0, True, False
        return self._obs(), -0.02, False, self.t >= 50


class PrioritizedReplayBuffer:
    def __init__(self, size, batch_size=64, alpha=0.6):
        self.obs_buf, self.next_obs_buf = (
            np.zeros((size, 36), np.float32),
            np.zeros((size, 36), np.float32),
        )
        self.acts_buf = np.zeros(size, np.int64)
        self.rews_buf, self.done_buf = np.zeros(size, np.float32), np.zeros(size, np.float32)
        self.prio = np.zeros(size)
        self.max_size, self.batch_size, self.alpha = size, batch_size, alpha
        self.ptr, self.size, self.max_priority = 0, 0, 1.0

    def store(self, obs, act, rew, next_obs, done):
        p = self.ptr
        self.obs_buf[p], self.next_obs_buf[p] = obs, next_obs
        self.acts_buf[p], self.rews_buf[p], self.done_buf[p] = act, rew, done
        self.prio[p] = self.max_priority**self.alpha
        self.ptr = (p + 1) % self.max_size
        self.size = min(self.size + 1, self.max_size)

    def sample_batch(self, beta, rng):
        probs = self.prio[: self.size] / self.prio[: self.size].sum()
        idx = rng.choice(self.size, self.batch_size, p=probs)
        weights = (self.size * probs[idx]) ** -beta
        weights = torch.tensor(weights / weights.max(), dtype=torch.float32)
        batch = (self.obs_buf, self.next_obs_buf, self.acts_buf, self.rews_buf, self.done_buf)
        return [torch.from_numpy(z[idx]) for z in batch], weights, idx

    def update_priorities(self, idx, priorities):
        self.prio[idx] = priorities**self.alpha
        self.max_priority = max(self.max_priority, priorities.max())


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.feature_layer = nn.Sequential(nn.Linear(36, 64), nn.ReLU())
        self.advantage_layer = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
        self.value_layer = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, x):
        feature = self.feature_layer(x)
        value, advantage = self.value_layer(feature), self.advantage_layer(feature)
        return value + advantage - advantage.mean(dim=-1, keepdim=True)


class DQNAgent:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.env, self.test_env = GridWorld(self.rng), GridWorld(np.random.default_rng(seed + 1))
        self.memory = PrioritizedReplayBuffer(4000)
        self.epsilon, self.epsilon_decay, self.min_epsilon = 1.0, 1 / 2500, 0.1
        self.beta, self.gamma, self.tau = 0.4, 0.95, 0.01
        self.dqn, self.dqn_target = Network(), Network()
        self.dqn_target.load_state_dict(self.dqn.state_dict())
        self.dqn_target.eval()
        self.optimizer = optim.Adam(self.dqn.parameters(), lr=5e-4)

    def select_action(self, state):
        if self.rng.random() < self.epsilon:
            return int(self.rng.integers(4))
        with torch.no_grad():
            return self.dqn(torch.from_numpy(state)).argmax().item()

    def update_model(self):
        (state, next_state, action, reward, done), weights, idx = self.memory.sample_batch(
            self.beta, self.rng
        )
        curr_q = self.dqn(state).gather(1, action[:, None])[:, 0]
        with torch.no_grad():
            best = self.dqn(next_state).argmax(dim=1, keepdim=True)
            next_q = self.dqn_target(next_state).gather(1, best)[:, 0]
            target = reward + self.gamma * next_q * (1 - done)
        elementwise = F.smooth_l1_loss(curr_q, target, reduction="none")
        loss = torch.mean(elementwise * weights)
        self.optimizer.zero_grad()
        loss.backward()
        clip_grad_norm_(self.dqn.parameters(), 10.0)
        self.optimizer.step()
        self.memory.update_priorities(idx, (curr_q - target).abs().detach().numpy() + 1e-6)
        return loss.item()

    def _target_soft_update(self):
        for t, p in zip(self.dqn_target.parameters(), self.dqn.parameters()):
            t.data.copy_(self.tau * p.data + (1.0 - self.tau) * t.data)

    def test(self, episodes=50):
        scores = []
        for _ in range(episodes):
            state, score, stop = self.test_env.reset(), 0.0, False
            while not stop:
                with torch.no_grad():
                    action = self.dqn(torch.from_numpy(state)).argmax().item()
                state, reward, terminated, truncated = self.test_env.step(action)
                score += reward
                stop = terminated or truncated
            scores.append(score)
        return np.mean(scores)

    def train(self, num_frames):
        state = self.env.reset()
        losses = []
        for frame in range(1, num_frames + 1):
            action = self.select_action(state)
            next_state, reward, terminated, truncated = self.env.step(action)
            self.memory.store(state, action, reward, next_state, float(terminated))
            state = self.env.reset() if terminated or truncated else next_state
            self.beta += min(frame / num_frames, 1.0) * (1.0 - self.beta)
            if self.memory.size >= 300:
                losses.append(self.update_model())
                self.epsilon = max(self.min_epsilon, self.epsilon - self.epsilon_decay)
                self._target_soft_update()
            if frame % 500 == 0:
                print(
                    f"frame {frame} loss {np.mean(losses[-200:]):.4f} eps {self.epsilon:.2f} "
                    f"test score {self.test():.3f}"
                )


if __name__ == "__main__":
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    torch.manual_seed(seed)
    DQNAgent(seed).train(5000)
