"""Every public name of the original's for reading trials: there, with its arguments and texts.

`smdebug_trial_api.py` is the table; what the names do is in the tests beside this one, and in
`tests/interop/test_live_trials.py` side by side with the original.
"""

from __future__ import annotations

import inspect
import json

import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime import create_trial
from rule_runtime.trial.errors import SMDebugNotImplementedError
from rule_runtime.trial.trial import Trial
from tests.interop.environment import SMDEBUG_PYTHON
from tests.rule_runtime.outcomes import make_run
from tests.rule_runtime.processes import completed
from tests.rule_runtime.trial import smdebug_trial_api
from tests.rule_runtime.trial.smdebug_trial_api import (
    ATTRIBUTES,
    CALLABLES,
    ERRORS,
    arguments_of,
    error_facts,
    found,
)

WRITING = {"add_reduction_step", "add_step"}
"""Methods by which the original's reader fills its own tensors."""


@pytest.mark.parametrize("name", CALLABLES)
def test_the_name_is_there_with_its_arguments(name: str) -> None:
    place, _, expected = CALLABLES[name]
    assert arguments_of(found(place)) == expected


def test_the_attributes_are_there() -> None:
    trial = Trial(make_run({"a": [1.0]}).store, name="t")
    for name in ATTRIBUTES["Trial"]:
        getattr(trial, name)
    for name in ATTRIBUTES["Tensor"]:
        getattr(trial.tensor("a"), name)


def test_create_trial_takes_what_the_originals_takes() -> None:
    parameters = inspect.signature(create_trial).parameters
    assert list(parameters)[:4] == ["path", "name", "profiler", "output_dir"]
    assert parameters["output_dir"].default == "/opt/ml/processing/outputs/"
    assert set(parameters) >= {"range_steps", "parallel", "check", "index_mode", "cache"}


def test_step_was_removed_long_ago() -> None:
    builder = make_run({"a": [1.0]})
    with pytest.raises(
        SMDebugNotImplementedError, match=r"step method has been removed\. Please"
    ) as e:
        Trial(builder.store, name="t").tensor("a").step(step_num=0)
    assert isinstance(e.value, NotImplementedError)


@pytest.mark.other_environment
def test_the_table_is_the_originals() -> None:
    done = completed(
        [str(SMDEBUG_PYTHON), "-I", smdebug_trial_api.__file__], check=True, timeout=120
    )
    signatures, methods, methods_of_tensor, errors, opening = json.loads(
        done.stdout.splitlines()[-1]
    )
    assert signatures == {name: arguments for name, (_, _, arguments) in CALLABLES.items()}
    assert {f"Trial.{name}" for name in methods} <= set(CALLABLES)
    assert {f"Tensor.{name}" for name in methods_of_tensor} - set(CALLABLES) == {
        f"Tensor.{name}" for name in WRITING
    }
    assert errors == error_facts("rule_runtime.trial.errors", ModeKeys)
    assert opening.startswith("(path, name=None, profiler=False, output_dir=")


def test_texts_are_not_those_of_another_error() -> None:
    texts = [facts[0] for facts in error_facts("rule_runtime.trial.errors", ModeKeys).values()]
    assert len(set(texts)) == len(ERRORS)
