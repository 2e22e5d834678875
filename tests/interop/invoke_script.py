"""Invokes a rule of a file by the original's API, and prints what it did; runs with either client.

python invoke_script.py RULE_FILE CLASS TRIAL OTHER_TRIAL
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import sys

from smdebug.analysis import utils
from smdebug.exceptions import NoMoreData
from smdebug.rules import RequiredTensors, RequiredTensorsForTrial, Rule, invoke_rule
from smdebug.trials import create_trial

CALLABLES = {
    "Rule": Rule.__init__,
    "Rule.invoke": Rule.invoke,
    "Rule.invoke_at_step": Rule.invoke_at_step,
    "Rule.set_required_tensors": Rule.set_required_tensors,
    "invoke_rule": invoke_rule,
    "RequiredTensors": RequiredTensors.__init__,
    **{
        f"{cls.__name__}.{name}": getattr(cls, name)
        for cls in (RequiredTensors, RequiredTensorsForTrial)
        for name in ("add", "get_tensor_steps", "get_names", "get", "clear", "fetch")
    },
    "no_refresh": utils.no_refresh,
    "refresh": utils.refresh,
    "parse_bool": utils.parse_bool,
    "parse_list_from_str": utils.parse_list_from_str,
}


def main(rule_file: str, class_name: str, trial: str, other_trial: str) -> None:
    spec = importlib.util.spec_from_file_location("rule_file", rule_file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rule = getattr(module, class_name)(
        create_trial(trial), other_trials=[create_trial(other_trial)]
    )
    judged = {}
    judge = rule.invoke_at_step

    def noted(step: int) -> bool:
        judged[step] = bool(judge(step))
        return judged[step]

    rule.invoke_at_step = noted
    ending = ""
    try:
        invoke_rule(rule)
    except NoMoreData as error:
        ending = str(error)
    found = {
        "judged": judged,
        "ending": ending,
        "details": rule.report["Details"],
        "best": float(rule.best),
        "parameters": {
            name: list(inspect.signature(one).parameters) for name, one in CALLABLES.items()
        },
        "report": sorted(rule.report),
    }
    print("found:" + json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
