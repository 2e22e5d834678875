"""The same configuration file means the same to the original's hook and to ours."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import hook_layer.pytorch as smd
from tests.hook_layer import original_collections
from tests.interop.environment import SMDEBUG_PYTHON

pytestmark = pytest.mark.other_environment


def documents() -> list[dict[str, Any]]:
    """Return files without what the original documents and does not do, or the other way round."""
    collection = [
        {"CollectionName": "gradients"},
        {"CollectionName": "weights", "CollectionParameters": None},
        {"CollectionName": "losses", "CollectionParameters": {"reductions": "mean"}},
        {
            "CollectionName": "mine",
            "CollectionParameters": {
                "include_regex": "a, b",
                "reductions": "min,abs_max,l1_norm,abs_l2_norm",
                "save_raw_tensor": True,
                "save_shape": True,
                "save_histogram": "False",
            },
        },
    ]
    found: list[dict[str, Any]] = [
        {},
        {"HookParameters": None, "CollectionConfigurations": None},
        {"CollectionConfigurations": collection},
        {"HookParameters": {"save_all": "True", "include_regex": "x,y", "reductions": "std,prod"}},
        {"HookParameters": {"train.save_steps": "1,2", "predict.end_step": 7}},
    ]
    levels = ["save_interval", "train.save_interval", "eval.start_step", "save_steps"]
    for of_hook, of_collection in itertools.product(range(0, 16, 3), range(0, 16, 5)):
        hook = {key: f"{2 + i}" for i, key in enumerate(levels) if of_hook >> i & 1}
        own = {key: f"{20 + i}" for i, key in enumerate(levels) if of_collection >> i & 1}
        found.append(
            {
                "HookParameters": hook,
                "CollectionConfigurations": [
                    {"CollectionName": "gradients", "CollectionParameters": own},
                    {"CollectionName": "biases", "CollectionParameters": {"end_step": "9"}},
                ],
            }
        )
    return found


def test_the_original_makes_the_same_of_the_same_files(tmp_path: Path) -> None:
    paths = []
    for i, document in enumerate(documents()):
        paths.append(tmp_path / f"{i}.json")
        paths[-1].write_text(json.dumps({"LocalPath": str(tmp_path / f"out-{i}"), **document}))
    done = subprocess.run(
        [str(SMDEBUG_PYTHON), "-I", original_collections.__file__, *map(str, paths)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "SMDEBUG_LOG_LEVEL": "error"},
    )
    theirs = json.loads(done.stdout.splitlines()[-1])
    assert len(theirs) == len(paths)
    for path, their in zip(paths, theirs, strict=True):
        hook = smd.Hook.create_from_json_file(path)
        manager = hook.collection_manager
        ours = {
            "include": sorted(manager.include),
            "collections": manager.to_json_dict()["collections"],
        }
        assert ours == their, path.read_text()
        hook.close()
