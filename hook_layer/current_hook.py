"""The current hook of a framework, which `get_hook` returns."""

from __future__ import annotations

import logging
import os
from typing import Any, ClassVar, Generic, TypeVar

from hook_layer.configuration.job import hook_enabled
from hook_layer.core.hook import BaseHook
from hook_layer.errors import ConfigurationFileNotFoundError, HookConfigurationError

__all__ = ["CurrentHook"]

logger = logging.getLogger("stepwatch")

_Hook = TypeVar("_Hook", bound=BaseHook)


class CurrentHook(Generic[_Hook]):
    """Holds the newest hook of a framework, or the one set last."""

    _of_frameworks: ClassVar[list[CurrentHook[Any]]] = []
    """Those of all frameworks, the one that was set last first."""

    def __init__(self, hook_type: type[_Hook]) -> None:
        self._hook_type = hook_type
        self._hook: _Hook | None = None
        self._of_frameworks.append(self)

    def __reduce__(self) -> Any:
        """Pickle by name, as `get_hook` is: there is one object per process."""
        return getattr, (self._hook_type, "current")

    @classmethod
    def of_any_framework(cls) -> BaseHook | None:
        """Return the newest hook that this process made or set; None: there is none."""
        for current in cls._of_frameworks:
            if current._has_own:  # noqa: SLF001 - of this class
                hook: BaseHook | None = current._hook  # noqa: SLF001
                return hook
        return None

    @property
    def _has_own(self) -> bool:
        """Whether there is a hook that was not made before this process was forked."""
        return self._hook is not None and not self._hook.state.is_forked

    def get_hook(
        self,
        json_config_path: str | os.PathLike[str] | None = None,
        create_if_not_exists: bool = False,
    ) -> _Hook | None:
        """Return the current hook, or create one from a configuration file.

        Args:
            json_config_path: The file; None: as `create_from_json_file` finds it.
            create_if_not_exists: Whether one is made if there is none, or only one that was made
                before this process was forked, which does nothing here.

        Returns:
            The hook; None without a hook and a file, and if `USE_SMDEBUG` disables hooks.

        Raises:
            HookConfigurationError: The file has a mistake.
        """
        if not hook_enabled():
            return None
        if create_if_not_exists and not self._has_own:
            try:
                self._hook = self._hook_type.create_from_json_file(json_config_path)
            except ConfigurationFileNotFoundError as error:
                logger.info("no hook is created: %s", error)
        return self._hook

    def set_hook(self, custom_hook: _Hook) -> None:
        """Set the hook that `get_hook` returns.

        Raises:
            HookConfigurationError: It is not a hook of this framework.
        """
        if not isinstance(custom_hook, self._hook_type):
            raise HookConfigurationError(f"custom_hook={custom_hook!r} must be a {self._hook_type}")
        self._hook = custom_hook
        self._of_frameworks.remove(self)
        self._of_frameworks.insert(0, self)

    def del_hook(self) -> None:
        """Forget the hook that `get_hook` returns; the hook itself continues."""
        self._hook = None
