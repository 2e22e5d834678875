"""What the callbacks of trainers have in common: a hook, made of arguments or given."""

from __future__ import annotations

import os
from typing import Any, ClassVar

from hook_layer.errors import ConfigurationFileNotFoundError, HookConfigurationError
from hook_layer.process.inactive_copy import InactiveCopy
from hook_layer.pytorch import Hook

__all__ = ["CallbackWithHook"]


class CallbackWithHook:
    """A trainer's callback with a hook.

    Where it is pickled, as for workers that are spawned, the copy makes a hook of its own.

    Args:
        out_dir: Folder, or `s3://bucket/prefix`; None without any further argument: the hook is as
            a configuration file says, if there is one.
        hook: A hook, instead of all other arguments.
        **arguments: Further arguments of `hook_layer.pytorch.Hook`.

    Raises:
        HookConfigurationError: An argument makes no sense.

    Attributes:
        hook: The hook.
        hook_type: Class of the hook that arguments make.
    """

    hook_type: ClassVar[type[Hook]] = Hook

    def __init__(
        self,
        out_dir: str | os.PathLike[str] | None = None,
        *,
        hook: Hook | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__()
        self._made_of = (out_dir, hook, arguments)
        self.hook = self._hook_of(out_dir, hook, arguments)

    def close(self) -> None:
        """Write what is left, and the end marker; called by itself when the process ends."""
        self.hook.close()

    def _is_stop_requested(self) -> bool:
        """Return whether the trainer is to end training; the reason is logged once."""
        reason = self.hook.trainer.stop_reason()
        if reason is None:
            return False
        self.hook.failures.warn_once(
            "training ends after step %d, as requested: %s", self.hook.step, reason
        )
        return True

    @classmethod
    def _hook_of(
        cls,
        out_dir: str | os.PathLike[str] | None,
        hook: Hook | None,
        arguments: dict[str, Any],
    ) -> Hook:
        if hook is not None:
            if out_dir is not None or arguments:
                raise HookConfigurationError(
                    "give a callback either a hook or the arguments of one, not both"
                )
            if not isinstance(hook, (Hook, InactiveCopy)):
                raise HookConfigurationError(f"hook={hook!r} must be a stepwatch.torch.Hook")
            return hook
        if out_dir is None and not arguments:
            try:
                return cls.hook_type.create_from_json_file()
            except ConfigurationFileNotFoundError:
                pass  # the environment may still name a place
        return cls.hook_type(out_dir, **arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (type(self), *self._made_of)


def _remade(
    kind: type[CallbackWithHook],
    out_dir: str | os.PathLike[str] | None,
    hook: Hook | None,
    arguments: dict[str, Any],
) -> CallbackWithHook:
    return kind(out_dir, hook=hook, **arguments)
