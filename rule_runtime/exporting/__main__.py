"""Exports the findings on standard input: `python -m rule_runtime.exporting TARGET`."""

from __future__ import annotations

import json
import sys
from importlib import import_module

from rule_runtime.exporting.run_findings import Finding, RunFindings
from rule_runtime.exporting.targets import Target


def _main(target: str) -> int:
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]  # a pipe
    exporter = import_module(f"rule_runtime.exporting.{Target(target).value}")
    for content in json.load(sys.stdin):
        content["findings"] = tuple(Finding(*each) for each in content["findings"])
        try:
            exporter.export_run(RunFindings(**content))
        except Exception as error:  # noqa: BLE001 - the reason is the last line
            text = " ".join(str(error).split())
            print(f"{type(error).__name__}: {text}", file=sys.stderr)  # noqa: T201
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1]))
