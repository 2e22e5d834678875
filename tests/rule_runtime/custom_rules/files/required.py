"""A custom rule with required tensors, another trial, and state between the steps."""

# ruff: noqa: ANN001, ANN201, ANN204 - as such files are written

from collections import deque

import numpy as np
from smdebug.exceptions import TensorUnavailableForStep
from smdebug.rules.req_tensors import RequiredTensors
from smdebug.rules.rule import Rule


class BehindTheOther(Rule):
    """Finds a loss that stays above that of another run."""

    def __init__(
        self, base_trial, other_trials, action_str="", patience: int = 2, names: tuple = ("loss",)
    ):
        super().__init__(base_trial, action_str, other_trials)
        self.patience = patience
        self.names = names
        self.behind = 0
        self.best = np.float32("inf")
        self.history = deque(maxlen=3)
        self.seen = {"names": set()}
        assert isinstance(self.req_tensors, RequiredTensors)

    def set_required_tensors(self, step):
        for name in self.names:
            self.req_tensors.add(name, steps=[step], should_match_regex=True)
        for name in self.req_tensors.get_names():
            self.req_tensors.add(name, steps=[step], trial=self.other_trials[0])

    def invoke_at_step(self, step):
        other = self.other_trials[0]
        for tensor in self.req_tensors.get():
            try:
                mine = tensor.value(step)
            except TensorUnavailableForStep:
                continue
            theirs = other.tensor(tensor.name).value(step)
            self.seen["names"].add(tensor.name)
            self.history.append((step, mine.copy()))
            self.best = np.minimum(self.best, mine)[()]
            self.behind = self.behind + 1 if mine > theirs else 0
            self.report["Details"][step] = float(mine - theirs)
        return self.behind >= self.patience
