from __future__ import annotations

import numpy as np
import pytest

from rule_runtime.engine.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.rules.vanishing_gradient import VanishingGradient
from rule_runtime.testing import TrialBuilder
from rule_runtime.testing.rule_contract import RuleContract
from tests.rule_runtime.outcomes import evidence_of, make_run
from tests.rule_runtime.rules.runs import found_at


class TestVanishingGradientContract(RuleContract):
    def make_rule(self) -> VanishingGradient:
        return VanishingGradient()


def outcome_of(rule: VanishingGradient | None = None, **tensors: object) -> Outcome:
    trial = TrialBuilder()
    trial.step(500, {name.replace("__", "/"): value for name, value in tensors.items()})
    (outcome,) = trial.outcomes(rule or VanishingGradient())
    return outcome


def test_fires_on_the_smallest_gradient_and_says_so() -> None:
    evidence = evidence_of(
        outcome_of(
            gradient__a=np.full(4, 1e-2),
            gradient__b=np.array([1e-9, -3e-9]),
            gradient__c=np.full(4, -5e-8),
            weight=np.zeros(3),
        )
    )
    assert (evidence.step, evidence.tensor, evidence.measure) == (500, "gradient/b", "abs_mean")
    assert evidence.value == pytest.approx(2e-9)
    assert evidence.threshold == 1e-7
    assert evidence.sentence == "gradient/b: mean(|g|) 2e-09 < 1e-07"
    assert (evidence.mode, evidence.worker) == ("TRAIN", "worker_0")


@pytest.mark.parametrize(
    ("value", "kind"), [(0.0, IssueFound), (0.99e-7, IssueFound), (1e-7, Passed), (1.0, Passed)]
)
def test_the_threshold_is_strict_and_zero_has_vanished(value: float, kind: type) -> None:
    assert isinstance(outcome_of(gradient__a=np.full(8, value)), kind)


@pytest.mark.parametrize("value", [np.full(3, np.nan), np.empty((0, 2)), [np.inf, -np.inf]])
def test_gradients_without_finite_elements_are_not_judged(value: object) -> None:
    assert isinstance(outcome_of(gradient__a=value), NotEvaluated)
    assert isinstance(outcome_of(gradient__a=value, gradient__b=[1.0]), Passed)


def test_finite_elements_count_beside_nan() -> None:
    assert isinstance(outcome_of(gradient__a=[np.nan, 1e-12]), IssueFound)


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


def layer(
    bias: float, weight: float, shape: tuple[int, ...] = (4, 3, 3, 3), **more: object
) -> Outcome:
    return outcome_of(
        **{
            "gradient__Net_conv.bias": np.full(4, bias),
            "gradient__Net_conv.weight": np.full(shape, weight),
            **more,
        }
    )


def test_a_bias_whose_gradient_cancels_out_by_construction_is_no_issue() -> None:
    """In front of BatchNorm: the weight of the layer gets its gradient, the bias rounding only."""
    assert isinstance(layer(1e-10, 1e-3), Passed)
    assert isinstance(layer(0.0, 1e-3, (3, 4, 3, 3)), Passed)  # a transposed convolution


@pytest.mark.parametrize(
    ("bias", "kernel", "shape"),
    [
        ("gradients__conv2d/biasGrad", "gradients__conv2d/kernelGrad", (3, 3, 1, 4)),
        ("gradient__conv0_bias", "gradient__conv0_weight", (4, 1, 3, 3)),
    ],
)
def test_such_a_bias_of_keras_and_mxnet(bias: str, kernel: str, shape: tuple[int, ...]) -> None:
    small = np.full(4, 1e-10)
    assert isinstance(outcome_of(**{bias: small, kernel: np.full(shape, 1e-3)}), Passed)
    assert isinstance(outcome_of(**{bias: small, kernel: np.full(shape, 1e-9)}), IssueFound)


def test_a_bias_is_an_issue_where_that_is_not_the_reason() -> None:
    assert isinstance(layer(1e-10, 1e-9), IssueFound)  # nothing arrives at the layer
    assert isinstance(layer(5e-8, 2e-6), IssueFound)  # small, but no mere rounding
    other = {"gradient__Net_fc.weight": np.full((2, 2), 1e-12)}
    assert evidence_of(layer(1e-15, 1e-3, **other)).tensor == "gradient/Net_fc.weight"
    assert isinstance(outcome_of(**{"gradient__Net_conv.bias": np.zeros(4)}), IssueFound)


def test_a_real_bias_in_front_of_a_normalisation_layer() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten()
    )
    net(torch.randn(8, 1, 6, 6)).square().mean().backward()
    gradients = {f"gradient__Net_{n}": p.grad.numpy() for n, p in net.named_parameters()}
    assert np.abs(gradients["gradient__Net_0.bias"]).mean() < 1e-7
    assert isinstance(outcome_of(**gradients), Passed)
    del gradients["gradient__Net_0.weight"]
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


def test_what_a_normalisation_adds_ahead_of_pointwise_convolution_and_another_one() -> None:
    """Depthwise convolution, BatchNorm, convolution of single pixels, BatchNorm: MobileNet."""
    small, shape = np.full(4, 1e-10), (4,)
    weight = {"gradient__Net_norm.weight": np.full(shape, 1e-3)}
    assert isinstance(outcome_of(**{"gradient__Net_norm.bias": small}, **weight), Passed)
    weight = {"gradient__Net_norm.weight": np.full(shape, 1e-9)}
    assert isinstance(outcome_of(**{"gradient__Net_norm.bias": small}, **weight), IssueFound)
