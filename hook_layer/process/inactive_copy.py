"""Replaces copies of a hook by an inactive object: two hooks must not write to one trial.

`copy.deepcopy` and `pickle` copy a hook that is an attribute of a model; `sklearn.clone` and Dask
copy one that is a callback. Threads, locks and open files cannot be copied.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from typing_extensions import Self

from hook_layer.format.modes import ModeKeys

__all__ = ["InactiveCopy"]

logger = logging.getLogger("stepwatch")

_VALUES: Final[dict[str, Any]] = {
    "is_active": False,
    "mode": ModeKeys.GLOBAL,
    "should_stop": False,
    "step": -1,
    "stop_reason": None,
}


class InactiveCopy:
    """Has the public methods of a hook, which do nothing; warns once."""

    _has_said_it = False

    def __init__(self, hook_type: type) -> None:
        self._hook_type = hook_type

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in _VALUES:
            return _VALUES[name]
        # Other attributes have unknown values here.
        return self._do_nothing if callable(getattr(self._hook_type, name)) else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    def _do_nothing(self, *_: Any, **__: Any) -> None:
        if not self._has_said_it:
            self._has_said_it = True
            logger.warning(
                "this copy of a hook saves nothing. It was made by deepcopy, clone, pickle "
                "or another process; create the hook in the process that trains."
            )
