"""The contract that the hook of every framework keeps, as a suite of tests.

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

`TrainingUnderTest` has the rest of what can be said. The tests belong to properties, which are the
rows of a table of all adapters. A property that a framework cannot have is named in `missing`, with
the reason; its tests are skipped with it.
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
    """Tests that hold for the hook of every framework; subclass it and give it a training."""
