"""Rules name the limits of the hook where these left out values, not the user's settings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hook_layer.testing.written_trial import WrittenTrial
from rule_runtime.engine.outcome import NotEvaluated
from rule_runtime.engine.registry import create_rule
from rule_runtime.testing import TrialBuilder
from tests.hook_layer.tiny_hook import make_hook

LIMITS = "the limits of the hook left out values; raise max_step_bytes, max_run_bytes or"
WIDE = np.random.default_rng(0).random((2, 4, 5000)).astype("f4")


@pytest.mark.parametrize(
    ("rule", "parameters", "names"),
    [
        ("AllZero", {"tensor_regex": "w", "threshold": "50"}, ["w"]),
        ("CheckInputImages", {"regex": "w"}, ["w"]),
        ("ClassImbalance", {}, ["w_labels", "w_predictions"]),
        ("Confusion", {"labels": "w_a", "predictions": "w_b"}, ["w_a", "w_b"]),
        ("DeadRelu", {"tensor_regex": "w"}, ["w_relu"]),
        ("NLPSequenceRatio", {"tensor_regex": "w"}, ["w"]),
    ],
)
def test_the_limits_of_the_hook(
    tmp_path: Path, rule: str, parameters: dict[str, str], names: list[str]
) -> None:
    for limit, is_limited in ((1024, True), (1 << 22, False)):
        folder = str(tmp_path / str(limit))
        written, trial = WrittenTrial(folder), TrialBuilder(folder)
        hook = make_hook(written, max_step_bytes=limit)
        hook.train(dict.fromkeys(names, 9 * WIDE))
        hook.close()
        trial.keys.extend(written.store.list("index/"))
        (outcome,) = trial.outcomes(create_rule(rule, parameters))
        assert (isinstance(outcome, NotEvaluated) and LIMITS in outcome.reason) is is_limited
        if is_limited:
            with pytest.raises(LookupError, match="The limits of the hook left out values"):
                trial.views()[0].value(names[0])
