from __future__ import annotations

import os
from collections.abc import Iterator

os.environ.setdefault("OMP_NUM_THREADS", "1")  # MXNet's threads wait for each other on busy cores

import mxnet as mx
import numpy as np
import pytest

import hook_layer.mxnet as smd


@pytest.fixture(autouse=True)
def _same_numbers_and_no_hook(no_configuration: None) -> Iterator[None]:
    mx.random.seed(0)
    np.random.seed(0)  # of MXNet's initialisers
    yield
    hook = smd.get_hook(create_if_not_exists=False)
    if hook is not None:
        hook.close()
        smd.del_hook()
