"""The tour of the configuration, run to its end, and that it would tell if something were wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from examples.configuration_tour import stops
from examples.configuration_tour.checks import mistakes
from examples.configuration_tour.refused import MISTAKES, refusal
from examples.configuration_tour.run import Ran, run
from tests.examples.running import example


def test_the_tour_goes_as_it_must(tmp_path: Path) -> None:
    printed = example("configuration_tour", "--requests", tmp_path)
    assert printed.endswith("tour: ok\n")
    for stop in stops.STOPS:
        assert f"== {stop.name}\n" in printed
        assert json.dumps(stop.request(), indent=2) in printed
    board = EventAccumulator(str(tmp_path / "tensorboard" / "tensorboard-output" / "TRAIN"))
    board.Reload()
    tags = board.Tags()
    assert any("CrossEntropyLoss_output_0" in tag for tag in tags["scalars"])
    assert {tag.split("/")[0] for tag in tags["histograms"]} == {"weights"}
    assert not (tmp_path / "opted-out").exists()
    assert not (tmp_path / "kill-switch" / "collections" / "debug-output").exists()


@pytest.mark.parametrize("stop", stops.STOPS, ids=lambda stop: stop.name)
def test_create_training_job_takes_what_is_shown(stop: stops.Stop) -> None:
    api = botocore.session.Session().get_service_model("sagemaker")
    members = api.operation_model("CreateTrainingJob").input_shape.members
    for name, value in stop.request().items():
        report = ParamValidator().validate(value, members[name])
        assert not report.has_errors(), report.generate_report()


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return run(stops.HOOK_PARAMETERS, tmp_path_factory.mktemp("tour"))


def test_a_stop_that_comes_to_what_it_must(ran: Ran) -> None:
    assert mistakes(ran) == []


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ({"stop": replace(stops.HOOK_PARAMETERS, name="collections")}, "saved is"),
        ({"stop": replace(stops.HOOK_PARAMETERS, name="built-in-rules")}, "the rules are []"),
        ({"stopped": "somebody stopped it"}, "somebody stopped it"),
        ({"stop": replace(stops.HOOK_PARAMETERS, tensorboard=stops.TENSORBOARD.tensorboard)}, "[]"),
    ],
)
def test_a_stop_that_does_not(ran: Ran, change: dict[str, Any], reported: str) -> None:
    found = mistakes(replace(ran, **change))
    assert any(reported in text for text in found), found


@pytest.mark.parametrize("what", MISTAKES)
def test_mistakes_are_refused_and_nothing_is_stored(what: str, tmp_path: Path) -> None:
    assert refusal(MISTAKES[what], tmp_path)
    assert list(tmp_path.iterdir()) == []
