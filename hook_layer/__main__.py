"""Runs a training script with a hook in it: `python -m hook_layer [OPTIONS] SCRIPT [ARGUMENTS]`."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", sys.flags.isolated):
        del sys.path[0]  # a `random.py` in the working folder must not hide the library's

    from hook_layer.autopatch.command import main

    sys.exit(main(sys.argv[1:]))
