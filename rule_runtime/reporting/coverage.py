"""Counts the rules that had data in a run, of those that apply to its framework.

* A rule **applies** unless it needs a fact that the framework's hook cannot provide.
* An applying rule **had data** if it evaluated a step, or needs more such steps to decide.
* It **was not configured** if it had no data and the hook did not save a collection that it needs.
* Any other rule without data needs tensors that the script or model does not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hook_layer.frameworks import Framework
from hook_layer.storage.base import Store
from rule_runtime.configuration.applicability import applies
from rule_runtime.configuration.packs import PACKS
from rule_runtime.engine.outcome import counted
from rule_runtime.engine.parameters import ParameterError
from rule_runtime.engine.registry import available_rules, create_rule
from rule_runtime.engine.rule import Rule
from rule_runtime.engine.state import EvaluationState
from rule_runtime.reporting.saved_collections import SavedCollections
from rule_runtime.trial.collection_reader import CollectionReader

__all__ = ["Coverage", "coverage_of", "had_data"]

_DEFAULT: Final = "recommended"


@dataclass(frozen=True)
class Coverage:
    """The rules that had data in a run.

    Attributes:
        framework: The framework of the run.
        applying: The rules that apply to it, by displayed name.
        with_data: Those of them that had data.
        not_configured: Those without data because the hook was not configured to save it.
        unsaved: The collections that these need and the hook did not save.
        pack: A pack that contains these; empty if there is none.
    """

    framework: Framework
    applying: Sequence[str]
    with_data: Sequence[str]
    not_configured: Sequence[str] = ()
    unsaved: Sequence[str] = ()
    pack: str = ""

    @property
    def share(self) -> float:
        """Share of the applying rules that had data; 1 if none applies."""
        return len(self.with_data) / len(self.applying) if self.applying else 1.0

    @property
    def is_blind(self) -> bool:
        """Whether more than half of the applying rules lack data that was not configured."""
        return 2 * len(self.not_configured) > len(self.applying)

    @property
    def remedy(self) -> str:
        """The code that makes the hook save what is missing; empty if nothing is."""
        if not self.not_configured:
            return ""
        if not self.pack:
            return f"Give it include_collections={list(self.unsaved)}"
        collections = f'include_collections=stepwatch.collections_for("{self.pack}")'
        if self.pack != _DEFAULT:
            return f"Give it {collections}"
        made = f'{self.framework.hook}("runs/x")'
        return f"Make it without include_collections, as in {made}, or give it {collections}"

    def __str__(self) -> str:
        """Return the counts on one line, and what to change if too little was saved."""
        total, title = counted(len(self.applying), "rule"), self.framework.name
        verb = "applies" if len(self.applying) == 1 else "apply"
        line = f"{len(self.with_data)} of {total} that {verb} to {title} had data"
        if not self.is_blind:
            return line
        number = len(self.not_configured)
        return f"{line}; the hook was not configured to save that of {number}. {self.remedy}"


def had_data(state: EvaluationState) -> bool:
    """Return whether a rule evaluated a step, needs more of them, or failed while it did."""
    return state.needs_more or not state.has_evaluated_nothing


def coverage_of(
    store: Store,
    judged: Mapping[str, bool],
    rules: Mapping[str, Rule] | None = None,
    reader: CollectionReader | None = None,
) -> Coverage | None:
    """Return which rules had data in a run; None if no file describes its collections.

    Args:
        store: The run's root.
        judged: Whether each rule had data, by displayed name.
        rules: The rules; by default, those of the pack `recommended`, and built-in ones.
        reader: The reader of its collections, if it has one.

    Raises:
        StorageError: The storage cannot be read.
    """
    saved = SavedCollections(store, reader)
    if not (saved.are_known and judged):
        return None
    known = _named(judged) if rules is None else rules
    applying = [
        name
        for name, has_data in judged.items()
        if has_data or name not in known or applies(type(known[name]), saved.framework)
    ]
    unsaved = {
        name: saved.missing(known[name].requires())
        for name in applying
        if name in known and not judged[name]
    }
    lacking = {name: missing for name, missing in unsaved.items() if missing}
    return Coverage(
        saved.framework,
        applying,
        [name for name in applying if judged[name]],
        list(lacking),
        sorted(frozenset().union(*lacking.values())),
        _pack_of(lacking),
    )


def _named(names: Iterable[str]) -> Mapping[str, Rule]:
    """Return the rules that have these names, as in the pack `recommended`."""
    of_pack = PACKS[_DEFAULT].rules()
    built_in = available_rules()
    found = {}
    for name in names:
        rule = of_pack.get(name)
        if rule is None and name in built_in:
            try:
                rule = create_rule(name)
            except ParameterError:  # it has no default
                continue
        if rule is not None:
            found[name] = rule
    return found


def _pack_of(names: Iterable[str]) -> str:
    wanted = frozenset(names)
    packs = (name for name in (_DEFAULT, *PACKS) if wanted <= PACKS[name].parameters.keys())
    return next(packs, "")
