"""Actions on a finding, with the names of `smdebug_rulesconfig`.

Differences from there: an address may have capitals, dots, plus signs and several domains. `Email`
and `SMS` can replace a list. Checking an action executes nothing. Texts that are too long for a
training job are refused here, not when the job is created.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final

__all__ = [
    "SMS",
    "Action",
    "ActionList",
    "Email",
    "StopTraining",
    "as_actions",
    "is_valid_action_object",
    "listed_actions",
]

MAX_ACTION_CHARACTERS: Final = 256
"""Longest value of a parameter of a rule in CreateTrainingJob."""

_PREFIX: Final = re.compile(r"[A-Za-z0-9\-]{1,63}")
_EMAIL: Final = re.compile(
    r"[A-Za-z0-9.!#$%&*+/=?^_`{|}~\-]{1,64}@([A-Za-z0-9\-]{1,63}\.)+[A-Za-z]{2,63}"
)
_PHONE: Final = re.compile(r"\+[0-9]{1,15}")


class Action:
    """Base class of the actions.

    Args:
        action_parameters: Its parameters; None for a parameter without a value.

    Attributes:
        action_parameters: Its parameters and its `name`, in the form for rules.
    """

    def __init__(self, **action_parameters: str | None) -> None:
        given = {key: value for key, value in action_parameters.items() if value is not None}
        self.action_parameters = {**given, "name": type(self).__name__.lower()}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.action_parameters})"

    def update_training_job_prefix_if_not_specified(self, training_job_name: str) -> None:
        """Use a job's name as missing prefix; most actions have none."""

    def serialize(self) -> str:
        """Return the action for a rule's parameter `action_json`.

        Raises:
            ValueError: If it is longer than a parameter can be.
        """
        return _checked([self], "", "")


class StopTraining(Action):
    """Stops the training job.

    Args:
        training_job_prefix: Prefix of the job's name; by default, the job's name.

    Raises:
        ValueError: If it cannot be a prefix of a job's name.
    """

    def __init__(self, training_job_prefix: str | None = None) -> None:
        self.use_default_training_job_prefix = training_job_prefix is None
        if training_job_prefix is not None:
            _check(_PREFIX, "training_job_prefix", training_job_prefix, "letters, digits and '-'")
        super().__init__(training_job_prefix=training_job_prefix)

    def update_training_job_prefix_if_not_specified(self, training_job_name: str) -> None:
        """Use a job's name as missing prefix."""
        if self.use_default_training_job_prefix:
            self.action_parameters["training_job_prefix"] = training_job_name


class Email(Action):
    """Sends an e-mail.

    Args:
        email_address: The recipient.

    Raises:
        ValueError: If it is not an address.
    """

    def __init__(self, email_address: str) -> None:
        _check(_EMAIL, "email_address", email_address, "an address, NAME@DOMAIN")
        super().__init__(endpoint=email_address)


class SMS(Action):
    """Sends a text message.

    Args:
        phone_number: The recipient, in the format E.164: `+` and up to 15 digits.

    Raises:
        ValueError: If it is not such a number.
    """

    def __init__(self, phone_number: str) -> None:
        _check(_PHONE, "phone_number", phone_number, "'+' and up to 15 digits (E.164)")
        super().__init__(endpoint=phone_number)


class ActionList:
    """A list of actions.

    Args:
        actions: Actions of Stepwatch or `smdebug_rulesconfig`.

    Raises:
        TypeError: If an entry is not an action.
    """

    def __init__(self, *actions: object) -> None:
        self.actions = tuple(map(_as_action, actions))

    def __repr__(self) -> str:
        return f"ActionList{self.actions}"

    def update_training_job_prefix_if_not_specified(self, training_job_name: str) -> None:
        """Use a job's name for each missing prefix."""
        for action in self.actions:
            action.update_training_job_prefix_if_not_specified(training_job_name)

    def serialize(self) -> str:
        """Return the actions for a rule's parameter `action_json`.

        Raises:
            ValueError: If they are longer than a parameter can be.
        """
        return _checked(self.actions, "[", "]")


def is_valid_action_object(actions: object) -> bool:
    """Return whether an object is an action or a list of actions, also of `smdebug_rulesconfig`."""
    listed = getattr(actions, "actions", None)
    return isinstance(actions, (Action, ActionList)) or all(
        isinstance(getattr(each, "action_parameters", None), Mapping)
        for each in (listed if isinstance(listed, tuple) else (actions,))
    )


def as_actions(actions: object) -> Action | ActionList | None:
    """Convert actions, also those of `smdebug_rulesconfig`, or a list of them; None gives None.

    Raises:
        TypeError: An entry is not an action.
        ValueError: An action has an unknown parameter.
    """
    if actions is None or isinstance(actions, (Action, ActionList)):
        return actions
    if isinstance(actions, Iterable) and not isinstance(actions, (str, bytes, Mapping)):
        return ActionList(*actions)
    if hasattr(actions, "actions"):
        return ActionList(*actions.actions)
    return _as_action(actions)


def listed_actions(actions: Action | ActionList | None) -> tuple[Action, ...]:
    """Return actions as a flat list."""
    if actions is None:
        return ()
    return actions.actions if isinstance(actions, ActionList) else (actions,)


def _as_action(action: object) -> Action:
    if isinstance(action, Action):
        return action
    parameters = getattr(action, "action_parameters", None)
    name = parameters.get("name") if isinstance(parameters, Mapping) else None
    if isinstance(parameters, Mapping) and name == "stoptraining":
        is_default = getattr(action, "use_default_training_job_prefix", False)
        return StopTraining(None if is_default else parameters.get("training_job_prefix"))
    if isinstance(parameters, Mapping) and name in ("email", "sms"):
        return (Email if name == "email" else SMS)(parameters.get("endpoint", ""))
    raise TypeError(f"{action!r} is not an action; give StopTraining, Email, SMS or a list of them")


def _checked(actions: tuple[Action, ...] | list[Action], begin: str, end: str) -> str:
    text = ""
    # The original's spaces are removed only if the text is too long with them.
    for separators in ((", ", ": "), (",", ":")):
        parts = [
            json.dumps(action.action_parameters, separators=separators).replace('"', '\\"')
            for action in actions
        ]
        text = f"{begin}{separators[0].join(parts)}{end}"
        if len(text) <= MAX_ACTION_CHARACTERS:
            return text
    raise ValueError(
        f"the actions take {len(text)} characters; a parameter may have "
        f"{MAX_ACTION_CHARACTERS}. Give fewer actions or a shorter job name."
    )


def _check(pattern: re.Pattern[str], name: str, value: object, expected: str) -> None:
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        raise ValueError(f"{name}={value!r} must be {expected}")
