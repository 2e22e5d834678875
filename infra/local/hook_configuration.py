"""Writes a hook configuration that saves what the deployed rules need.

In the cloud, the owner of a job configures its hook. Without a configuration, a hook saves little
more than losses.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from infra.local.functions import ClientFactory
from infra.rule_settings import query_rules
from lambdas.contracts.environment import GROUPED_RULES, RULE_PARAMETERS

__all__ = ["SAVE_INTERVAL", "write_hook_configuration"]

SAVE_INTERVAL = 10
"""Interval of saved steps after the first, dense ones, as in `stepwatch run`."""

# Runs in another process, because infra must not import the rules.
PRINT_COLLECTIONS = """
import json, sys
from rule_runtime.configuration.named_rules import collections_for
from rule_runtime.engine.registry import create_rule
asked = json.load(sys.stdin)
rules = [create_rule(given["rule_to_invoke"], given) for given in asked["rules"]]
named = {str(number): rule for number, rule in enumerate(rules)}
collections = collections_for(named, asked["save_interval"], begins_densely=True)
print(json.dumps([each.to_json() for each in collections]))
"""


def write_hook_configuration(client: ClientFactory, output_path: str, path: Path) -> None:
    """Write a configuration file for `STEPWATCH_CONFIG` that suits the deployed rules.

    Each training writes to a folder with its name below `output_path`.

    Raises:
        RuleCheckError: No hook can save the data of all rules, or the rules cannot be read.
    """
    asked = {"rules": _deployed_rules(client), "save_interval": SAVE_INTERVAL}
    collections = json.loads(query_rules(("-c", PRINT_COLLECTIONS), json.dumps(asked)))
    content = {
        "DebugHookConfig": {
            "S3OutputPath": output_path,
            "HookParameters": {"save_interval": str(SAVE_INTERVAL), "stop_poll_s": "0.5"},
            "CollectionConfigurations": collections,
        },
        # A deployment stops only jobs that opt in, and here all jobs are the user's own.
        "Actions": [{"name": "stoptraining"}],
    }
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")


def _deployed_rules(client: ClientFactory) -> list[dict[str, Any]]:
    """Return the parameters of each rule with a function."""
    found = []
    for page in client("lambda").get_paginator("list_functions").paginate():
        for function in page["Functions"]:
            variables = function.get("Environment", {}).get("Variables", {})
            if parameters := variables.get(RULE_PARAMETERS):
                found.append(json.loads(parameters))
            grouped = json.loads(variables.get(GROUPED_RULES, "{}"))
            found += [{"rule_to_invoke": name, **given} for name, given in grouped.items()]
    return found
