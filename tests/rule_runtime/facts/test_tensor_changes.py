from __future__ import annotations

from typing import Any

import numpy as np

from rule_runtime.facts.tensor_changes import TensorPairs, compare, frozen_rows, with_numbers
from rule_runtime.numerics.tensor_change import Tolerance
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial import value_pairs as module
from rule_runtime.trial.step_view import StepView
from rule_runtime.trial.value_pairs import row_values, value_pairs
from tests.rule_runtime.outcomes import make_run


def two_steps(
    one: dict[str, Any], other: dict[str, Any], *, saved: tuple[bool, bool] = (True, True)
) -> tuple[StepView, StepView]:
    trial = make_run(other, save_values=saved[1])
    trial.step(1, one, save_values=saved[0])
    earlier, now = trial.views()
    return now, earlier


def compared(one: dict[str, Any], other: dict[str, Any], **options: Any) -> dict[str, str]:
    now, earlier = two_steps(one, other, **options)
    pairs = TensorPairs(now, now.tensors(), earlier, earlier.tensors())
    names = {(True, False): "close", (False, True): "different", (False, False): "unknown"}
    found = zip(*(mask.tolist() for mask in compare(pairs, Tolerance())), strict=True)
    return {name: names[each] for name, each in zip(pairs.rows.names, found, strict=True)}


def test_tensors_are_matched_by_name_in_any_order() -> None:
    value = np.linspace(-1, 1, 5)
    found = compared(
        {"same": value, "new": value, "other": value, "turned": value},
        {"turned": value[::-1], "old": value, "other": value + 1, "same": value},
    )
    assert found == {
        "same": "close",
        "other": "different",
        "turned": "different",
    }


def test_where_one_value_is_missing_statistics_decide() -> None:
    value = np.linspace(-1, 1, 5)
    one = {"same": value, "near": value, "far": value}
    other = {"same": value, "near": value * (1 + 1e-7), "far": value + 1}
    for saved in ((True, False), (False, True), (False, False)):
        assert compared(one, other, saved=saved) == {
            "same": "close",
            "near": "unknown",
            "far": "different",
        }


def test_values_are_read_a_few_tensors_at_a_time(monkeypatch: Any) -> None:
    tensors = {f"t{i}": np.full((i + 1, 7), float(i)) for i in range(12)}
    now, earlier = two_steps(tensors, dict(reversed(tensors.items())))
    wanted = [*tensors, "nothing"]
    for at_once in (1, 500, 1 << 24):
        monkeypatch.setattr(module, "_BYTES_AT_ONCE", at_once)
        pairs = list(value_pairs(now, earlier, wanted, "worker_0"))
        assert sorted(name for name, *_ in pairs) == sorted(tensors)
        assert all((a == b).all() for _, a, b in pairs)
    assert list(value_pairs(now, earlier, wanted, "worker_9")) == []


def test_values_of_rows_come_with_their_position() -> None:
    trial = TrialBuilder(num_workers=2)
    for worker in (0, 1):
        tensors = {"a": [worker + 1.0], "b": [worker + 10.0]}
        trial.step(0, tensors, worker=f"worker_{worker}", save_values=worker == 1)
    (view,) = trial.views()
    rows = view.tensors()
    found = {(rows.names[at], rows.workers[at]): float(v[0]) for at, v in row_values(view, rows)}
    assert found == {("a", "worker_1"): 2.0, ("b", "worker_1"): 11.0}


def test_only_rows_with_numbers_can_be_compared() -> None:
    tensors = {"a": [1.0], "empty": np.empty((0, 2)), "text": np.array(["x"]), "nan": [np.nan]}
    now, _ = two_steps(tensors, tensors)
    assert with_numbers(now.tensors()).names == ("a", "nan")


def test_frozen_parameters_are_those_without_a_gradient_among_others() -> None:
    trial = TrialBuilder(num_workers=2)
    weights = {"Net_a.weight": [1.0], "Net_b.weight": [1.0], "Net_a.bias": [1.0], "loss": [1.0]}
    trial.step(0, {**weights, "gradient/Net_b.weight": [1.0]}, worker="worker_0")
    trial.step(0, weights, worker="worker_1")
    (view,) = trial.views()
    rows = view.tensors()
    frozen = frozen_rows(view, rows)
    assert {(rows.names[i], rows.workers[i]) for i in np.flatnonzero(frozen)} == {
        ("Net_a.weight", "worker_0"),
        ("Net_a.bias", "worker_0"),
    }
