"""A hook dies while what it watched is garbage that nobody has collected yet."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import weakref
from pathlib import Path

from hook_layer.weak_method import WeakMethod

TRAINING = """
    import gc, sys
    import torch
    from torch import nn
    import hook_layer.pytorch as hooks

    def train(folder):
        model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(40)])
        model.loop = [model]  # only the garbage collector frees it
        hook = hooks.Hook(folder, save_all=True, termination_timeout_s=None)
        hook.register_module(model)
        model(torch.zeros(2, 4)).sum().backward()
        hook.close()
        return hook

    gc.collect()
    gc.disable()
    hook = train(sys.argv[1])
    hooks.del_hook()
    gc.set_threshold(1)
    gc.enable()
    del hook
    print("alive")
"""


def test_the_process_survives_the_end_of_a_hook_whose_model_is_garbage(tmp_path: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(TRAINING), str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "alive"), done.stderr


class Owner:
    def method(self, number: int) -> int:
        return number + 1


def test_a_method_is_known_as_long_as_its_owner_lives() -> None:
    owner = Owner()
    known = [WeakMethod(owner.method) for _ in range(3)]
    method = known[0]()
    assert method is not None
    assert method(1) == 2
    assert weakref.getweakrefcount(owner) == 1
    del method, owner
    assert [one() for one in known] == [None] * 3
