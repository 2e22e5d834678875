from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

os.environ.setdefault("OMP_NUM_THREADS", "1")  # MXNet's threads wait for each other on busy cores

import mxnet as mx
import numpy as np
import pytest

import hook_layer.mxnet as smd
from hook_layer.testing.written_trial import WrittenTrial

_numbers = itertools.count()


@pytest.fixture
def trial() -> WrittenTrial:
    return WrittenTrial(f"memory://mxnet-test-{next(_numbers)}/")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    mx.random.seed(0)
    np.random.seed(0)  # of MXNet's initialisers
    for name in (
        "CHECKPOINT_CONFIG_FILE_PATH",
        "SMDEBUG_CONFIG_FILE_PATH",
        "STEPWATCH_CONFIG",
        "TENSORBOARD_CONFIG_FILE_PATH",
        "TRAINING_JOB_ARN",
        "TRAINING_JOB_NAME",
        "USE_SMDEBUG",
    ):
        monkeypatch.delenv(name, raising=False)
    yield
    hook = smd.get_hook(create_if_not_exists=False)
    if hook is not None:
        hook.close()
        smd.del_hook()
