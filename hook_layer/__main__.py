"""Runs a training script with a hook in it: `python -m hook_layer [OPTIONS] SCRIPT [ARGUMENTS]`."""

from __future__ import annotations

import sys

from hook_layer.autopatch.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
