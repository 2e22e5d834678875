"""Runs the command `stepwatch`, as `python -m stepwatch`."""

from __future__ import annotations

from rule_runtime.cli import main

if __name__ == "__main__":
    main()
