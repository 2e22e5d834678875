"""A custom rule that maps global steps to modes, as rules that AWS has published do."""

# ruff: noqa: ANN001, ANN201, ANN204 - as such files are written

import numpy as np
from smdebug import modes
from smdebug.rules.rule import Rule


class ValidationAccuracyDrops(Rule):
    """Finds a validation step whose accuracy is below the best one."""

    def __init__(self, base_trial, other_trials=None, drop: float = 0.2):
        super().__init__(base_trial, other_trials=other_trials, action_str="")
        self.drop = drop
        self.best = 0.0

    def invoke_at_step(self, step):
        mode, mode_step = self.base_trial._global_to_mode[step]
        if mode != modes.EVAL:
            return False
        outputs, labels = (
            self.base_trial.tensor(name).value(mode_step, mode=modes.EVAL)
            for name in ("outputs", "labels")
        )
        accuracy = float(np.mean(np.argmax(outputs, axis=1) == labels))
        self.report["Details"][step] = accuracy
        self.best = max(self.best, accuracy)
        return accuracy < self.best - self.drop
