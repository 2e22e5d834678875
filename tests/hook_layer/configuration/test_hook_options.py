from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from hook_layer.configuration.hook_options import HookOptions, OptionArguments


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stop": "rais"}, "did you mean 'raise'"),
        ({"on_full": "block"}, "on_full='block'"),
        ({"stop_poll_s": 0}, "stop_poll_s=0"),
        ({"stop_poll_s": None}, "stop_poll_s=None"),
        ({"queue_bytes": "1"}, "queue_bytes='1'"),
        ({"queue_bytes": math.inf}, "queue_bytes=inf"),
        ({"max_wait_s": 0}, "max_wait_s=0"),
        ({"close_timeout_s": math.inf}, "close_timeout_s=inf"),
        ({"close_timeout_s": math.nan}, "close_timeout_s=nan"),
        ({"statistics": "yes"}, "statistics='yes'"),
        ({"spool_bytes": -1}, "spool_bytes=-1"),
        ({"spool_bytes": True}, "spool_bytes=True"),
        ({"spool_dir": 3}, "spool_dir=3"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HookOptions(**options)


def test_some_limits_may_be_none() -> None:
    options = HookOptions(close_timeout_s=None, spool_bytes=0, spool_dir=None)
    assert (options.close_timeout_s, options.spool_bytes) == (None, 0)


def test_every_option_is_an_argument_of_hooks() -> None:
    names = [field.name for field in dataclasses.fields(HookOptions)]
    assert list(OptionArguments.__annotations__) == names
