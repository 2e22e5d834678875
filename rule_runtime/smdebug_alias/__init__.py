"""Lets scripts and rules that were written for the original client find ours under its names.

```python
import rule_runtime.smdebug_alias; rule_runtime.smdebug_alias.install()
```

From then on `smdebug`, its public modules and `smdebug_rulesconfig` are ours in this process. It is
off unless asked for. A script need not be changed for it:

```
python -m rule_runtime.smdebug_alias train.py --epochs 3
```

No framework is imported before a name is used that needs it: `smdebug.pytorch` gives `modes` and
`create_trial` where there is no PyTorch, and `smdebug.pytorch.Hook` says what to install.

Where the real `smdebug` is installed, nothing is changed without `replace=True`: half of a program
would use the one and half the other. A real `smdebug_rulesconfig` always stays, for the SageMaker
SDK brings it along and its configurations are the same.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from typing import Final

from rule_runtime.smdebug_alias.finder import AliasFinder, AliasLoader

__all__ = ["AliasError", "install", "is_installed", "uninstall"]

_CLIENT: Final = "smdebug"
_CONFIGURATIONS: Final = "smdebug_rulesconfig"


class AliasError(ImportError):
    """The original's names cannot be taken, for they are the original's here."""


def install(*, replace: bool = False) -> None:
    """Let the original's names mean ours, in this process; a second call changes nothing.

    Args:
        replace: True to hide a real `smdebug` that is installed.

    Raises:
        AliasError: If the real `smdebug` is installed and is not to be hidden, or was imported.
    """
    if is_installed():
        return
    if _is_imported(_CLIENT):
        raise AliasError(
            f"{_place_of(_CLIENT) or _CLIENT} was imported already: call "
            "rule_runtime.smdebug_alias.install() before anything imports smdebug"
        )
    place = _place_of(_CLIENT)
    if place is not None and not replace:
        raise AliasError(
            f"the real smdebug is installed ({place}), and `import smdebug` means that one; "
            "uninstall it (pip uninstall smdebug), or call install(replace=True) to hide it here"
        )
    has_configurations = _is_imported(_CONFIGURATIONS) or _place_of(_CONFIGURATIONS) is not None
    roots = {_CLIENT} if has_configurations else {_CLIENT, _CONFIGURATIONS}
    # In front, for a folder of that name in the working directory is a package too.
    sys.meta_path.insert(0, AliasFinder(roots))


def uninstall() -> None:
    """Give the names back; what was imported under them stays usable."""
    sys.meta_path[:] = [one for one in sys.meta_path if not isinstance(one, AliasFinder)]
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if spec is not None and isinstance(spec.loader, AliasLoader):
            del sys.modules[name]


def is_installed() -> bool:
    """Return whether the original's names mean ours."""
    return any(isinstance(finder, AliasFinder) for finder in sys.meta_path)


def _is_imported(root: str) -> bool:
    return sys.modules.get(root) is not None


def _place_of(root: str) -> str | None:
    """Return where a package is installed; None for none, and for a folder without modules."""
    spec = PathFinder.find_spec(root)
    return None if spec is None else spec.origin
