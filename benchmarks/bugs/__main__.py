"""Run programs with real bugs under Stepwatch, buggy and fixed, and print the findings.

python -m benchmarks.bugs [--part keras|torch] [NAME ...] [--table]

The programs and their causes are in the folders `keras` and `torch`; README.md describes them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
ENVIRONMENTS: Final = {"keras": ".venv-frameworks", "torch": ".venv"}
"""Folder of the environment whose Python runs the programs of a part."""
VERDICTS: Final = (0, 1)
"""Exit statuses of `stepwatch run` where rules judged: no issue, and an issue."""


@dataclass(frozen=True)
class Outcome:
    """Result of one variant: findings as (rule, first sentence), cause, or why it failed."""

    findings: tuple[tuple[str, str], ...] = ()
    cause: str = "-"
    failure: str = ""

    @property
    def rules(self) -> str:
        """Names of the rules with a finding, for a cell of a table."""
        return self.failure or ", ".join(dict.fromkeys(rule for rule, _ in self.findings)) or "-"


def main() -> None:
    """Run the programs that the command line names, or all."""
    arguments = _arguments()
    outcomes: dict[str, tuple[Outcome, Outcome]] = {}
    for path in _programs(arguments.part, arguments.names):
        name = f"{path.parent.name}/{path.stem}"
        outcomes[name] = (watch(path), watch(path, "--fixed"))
        if not arguments.table:
            _print_program(name, *outcomes[name])
    if arguments.table:
        print("| program | buggy | cause | fixed |", "|---|---|---|---|", sep="\n")
        for name, (buggy, fixed) in outcomes.items():
            print(f"| {name} | {buggy.rules} | {buggy.cause} | {fixed.rules} |")
    for i, variant in enumerate(("buggy", "fixed")):
        count = sum(bool(pair[i].findings) for pair in outcomes.values())
        print(f"{variant} with a finding: {count} of {len(outcomes)}")
    if any(outcome.failure for pair in outcomes.values() for outcome in pair):
        sys.exit("Some programs failed.")


def watch(path: Path, *options: str) -> Outcome:
    """Run a program with `stepwatch run` in the environment of its part.

    Args:
        path: The program, in the folder of its part.
        options: Options of the program, for example `--fixed`.

    Returns:
        Its findings, or why there is no verdict.
    """
    binaries = ROOT / ENVIRONMENTS[path.parent.name] / "bin"
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "KERAS_BACKEND": "torch"}
    env["PATH"] = f"{binaries}{os.pathsep}{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as folder:
        verdicts = Path(folder) / "verdicts.json"
        command = [str(ROOT / ".venv/bin/stepwatch"), "run", "--output", "json"]
        command += ["--output-file", str(verdicts), "--out-dir", str(Path(folder) / "run"), "--"]
        command += [str(binaries / "python"), str(path), *options]
        done = subprocess.run(
            command, check=False, cwd=folder, env=env, capture_output=True, text=True
        )
        if done.returncode not in VERDICTS or not verdicts.exists():
            output = done.stderr.strip() or "no output"
            return Outcome(failure=f"exit status {done.returncode}: {output.splitlines()[-1]}")
        entries = json.loads(verdicts.read_text(encoding="utf-8"))
    issues = (entry for entry in entries if entry["RuleEvaluationStatus"] == "IssuesFound")
    findings = tuple((e["RuleConfigurationName"], _first_sentence(e)) for e in issues)
    causes = (e["Diagnosis"]["Cause"] for e in entries if e["Diagnosis"])
    return Outcome(findings, next(causes, "-"))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bugs", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs; default: all")
    parser.add_argument("--part", choices=ENVIRONMENTS, help="default: both parts")
    parser.add_argument("--table", action="store_true", help="print a Markdown table of the rules")
    return parser.parse_args()


def _programs(part: str | None, names: list[str]) -> list[Path]:
    paths = [p for key in ([part] if part else ENVIRONMENTS) for p in (HERE / key).glob("*.py")]
    unknown = set(names) - {path.stem for path in paths}
    if unknown:
        sys.exit(f"There is no program {', '.join(sorted(unknown))}; see {HERE}.")
    return sorted(path for path in paths if not names or path.stem in names)


def _first_sentence(entry: dict[str, Any]) -> str:
    text: str = (entry["Evidence"] or {}).get("sentence") or entry["StatusDetails"]
    return text.partition(". ")[0]


def _print_program(name: str, buggy: Outcome, fixed: Outcome) -> None:
    print(name)
    for variant, outcome in (("buggy", buggy), ("fixed", fixed)):
        lines = [f"{rule}: {sentence}" for rule, sentence in outcome.findings]
        for line in lines or [outcome.failure or "no finding"]:
            print(f"  {variant}  {line}", flush=True)


if __name__ == "__main__":
    main()
