"""Makes Stepwatch available under the original client's names, for its scripts and rules.

```python
import rule_runtime.smdebug_alias; rule_runtime.smdebug_alias.install()
```

From then on, `smdebug`, its public modules and `smdebug_rulesconfig` are Stepwatch's in this
process. You must enable it explicitly. For an unchanged script, run:

```
python -m rule_runtime.smdebug_alias train.py --epochs 3
```

Frameworks are imported only with a name that needs them: `smdebug.pytorch` has `modes` and
`create_trial` without PyTorch, and `smdebug.pytorch.Hook` reports what to install.

If the real `smdebug` is installed, you need `replace=True`, because a program must not mix both. A
real `smdebug_rulesconfig` always stays: the SageMaker SDK installs it, and its configurations are
the same.
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
    """The original's names cannot be replaced, because the original is installed."""


def install(*, replace: bool = False) -> None:
    """Make the original's names refer to Stepwatch in this process; a second call does nothing.

    Args:
        replace: True to hide an installed `smdebug`.

    Raises:
        AliasError: If the real `smdebug` is installed without `replace`, or was imported.
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
    # First in the path, because a folder of that name in the working directory is also a package.
    sys.meta_path.insert(0, AliasFinder(roots))


def uninstall() -> None:
    """Restore the names; imported objects stay usable."""
    sys.meta_path[:] = [one for one in sys.meta_path if not isinstance(one, AliasFinder)]
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if spec is not None and isinstance(spec.loader, AliasLoader):
            del sys.modules[name]


def is_installed() -> bool:
    """Return whether the original's names refer to Stepwatch."""
    return any(isinstance(finder, AliasFinder) for finder in sys.meta_path)


def _is_imported(root: str) -> bool:
    return sys.modules.get(root) is not None


def _place_of(root: str) -> str | None:
    """Return the location of a package; None for none, and for a folder without modules."""
    spec = PathFinder.find_spec(root)
    return None if spec is None else spec.origin
