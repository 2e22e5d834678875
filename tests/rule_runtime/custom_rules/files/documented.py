"""A custom rule as the original client's documentation writes one."""

# ruff: noqa: ANN001, ANN201, ANN204 - as such files are written

from smdebug.rules import Rule


class QuietGradientRule(Rule):
    def __init__(self, base_trial, threshold=0.0000001):
        super().__init__(base_trial, other_trials=None)
        self.threshold = float(threshold)

    def invoke_at_step(self, step):
        for name in self.base_trial.tensors(collection="gradients"):
            abs_mean = self.base_trial.tensor(name).reduction_value(step, "mean", abs=True)
            if abs_mean < self.threshold:
                return True
        return False
