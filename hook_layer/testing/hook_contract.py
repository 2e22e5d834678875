"""A test suite that the hook of every framework must pass.

```python
class TestMyFramework(HookContract):
    adapter = "My framework"
    hook_type = Hook
    loss_name = "loss_output_0"
    names = {"losses": "loss_output_0", "weights": "net_weight", "gradients": "gradient/net_weight"}
    more_names = ("net_input_0", "net_output_0")

    def train(self, hook, *, steps, evaluations=0, on_step=nothing):
        ...
        return Trained(digest_of(weights), losses)
```

`TrainingUnderTest` has further attributes. Each test belongs to a property, which is a row in the
table of all adapters. Name properties that a framework cannot support in `missing`, with a reason;
their tests are skipped.
"""

from __future__ import annotations

from hook_layer.testing.run_contract import RunContract
from hook_layer.testing.tensor_contract import TensorContract
from hook_layer.testing.training_under_test import (
    PROPERTIES,
    OnStep,
    Trained,
    TrainingUnderTest,
    digest_of,
    nothing,
)

__all__ = [
    "PROPERTIES",
    "HookContract",
    "OnStep",
    "Trained",
    "TrainingUnderTest",
    "digest_of",
    "nothing",
]


class HookContract(TensorContract, RunContract):
    """Tests for the hook of every framework; subclass it and provide a training."""
