from __future__ import annotations

import time

from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.tiny_hook import W, make_hook


def test_an_index_has_the_time_at_which_its_step_began(trial: WrittenTrial) -> None:
    before = time.time()
    hook = make_hook(trial)
    for _ in range(3):
        hook.train(W)
    hook.close()
    times = [index.time or 0 for index in trial.indexes().values()]
    assert len(times) == 3
    assert before <= times[0] <= times[1] <= times[2] <= time.time()
