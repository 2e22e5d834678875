"""The rights that the page Alarms gives an operator, and those that a command asks for."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from botocore.client import BaseClient

from tests.docs.page_blocks import DOCS

__all__ = ["asked_for", "granted"]

_CALLED_OTHERWISE = {"lambda:Invoke": "lambda:InvokeFunction"}
_WITHOUT_RESOURCES = {"cloudwatch:GetMetricData", "cloudwatch:ListMetrics"}
_OF_NOBODY = {"sts:GetCallerIdentity"}
"""Needs no right."""


def granted(sid: str) -> set[str]:
    """Return the actions of the page's policy that has a statement of this Sid."""
    text = (DOCS / "how-to" / "alarms.md").read_text(encoding="utf-8")
    policies = [
        json.loads(block) for block in re.findall(r"```json[^\n]*\n(.*?)```", text, re.DOTALL)
    ]
    (statements,) = [
        policy["Statement"]
        for policy in policies
        if any(each["Sid"] == sid for each in policy["Statement"])
    ]
    actions: set[str] = set()
    for statement in statements:
        named = statement["Action"]
        actions |= {named} if isinstance(named, str) else set(named)
        assert "*" not in "".join(actions)
        assert statement["Resource"] != "*" or set(named) <= _WITHOUT_RESOURCES
    return actions


def asked_for(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return a set that gets every action that clients ask for from now on."""
    asked: set[str] = set()
    call = BaseClient._make_api_call  # type: ignore[attr-defined]

    def noted(self: Any, operation_name: str, api_params: Any) -> Any:
        action = f"{self.meta.service_model.service_name}:{operation_name}"
        asked.update({_CALLED_OTHERWISE.get(action, action)} - _OF_NOBODY)
        return call(self, operation_name, api_params)

    monkeypatch.setattr(BaseClient, "_make_api_call", noted)
    return asked
