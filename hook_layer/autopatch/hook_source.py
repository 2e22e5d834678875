"""Where the hooks of unchanged scripts come from: a configuration file or a folder."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from hook_layer.configuration.configuration_file import (
    OWN_VARIABLE,
    names_file_elsewhere,
    read_configuration_file,
)
from hook_layer.configuration.hook_json import load_hook_configuration
from hook_layer.configuration.job import hook_enabled
from hook_layer.core.hook import BaseHook
from hook_layer.current_hook import CurrentHook
from hook_layer.errors import ConfigurationFileNotFoundError, HookConfigurationError
from hook_layer.process.inactive_copy import InactiveCopy
from hook_layer.run.session_log import SessionLog
from hook_layer.storage.write_check import check_writable

__all__ = ["HookSource", "has_hook"]

logger = logging.getLogger("stepwatch")

OUT_DIR_VARIABLE: Final = "STEPWATCH_OUT_DIR"
"""Variable that names a folder or URI."""

_ONLY_FIRST: Final = (
    "only the first training of a process is watched, this is another one; `stepwatch run` watches "
    "each of them"
)

_Hook = TypeVar("_Hook", bound=BaseHook)


def has_hook(callbacks: Iterable[object]) -> bool:
    """Return whether a hook, or a copy of one, is among callbacks."""
    return any(isinstance(callback, (BaseHook, InactiveCopy)) for callback in callbacks)


@dataclass(frozen=True)
class HookSource:
    """Where hooks come from.

    Attributes:
        config: A configuration file; None: the one that the environment names.
        out_dir: A folder or URI, instead of a configuration file; the hook's defaults apply.
    """

    config: str | None = None
    out_dir: str | None = None
    _made: list[BaseHook] = field(default_factory=list, compare=False, repr=False)
    _warnings: set[str] = field(default_factory=set, compare=False, repr=False)

    @property
    def decides_steps(self) -> bool:
        """Whether steps are those of optimizers, and modes those of the model."""
        return True

    def offers(self, hook: BaseHook) -> bool:  # noqa: ARG002 - of others
        """Return whether this hook waits here for a training."""
        return False

    def is_there(self) -> bool:
        """Return whether hooks are wanted: there is a folder or a file, and no kill switch.

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

    def is_needed(self, earlier: Collection[BaseHook] | None = None) -> bool:
        """Return whether a training that begins is to get a hook; logs if not.

        It is not where the script makes hooks itself, where another adapter watches the training
        already, and, outside of a session, where the folder is that of an earlier training.

        Args:
            earlier: Hooks of trainings that this one is known to follow; None: all so far.
        """
        hook = CurrentHook.of_any_framework()
        if hook is None and not self._made:
            return True
        is_ours = hook is None or hook.collector.only_logs_mistakes
        is_another = earlier is None or all(
            each in earlier for each in self._made if each.is_active
        )
        if not (is_ours and is_another):
            logger.info("this process already has a hook (%s); no other is made", hook)
            return False
        if SessionLog.of_environment() is not None:
            return True
        if _ONLY_FIRST not in self._warnings:
            self._warnings.add(_ONLY_FIRST)
            logger.warning(_ONLY_FIRST)
        return False

    def make(
        self, hook_type: type[_Hook], earlier: Collection[BaseHook] | None = None
    ) -> _Hook | None:
        """Return a new hook for one training; None, and the log says why, if there can be none."""
        if not self.is_needed(earlier):
            return None
        for each in self._made:
            if each.is_refused:
                each.close()
        try:
            if self.out_dir is None:
                hook = hook_type(configuration=load_hook_configuration(self.config))  # type: ignore[call-arg]
            else:
                hook = hook_type(self.out_dir)  # type: ignore[arg-type]  # a framework's
        except HookConfigurationError as error:
            logger.error("no hook is made, and the script runs without one: %s", error)  # noqa: TRY400
            return None
        hook.collector.only_logs_mistakes = True
        hook.limit_values()
        hook.follow(each for each in self._made if each.is_active)
        self._made[:] = [*(each for each in self._made if each.is_active), hook]
        return hook

    @classmethod
    def of(cls, config: str | None, out_dir: str | None) -> HookSource:
        """Return the source that a command line names, or else that of the environment."""
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
        """Return the source of a process whose command line names none."""
        return cls(out_dir=os.environ.get(OUT_DIR_VARIABLE) or None)
