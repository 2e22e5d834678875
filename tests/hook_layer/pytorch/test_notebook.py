"""Hooks in a notebook: cells are run again, and what they left behind is still there."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import hook_layer.pytorch as smd
from hook_layer.testing.written_trial import WrittenTrial

CELL = """
net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
hook = smd.Hook(out_dir, save_config=smd.SaveConfig(save_interval=1), save_all=True)
hook.register_module(net)
for step in range(num_steps):
    optimizer.zero_grad()
    net(torch.ones(3, 4)).sum().backward()
    optimizer.step()
"""


@pytest.fixture
def notebook(tmp_path: Path) -> dict[str, Any]:
    return {"torch": torch, "nn": nn, "smd": smd, "out_dir": str(tmp_path / "run"), "num_steps": 3}


def test_a_cell_that_is_run_again_writes_its_trial_anew(notebook: dict[str, Any]) -> None:
    for num_steps in (1, 2, 3):
        notebook["num_steps"] = num_steps
        exec(CELL, notebook)
    notebook["hook"].close()
    trial = WrittenTrial(notebook["out_dir"])
    assert list(trial.indexes()) == [0, 1, 2]
    assert {index.run for index in trial.indexes().values()} == {trial.job().run_id}
    assert trial.end_marker() is not None


def test_a_cell_is_run_again_after_an_exception(
    notebook: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def cell() -> None:
        exec(CELL + "\nraise KeyError", dict(notebook))

    with pytest.raises(KeyError) as caught:
        cell()
    monkeypatch.setattr(sys, "last_traceback", caught.tb, raising=False)
    exec(CELL, notebook)
    notebook["hook"].close()
    assert not notebook["hook"].report().errors
    assert list(WrittenTrial(notebook["out_dir"]).indexes()) == [0, 1, 2]


AGAIN = """
hook = smd.Hook(out_dir, save_config=smd.SaveConfig(save_interval=1), save_all=True)
hook.register_module(net)
hook.register_loss(loss)
for step in range(3):
    optimizer.zero_grad()
    loss(net(torch.ones(3, 4)), torch.ones(3, 2)).backward()
    optimizer.step()
"""


def num_hooks(net: nn.Module, loss: nn.Module) -> list[int]:
    from torch.optim.optimizer import _global_optimizer_pre_hooks as steps

    modules = [*net.modules(), loss]
    arrivals = [p._post_accumulate_grad_hooks or () for p in net.parameters()]
    return [
        *(len(part._forward_hooks) + len(part._forward_pre_hooks) for part in modules),
        *map(len, arrivals),
        len(steps),
    ]


@pytest.mark.parametrize("are_kept", [False, True])
@pytest.mark.parametrize("have_own_folders", [False, True])
def test_a_newer_hook_of_a_model_replaces_the_older(
    notebook: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
    are_kept: bool,
    have_own_folders: bool,
) -> None:
    caplog.set_level("INFO", "stepwatch")
    net, loss = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)), nn.MSELoss()
    notebook |= {"net": net, "loss": loss, "optimizer": torch.optim.SGD(net.parameters(), 0.1)}
    folder, kept, found = notebook["out_dir"], [], []
    for number in range(4):
        notebook["out_dir"] = f"{folder}-{number}" if have_own_folders else folder
        exec(AGAIN, notebook)
        found.append(num_hooks(net, loss))
        kept += [notebook["hook"]] if are_kept else []
    assert found == [found[0]] * 4
    notebook.pop("hook").close()
    assert [hook.is_active for hook in kept[:-1]] == [False] * len(kept[:-1])
    for number in range(4):
        trial = WrittenTrial(f"{folder}-{number}" if have_own_folders else folder)
        assert list(trial.indexes()) == [0, 1, 2]
        assert trial.end_marker() is not None
    assert caplog.text.count("a newer hook watches this Sequential") == (3 if are_kept else 0)


def test_a_hook_of_several_models_continues_with_the_others(notebook: dict[str, Any]) -> None:
    first, second = nn.Linear(4, 4), nn.Linear(4, 2)
    older = smd.Hook(notebook["out_dir"], save_config=smd.SaveConfig(save_interval=1))
    older.register_module(first)
    older.register_module(second)
    newer = smd.Hook(f"{notebook['out_dir']}-2", save_config=smd.SaveConfig(save_interval=1))
    newer.register_module(first)
    for _ in range(2):
        second(first(torch.ones(1, 4))).sum().backward()
    assert older.is_active
    for hook in (older, newer):
        hook.close()
        assert hook.report().steps_seen == 2
        assert not hook.report().errors


def test_a_hook_without_references_is_gone_at_once(notebook: dict[str, Any]) -> None:
    exec(CELL, notebook)
    known = weakref.ref(notebook.pop("hook"))
    smd.del_hook()
    assert known() is None


def test_a_mistake_in_a_collection_in_mid_training_does_not_end_it(
    notebook: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    exec(CELL, notebook)
    hook, late = notebook["hook"], nn.ReLU()
    hook.get_collection("mine").add_module_tensors(late)
    hook.get_collection("mine").add_module_tensors(notebook["net"][1])
    hook.collection_manager.include.add("mine")
    notebook["hook"].get_collection("typo")
    for _ in range(2):
        notebook["net"](torch.ones(3, 4)).sum().backward()
    hook.close()
    assert list(WrittenTrial(notebook["out_dir"]).indexes()) == [0, 1, 2, 3, 4]
    assert hook.get_collection("mine").tensor_names == {"1_output_0"}
    assert hook.report().errors == {"configuration": 1}
    assert sum("is not registered" in record.message for record in caplog.records) == 1


# Copies, and what is left -------------------------------------------------------------------------


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
def test_a_model_that_has_its_hook_as_an_attribute_is_copied(
    notebook: dict[str, Any], duplicate: Any, caplog: pytest.LogCaptureFixture
) -> None:
    exec(CELL, notebook)
    notebook["net"].my_hook = notebook["hook"]
    twin = duplicate(duplicate(notebook["net"]))
    assert not caplog.records
    for _ in range(2):
        twin.my_hook.save_scalar("loss", 1.0)
    with twin.my_hook as hook:
        hook.register_module(twin)
        twin(torch.ones(3, 4))
    assert not hook.is_active
    assert not hook.should_stop
    assert hook.step == -1
    assert not hasattr(hook, "no_such_method")
    assert sum("copy of a hook" in record.message for record in caplog.records) == 1
    assert smd.get_hook() is notebook["hook"]
    assert notebook["hook"].step == notebook["num_steps"] - 1
    del notebook["net"].my_hook
    notebook["hook"].close()


def test_a_closed_hook_keeps_no_model(notebook: dict[str, Any]) -> None:
    exec(CELL, notebook)
    hook, known = notebook["hook"], weakref.ref(notebook["net"])
    hook.register_loss(nn.MSELoss())
    hook.register_optimizer(notebook["optimizer"])
    hook.close()
    for name in ("net", "optimizer"):
        del notebook[name]
    gc.collect()
    assert known() is None
    assert smd.get_hook() is hook  # as the original's
    assert hook.report().steps_seen == 3
    assert hook.get_collection("all").tensor_names
    hook.register_module(nn.Linear(1, 1))
