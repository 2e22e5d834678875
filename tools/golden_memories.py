"""Write the states of all rules in the middle of a run, which later releases must continue.

`python -m tools.golden_memories` writes those of new rules; `--all` writes them for a release.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import rule_runtime.rules
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.engine.registry import available_rules
from rule_runtime.testing.rule_contract import RuleContract
from rule_runtime.testing.rule_evaluations import states_file_by_file
from rule_runtime.testing.trial_builder import TrialBuilder

__all__ = ["GOLDEN", "contract_of", "golden_states", "run_of"]

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "rule_runtime" / "rules" / "golden_memories.json"
RULES = {
    name: rule.__module__.rpartition(".")[2]
    for name, rule in available_rules().items()
    if rule.__module__.startswith(f"{rule_runtime.rules.__name__}.")
}


def contract_of(rule: str) -> RuleContract:
    """Return the contract of a built-in rule, with its healthy and its sick run."""
    tests = importlib.import_module(f"tests.rule_runtime.rules.test_{RULES[rule]}")
    contract: RuleContract = getattr(tests, f"Test{rule}Contract")()
    return contract


def run_of(contract: RuleContract, name: str) -> TrialBuilder:
    """Return the run `healthy` or `sick`."""
    steps = {"healthy": contract.make_steps, "sick": contract.make_sick_steps}
    return contract.build(steps[name], num_workers=2)


def golden_states(rule: str) -> Iterator[dict[str, Any]]:
    """Yield a state for each run, with the number of its files: before a finding, else halfway."""
    contract = contract_of(rule)
    for name in ("healthy", "sick"):
        run = run_of(contract, name)
        states = states_file_by_file(run, contract.make_rule)
        found = [state.status is RuleStatus.ISSUES_FOUND for state in states]
        num_files = max(found.index(True) - 1, 1) if any(found) else len(run.keys) // 2
        state = states[num_files].to_json()
        yield {"rule": rule, "run": name, "files": num_files, "state": state}


def main() -> None:
    """Write the states of rules without any; `--all` writes those of every rule."""
    parser = argparse.ArgumentParser(prog="python -m tools.golden_memories", description=__doc__)
    parser.add_argument("--all", action="store_true", help="replace the states of every rule")
    kept: dict[str, list[dict[str, Any]]] = {}
    if not parser.parse_args().all:
        for each in json.loads(GOLDEN.read_text(encoding="utf-8")):
            kept.setdefault(each["rule"], []).append(each)
    of_rules = [kept.get(rule) or list(golden_states(rule)) for rule in sorted(RULES)]
    text = ",\n".join(json.dumps(each) for each in chain.from_iterable(of_rules))
    GOLDEN.write_text(f"[\n{text}\n]\n", encoding="utf-8")
    print(f"{GOLDEN.relative_to(ROOT)}: states of {len(RULES)} rules")


if __name__ == "__main__":
    main()
