"""Where the hooks of unchanged scripts come from: a configuration file or a folder."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar
from weakref import ref

from hook_layer.autopatch.process_groups import is_one_of_several
from hook_layer.autopatch.run_notes import RunNotes
from hook_layer.config import hook_enabled
from hook_layer.configuration.configuration_file import (
    OWN_VARIABLE,
    names_file_elsewhere,
    read_configuration_file,
)
from hook_layer.configuration.hook_json import load_hook_configuration
from hook_layer.current_hook import CurrentHook
from hook_layer.errors import ConfigurationFileNotFoundError, HookConfigurationError
from hook_layer.original_api import OriginalApi
from hook_layer.storage.probing import check_writable

__all__ = ["HookSource"]

logger = logging.getLogger("stepwatch")

OUT_DIR_VARIABLE: Final = "STEPWATCH_OUT_DIR"
"""Variable that names a folder or URI."""

_Hook = TypeVar("_Hook", bound=OriginalApi)


@dataclass(frozen=True)
class HookSource:
    """Where hooks come from.

    Attributes:
        config: A configuration file; None: the one that the environment names.
        out_dir: A folder or URI, in place of a configuration file; the hook's defaults apply.
    """

    config: str | None = None
    out_dir: str | None = None

    def is_there(self) -> bool:
        """Tell whether hooks are wanted: there is a folder or a file, and no kill switch.

        A file in S3 is not asked for: every start of Python would wait for the answer.
        """
        if not hook_enabled():
            return False
        if self.out_dir is not None or (self.config is None and names_file_elsewhere()):
            return True
        try:
            read_configuration_file(self.config)
        except ConfigurationFileNotFoundError:
            return False
        return True

    def check(self) -> None:
        """Check the folder, or the configuration file as far as it can be without a framework.

        Raises:
            HookConfigurationError: The file has a mistake.
            ValueError: The folder's URI cannot be opened.
            StorageError: Nothing can be written into the folder.
        """
        if self.out_dir is None:
            load_hook_configuration(self.config)
        elif hook_enabled():
            check_writable(self.out_dir)

    def is_needed(self) -> bool:
        """Tell whether the process has no hook yet, of whatever framework; logs if it has one."""
        hook = CurrentHook.of_any_framework()
        if hook is None:
            return True
        kind = type(hook)
        name = f"{kind.__module__}.{kind.__qualname__}"
        logger.info("this process has a hook already, a %s, and gets no other", name)
        return False

    def make(self, hook_type: type[_Hook]) -> _Hook | None:
        """Return a new hook; None, with the reason logged, if there can be none.

        A process gets one: there is none where the script, or another framework's adapter, has made
        one before, and where another training of the same watched command has begun before.

        Args:
            hook_type: The framework's hook.
        """
        notes = RunNotes.of_environment()
        if not self.is_needed():
            return None
        if notes is not None and not notes.may_train(is_one_of_several=is_one_of_several()):
            return None
        try:
            if self.out_dir is None:
                hook = hook_type.create_from_json_file(self.config)
            else:
                hook = hook_type(self.out_dir)  # type: ignore[arg-type]  # a framework's
        except HookConfigurationError as error:
            logger.error("nothing is saved, the script runs as it is: %s", error)  # noqa: TRY400
            return None
        hook.only_logs_mistakes = True
        if notes is not None:
            _call_when_closed(hook, notes.training_ended)
        return hook

    @classmethod
    def of(cls, config: str | None, out_dir: str | None) -> HookSource:
        """Return the source that a command line names, or else that of the environment.

        Args:
            config: A configuration file.
            out_dir: A folder or URI.
        """
        return cls(config, out_dir) if config or out_dir else cls.of_environment()

    def environment(self) -> dict[str, str]:
        """Return the variables by which another Python finds this source.

        Paths are made absolute, for scripts may change the folder.
        """
        named = {OWN_VARIABLE: self.config, OUT_DIR_VARIABLE: self.out_dir}
        if self.config is not None:
            named[OUT_DIR_VARIABLE] = self.out_dir or ""
        return {
            name: str(Path(value).absolute()) if value and "://" not in value else value
            for name, value in named.items()
            if value is not None
        }

    @classmethod
    def of_environment(cls) -> HookSource:
        """Return the source of a process that was not told of one by its command line."""
        return cls(out_dir=os.environ.get(OUT_DIR_VARIABLE) or None)


def _call_when_closed(hook: OriginalApi, callback: Callable[[], None]) -> None:
    """Call something behind each `close` of a hook."""
    kind, owner = type(hook), ref(hook)  # a strong one would keep the hook alive by itself

    def close(**options: Any) -> None:
        closed = owner()
        if closed is not None:
            kind.close(closed, **options)
        callback()

    hook.close = close  # type: ignore[method-assign]
