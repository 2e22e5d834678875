from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rule_runtime.engine.outcome import IssueFound, Outcome, Passed
from rule_runtime.rules.vanishing_gradient import VanishingGradient
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract
from tests.rule_runtime.outcomes import evidence_of, letters, make_run
from tests.rule_runtime.rules.runs import found_at, write_gradient_stops
from tests.tables import table


class TestVanishingGradientContract(RuleContract):
    def make_rule(self) -> VanishingGradient:
        return VanishingGradient()


def outcome_of(rule: VanishingGradient | None = None, **tensors: object) -> Outcome:
    trial = TrialBuilder()
    trial.step(500, tensors)
    (outcome,) = trial.outcomes(rule or VanishingGradient())
    return outcome


def test_fires_on_the_smallest_gradient_and_says_so() -> None:
    evidence = evidence_of(
        outcome_of(
            **{
                "gradient/a": np.full(4, 1e-2),
                "gradient/b": np.array([1e-9, -3e-9]),
                "gradient/c": np.full(4, -5e-8),
                "weight": np.zeros(3),
            }
        )
    )
    assert (evidence.step, evidence.tensor, evidence.measure) == (500, "gradient/b", "abs_mean")
    assert evidence.value == pytest.approx(2e-9)
    assert evidence.threshold == 1e-7
    assert evidence.sentence == "gradient/b: mean(|g|) 2e-09 < 1e-07"
    assert (evidence.mode, evidence.worker) == ("TRAIN", "worker_0")


def test_names_the_operation_whose_gradient_is_zero() -> None:
    trial = make_run({"Net_a.weight": np.ones(8), "gradient/Net_a.weight": np.zeros(8)})
    write_gradient_stops(trial, {"`round` at net.py:3, after Net_a": ("Net_a.weight",)})
    evidence = evidence_of(trial.outcomes(VanishingGradient())[0])
    assert evidence.stopped_by == "`round` at net.py:3, after Net_a"
    assert evidence.sentence.endswith(f"; gradients are stopped by {evidence.stopped_by}")
    trial = make_run({"Net_a.weight": np.ones(8), "gradient/Net_a.weight": np.full(8, 1e-9)})
    write_gradient_stops(trial, {"`detach` at net.py:3, after Net_a": ("Net_a.weight",)})
    assert evidence_of(trial.outcomes(VanishingGradient())[0]).stopped_by is None


@table(
    "gradients, letter",
    {
        "zero": ({"a": np.zeros(8)}, "!"),
        "below the threshold": ({"a": np.full(8, 0.99e-7)}, "!"),
        "at the threshold": ({"a": np.full(8, 1e-7)}, "P"),
        "usual": ({"a": np.ones(8)}, "P"),
        "finite elements count beside NaN": ({"a": [np.nan, 1e-12]}, "!"),
        "only NaN": ({"a": np.full(3, np.nan)}, "-"),
        "no elements": ({"a": np.empty((0, 2))}, "-"),
        "infinite ones": ({"a": [np.inf, -np.inf]}, "-"),
        "NaN beside another gradient": ({"a": np.full(3, np.nan), "b": [1.0]}, "P"),
        "nothing beside another gradient": ({"a": np.empty((0, 2)), "b": [1.0]}, "P"),
        "infinite ones beside another gradient": ({"a": [np.inf, -np.inf], "b": [1.0]}, "P"),
    },
)
def test_what_gradients_give(gradients: dict[str, Any], letter: str) -> None:
    tensors = {f"gradient/{name}": value for name, value in gradients.items()}
    assert letters([outcome_of(**tensors)]) == letter


def test_the_worst_of_several_workers_is_the_evidence() -> None:
    trial = TrialBuilder(num_workers=3)
    for worker, value in enumerate([1.0, 1e-12, 1e-9]):
        trial.step(0, {"gradient/a": [value]}, worker=f"worker_{worker}")
    assert evidence_of(*trial.outcomes(VanishingGradient())).worker == "worker_1"


def test_stored_reductions_suffice() -> None:
    trial = TrialBuilder(run=None)
    trial.step(0, {"smdebug/reductions/abs_mean/gradient/a": np.float32([1e-9])})
    trial.step(1, {"smdebug/reductions/abs_mean/gradient/a": np.float32([1.0])})
    issue, passed = trial.outcomes(VanishingGradient())
    assert isinstance(issue, IssueFound)
    assert issue.evidence.tensor == "gradient/a"
    assert isinstance(passed, Passed)


def test_the_collections_file_says_which_tensors_are_gradients() -> None:
    trial = make_run(
        {"gradients/kernelGrad": [0.0], "gradient/a": [0.0]}, collections={"gradients": ("Grad$",)}
    )
    assert evidence_of(*trial.outcomes(VanishingGradient())).tensor == "gradients/kernelGrad"


TORCH = ("gradient/Net_conv.bias", "gradient/Net_conv.weight", (4, 3, 3, 3))
TRANSPOSED = (*TORCH[:2], (3, 4, 3, 3))
KERAS = ("gradients/conv2d/biasGrad", "gradients/conv2d/kernelGrad", (3, 3, 1, 4))
MXNET = ("gradient/conv0_bias", "gradient/conv0_weight", (4, 1, 3, 3))
# Depthwise convolution, BatchNorm, convolution of single pixels, BatchNorm: MobileNet.
NORM = ("gradient/Net_norm.bias", "gradient/Net_norm.weight", (4,))


@table(
    "layer, of_bias, of_weight, letter",
    {
        "a convolution": (TORCH, 1e-10, 1e-3, "P"),
        "a transposed convolution": (TRANSPOSED, 0.0, 1e-3, "P"),
        "a convolution of Keras": (KERAS, 1e-10, 1e-3, "P"),
        "a convolution of MXNet": (MXNET, 1e-10, 1e-3, "P"),
        "a normalisation before another one": (NORM, 1e-10, 1e-3, "P"),
        "nothing arrives at the convolution": (TORCH, 1e-10, 1e-9, "!"),
        "nothing arrives at that of Keras": (KERAS, 1e-10, 1e-9, "!"),
        "nothing arrives at that of MXNet": (MXNET, 1e-10, 1e-9, "!"),
        "nothing arrives at the normalisation": (NORM, 1e-10, 1e-9, "!"),
        "small, but no rounding error": (TORCH, 5e-8, 2e-6, "!"),
    },
)
def test_a_bias_whose_gradient_cancels_out_by_construction_is_no_issue(
    layer: tuple[str, str, tuple[int, ...]], of_bias: float, of_weight: float, letter: str
) -> None:
    """Before a normalisation, the weight of the layer gets its gradient, the bias only rounding."""
    bias, weight, shape = layer
    tensors = {bias: np.full(4, of_bias), weight: np.full(shape, of_weight)}
    assert letters([outcome_of(**tensors)]) == letter


def test_a_bias_without_its_weight_is_an_issue() -> None:
    assert isinstance(outcome_of(**{TORCH[0]: np.zeros(4)}), IssueFound)


def test_another_weight_is_named_beside_such_a_bias() -> None:
    tensors = {TORCH[0]: np.full(4, 1e-15), TORCH[1]: np.full(TORCH[2], 1e-3)}
    other = {"gradient/Net_fc.weight": np.full((2, 2), 1e-12)}
    assert evidence_of(outcome_of(**tensors, **other)).tensor == "gradient/Net_fc.weight"


def test_a_real_bias_in_front_of_a_normalisation_layer() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten()
    )
    net(torch.randn(8, 1, 6, 6)).square().mean().backward()
    gradients = {f"gradient/Net_{n}": p.grad.numpy() for n, p in net.named_parameters()}
    assert np.abs(gradients["gradient/Net_0.bias"]).mean() < 1e-7
    assert isinstance(outcome_of(**gradients), Passed)
    del gradients["gradient/Net_0.weight"]
    assert isinstance(outcome_of(**gradients), IssueFound)


def run_of(small: float, large: float, num_steps: int = 12) -> TrialBuilder:
    return make_run(
        *(
            {"gradient/a": np.full(4, small), "gradient/b": np.full(4, large)}
            for _ in range(num_steps)
        )
    )


@pytest.mark.parametrize(("small", "large", "is_found"), [
    (1e-10, 1e-2, True),
    (1e-10, 1e-6, False),  # what is small everywhere has not vanished on its way
    (0.0, 1e-2, True),
    (0.0, 0.0, False),
    (1e-6, 10.0, False),  # not below the threshold
])  # fmt: skip
def test_it_may_have_to_be_small_beside_others(
    small: float, large: float, *, is_found: bool
) -> None:
    assert bool(found_at(VanishingGradient(max_share=1e-6), run_of(small, large))) is is_found
    assert found_at(VanishingGradient(), run_of(small, large)) or small > 1e-7


@pytest.mark.parametrize(("loss", "is_found"), [(0.7, True), (0.0, False), (np.nan, False)])
def test_gradients_that_are_all_zero_are_none_where_the_loss_is_zero(
    loss: float, *, is_found: bool
) -> None:
    """As before a dead ReLU at the end of a model; not as of triplets far enough apart."""
    trial = make_run(
        *({"gradient/a": np.zeros(4), "gradient/b": np.zeros(2), "loss": [loss]} for _ in range(4)),
        collections={"gradients": ("^gradient",), "losses": ("[Ll]oss",)},
    )
    rule = VanishingGradient(max_share=1e-6, patience=3)
    assert found_at(rule, trial) == ([2, 3] if is_found else [])


def test_it_may_have_to_last() -> None:
    rule = VanishingGradient(patience=10)
    assert found_at(rule, run_of(1e-9, 1.0)) == [9, 10, 11]
    (found, *_) = (o for o in run_of(1e-9, 1.0).outcomes(rule) if isinstance(o, IssueFound))
    assert found.evidence.sentence == "gradient/a: mean(|g|) 1e-09 < 1e-07, for 10 saved steps"
    trial = run_of(1e-9, 1.0, 9)
    trial.step(9, {"gradient/a": np.ones(4), "gradient/b": np.ones(4)})
    for step in range(10, 19):
        trial.step(step, {"gradient/a": np.full(4, 1e-9), "gradient/b": np.ones(4)})
    assert not found_at(rule, trial)


class TestVanishingGradientThatLastsContract(RuleContract):
    def make_rule(self) -> VanishingGradient:
        return VanishingGradient(patience=3)
