"""What holds for every test."""

from __future__ import annotations

import gc
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

# Tests run side by side, and start processes: each with threads of its own would only wait.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

# Processes that tests start begin sooner: see there. Workers inherit it.
CHILD_PROCESSES = str(Path(__file__).parent / "child_processes")
_PATH = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
if CHILD_PROCESSES not in _PATH:
    os.environ["PYTHONPATH"] = os.pathsep.join([CHILD_PROCESSES, *_PATH])

# In a workflow, `stepwatch run` would add the findings of tests to its summary.
os.environ.pop("GITHUB_ACTIONS", None)

# A tenth of the time went into collections: those of the youngest objects find next to nothing.
gc.set_threshold(50_000, 10, 10)


LONG = (
    "tests/e2e/",
    "tests/examples/",
    "tests/architecture/",
    "tests/hook_layer/autopatch/",
    "tests/rule_runtime/cli/test_run",
    "tests/rule_runtime/test_healthy_runs.py",
    "tests/soak/",
    "tests/interop/",
    "tests/infra/",
    "tests/docs/",
    "tests/sagemaker_sdk/",
    "tests/benchmarks/",
    "tests/lambdas/histories/",
    "tests/test_readme.py",
    "tests/rule_runtime/embedded/",
    "tests/rule_runtime/ui/",
)
"""What takes long, most of it in processes that are waited for; the longest first."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long: at the end one worker would run it while the others are idle."""

    def rank(item: pytest.Item) -> int:
        return next((at for at, long in enumerate(LONG) if item.nodeid.startswith(long)), len(LONG))

    items.sort(key=rank)


def pytest_configure(config: pytest.Config) -> None:
    """Let no property fail because the machine is busy, and keep the order of the tests."""
    if config.pluginmanager.hasplugin("xdist"):
        config.option.loadscopereorder = False  # else files with few tests, the long ones, are last
    if config.pluginmanager.hasplugin("hypothesispytest"):
        from hypothesis import settings

        settings.register_profile("stepwatch", deadline=None)
        settings.load_profile("stepwatch")


@pytest.fixture(autouse=True)
def _same_random_weights_in_any_order() -> None:
    """Give a test the same random weights and inputs wherever it runs among the others."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(0)


def pytest_collection_finish() -> None:
    """Set aside what imported libraries hold: each garbage collection would look through it all."""
    _read_service_models_once()
    gc.collect()
    gc.freeze()


def _read_service_models_once() -> None:
    """Let clients of AWS share what botocore reads of its own files: most tests make new ones."""
    loaders = sys.modules.get("botocore.loaders")
    if loaders is None:
        return
    read = cache(loaders.JSONFileLoader().load_file)
    loaders.JSONFileLoader.load_file = lambda _, file_path: read(file_path)
    list_services = loaders.Loader.list_available_services
    listed: dict[tuple[str, ...], list[str]] = {}

    def list_once(loader: Any, type_name: str) -> list[str]:
        key = (type_name, *loader.search_paths)
        if key not in listed:
            listed[key] = list_services(loader, type_name)
        return listed[key]

    loaders.Loader.list_available_services = list_once
