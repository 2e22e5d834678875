"""Functions of frameworks that also call ours."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping
from typing import Any

import pytest

from hook_layer.capture import patched_functions
from hook_layer.capture.patched_functions import patch, replacing
from hook_layer.errors import TrainingStoppedError


class Model:
    def fit(self, data: int, epochs: int = 1, callbacks: Any = None) -> tuple[Any, ...]:
        """Fit."""
        if data < 0:
            raise ValueError("negative data")
        return data, epochs, callbacks


@pytest.fixture
def model() -> Model:
    class Fresh(Model):
        fit = Model.fit

    return Fresh()


def test_what_is_called_before_may_replace_an_argument_however_it_is_given(model: Model) -> None:
    def replace(arguments: Mapping[str, Any]) -> Any:
        assert arguments["self"] is model
        return [*(arguments.get("callbacks") or ()), "ours"]

    patch(type(model), "fit", before=replacing(Model.fit, "callbacks", replace))
    assert model.fit(1) == (1, 1, ["ours"])
    assert model.fit(1, 2, ["theirs"]) == (1, 2, ["theirs", "ours"])
    assert model.fit(data=1, callbacks=["theirs"]) == (1, 1, ["theirs", "ours"])
    assert model.fit.__doc__ == "Fit."
    with pytest.raises(TypeError, match="unexpected keyword argument 'dat'"):
        model.fit(dat=1)  # type: ignore[call-arg]


def test_what_is_called_after_gets_result_and_arguments(model: Model) -> None:
    calls: list[Any] = []

    def note(result: Any, *args: Any, **kwargs: Any) -> None:
        calls.append((result, args, kwargs))

    restore = patch(type(model), "fit", after=note)
    model.fit(1, epochs=2)
    with pytest.raises(ValueError, match="negative"):
        model.fit(-1)
    assert calls == [((1, 2, None), (model, 1), {"epochs": 2})]
    restore()
    assert type(model).fit is Model.fit


def test_the_original_comes_back_only_where_nobody_else_has_replaced_it(model: Model) -> None:
    restore = patch(type(model), "fit")
    ours = type(model).fit
    type(model).fit = lambda *args: ("theirs", *ours(*args))  # type: ignore[method-assign]
    restore()
    assert model.fit(1)[0] == "theirs"


def test_our_errors_are_logged_and_do_not_reach_the_script(
    model: Model, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise KeyError("ours")

    patch(type(model), "fit", before=fail, after=fail)
    assert model.fit(1) == (1, 1, None)
    assert [record.message for record in caplog.records] == [
        "watching the training failed; the script continues without a hook"
    ] * 2


@pytest.mark.skipif(sys.version_info < (3, 11), reason="up to Python 3.10 frames cannot be hidden")
def test_an_error_of_the_function_shows_no_frame_of_ours(model: Model) -> None:
    patch(type(model), "fit")
    with pytest.raises(ValueError, match="negative") as caught:
        model.fit(-1)
    files = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert patched_functions.__file__ not in files


def test_a_request_to_stop_reaches_the_script(model: Model) -> None:
    def stop(*_: Any) -> None:
        raise TrainingStoppedError("asked to")

    patch(type(model), "fit", before=stop)
    with pytest.raises(TrainingStoppedError):
        model.fit(1)


def test_it_runs_within_a_context(model: Model) -> None:
    class Loops:
        depth = 0

        def __enter__(self) -> None:
            self.depth += 1

        def __exit__(self, *_: object) -> None:
            self.depth -= 1

    loops, depths = Loops(), []
    patch(type(model), "fit", within=loops)
    patch(type(model), "fit", before=lambda *_: depths.append(loops.depth), within=loops)
    with pytest.raises(ValueError, match="negative"):
        model.fit(-1)
    assert (depths, loops.depth) == ([0], 0)
