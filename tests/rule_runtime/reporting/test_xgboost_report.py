"""Reports of real trainings with XGBoost; the oracle of their numbers is scikit-learn."""

from __future__ import annotations

import json
import math
import re
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pytest
from moto import mock_aws
from sklearn import metrics

from hook_layer.storage.local import LocalStore
from hook_layer.storage.memory import MemoryStore
from rule_runtime import create_trial
from rule_runtime.reporting.xgboost_numbers import report_numbers
from rule_runtime.reporting.xgboost_report import create_xgboost_report
from rule_runtime.reporting.xgboost_run import MAX_ROUNDS
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.trial import Trial
from tests.rule_runtime.outcomes import make_run
from tests.rule_runtime.real_boosting import (
    ROUNDS,
    SAVED_ROUNDS,
    validation_data,
    write_boosted_trial,
)

OF_CLASSES = {"confusion_matrix", "scores", "class_accuracy"}
OF_REGRESSION = {"residuals", "error_by_label"}


class Report:
    """The numbers of a report, and its page, which is written when it is asked for."""

    def __init__(self, trial: Trial, out_dir: Path) -> None:
        self.trial = trial
        self.out_dir = out_dir
        self.numbers = json.loads(json.dumps(report_numbers(trial), allow_nan=False))
        self.sections = self.numbers["sections"]

    @cached_property
    def page(self) -> str:
        paths = create_xgboost_report(self.trial, self.out_dir)
        assert json.loads(Path(paths.json).read_text()) == self.numbers
        return Path(paths.html).read_text()

    @property
    def headings(self) -> set[str]:
        return set(re.findall(r'<section id="(\w+)">', self.page))


@pytest.fixture(scope="module", params=["binary", "multiclass", "regression"])
def trained(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Any, Trial, Report]:
    root = tmp_path_factory.mktemp(request.param)
    booster = write_boosted_trial(root / "trial", request.param)
    trial = create_trial(root / "trial")
    return request.param, booster, trial, Report(trial, root / "out")


def predictions_after(booster: Any, kind: str, rounds: int) -> Any:
    _, validation, _ = validation_data(kind)
    return booster.predict(validation, iteration_range=(0, rounds))


def test_what_the_task_is_is_found_out(trained: tuple[str, Any, Trial, Report]) -> None:
    kind, _, _, report = trained
    assert report.numbers["task"] == kind
    assert "the objective is" in report.numbers["task_reason"]
    not_for_it = {"binary": OF_REGRESSION, "multiclass": {*OF_REGRESSION, "roc"}}
    left_out = not_for_it.get(kind, {*OF_CLASSES, "roc"})
    for name, section in report.sections.items():
        assert ("missing" in section) == (name in left_out)
    assert report.headings - {"missing"} == report.sections.keys() - left_out
    assert report.numbers["rounds"] == {"first": 0, "last": SAVED_ROUNDS[-1]}
    assert report.numbers["has_ended"] is True
    assert report.numbers["notes"] == []


def test_scores_are_those_of_scikit_learn(trained: tuple[str, Any, Trial, Report]) -> None:
    kind, booster, _, report = trained
    _, _, labels = validation_data(kind)
    predicted = predictions_after(booster, kind, SAVED_ROUNDS[-1] + 1)
    if kind == "regression":
        residuals = labels - predicted
        found = report.sections["residuals"]
        assert found["mean"] == pytest.approx(residuals.mean(), abs=1e-4)
        assert found["root_mean_square"] == pytest.approx(
            metrics.root_mean_squared_error(labels, predicted), rel=1e-5
        )
        assert found["mean_absolute"] == pytest.approx(
            metrics.mean_absolute_error(labels, predicted), rel=1e-5
        )
        assert sum(found["counts"]) == len(labels)
        return
    classes = predicted.argmax(axis=1) if predicted.ndim > 1 else (predicted > 0.5).astype(int)
    np.testing.assert_array_equal(
        report.sections["confusion_matrix"]["rows_true_columns_predicted"],
        metrics.confusion_matrix(labels, classes),
    )
    scores = report.sections["scores"]
    assert scores["accuracy"] == pytest.approx(metrics.accuracy_score(labels, classes))
    for average, row in scores["averages"].items():
        expected = metrics.precision_recall_fscore_support(labels, classes, average=average)
        assert [row["precision"], row["recall"], row["f1"]] == pytest.approx(expected[:3])
    assert f"{scores['averages']['macro']['f1']:.4f}" in report.page
    np.testing.assert_array_equal(
        report.sections["label_distribution"]["counts"], np.bincount(labels)
    )
    if kind == "binary":
        area = metrics.roc_auc_score(labels, predicted)
        assert report.sections["roc"]["auc"] == pytest.approx(area)
        assert f"area {area:.4f}" in report.page


def test_what_goes_over_the_rounds(trained: tuple[str, Any, Trial, Report]) -> None:
    kind, booster, trial, report = trained
    _, _, labels = validation_data(kind)
    for name, reported in report.sections["metrics"].items():
        values = trial.tensor(name).values()
        assert reported["rounds"] == list(values) == SAVED_ROUNDS
        assert reported["values"] == [float(value[0]) for value in values.values()]
    over = report.sections["error_by_label" if kind == "regression" else "class_accuracy"]
    assert over["rounds"] == SAVED_ROUNDS
    for step, found in zip(SAVED_ROUNDS, over["values"], strict=True):
        predicted = predictions_after(booster, kind, step + 1)
        if kind == "regression":
            edges = np.linspace(labels.min(), labels.max(), 11)
            at = np.clip(np.digitize(labels, edges) - 1, 0, 9)
            errors = np.abs(labels - predicted)
            expected = [
                errors[at == place].mean() if (at == place).any() else None for place in range(10)
            ]
        else:
            classes = predicted.argmax(axis=1) if predicted.ndim > 1 else predicted > 0.5
            expected = list(metrics.recall_score(labels, classes, average=None))
        assert found == pytest.approx(expected, rel=1e-4)


def test_importances_are_those_that_were_saved(trained: tuple[str, Any, Trial, Report]) -> None:
    _, _, trial, report = trained
    for kind in ("weight", "gain", "cover"):
        found = report.sections["feature_importance"][kind]
        assert found["round"] == SAVED_ROUNDS[-1]
        assert sum(found["shares"].values()) == pytest.approx(1)
        for feature, share in found["shares"].items():
            name = f"feature_importance/{kind}/{feature}"
            assert share == trial.tensor(name).value(SAVED_ROUNDS[-1])[0]
            assert feature in report.page or len(found["shares"]) > 20


class _Outside(HTMLParser):
    """Collects what a page would load or run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            is_link = name in {"src", "href", "xlink:href"} and not (value or "").startswith(
                ("#", "data:")
            )
            if is_link or name.startswith("on"):
                self.found.append(f"{tag} {name}={value}")


def test_the_page_is_all_there_is(trained: tuple[str, Any, Trial, Report]) -> None:
    _, _, _, report = trained
    page = _Outside()
    page.feed(report.page)
    assert page.found == []
    assert "script" not in page.tags
    assert page.tags.count("svg") == len(report.headings - {"missing", "scores", "notes"})
    assert "prefers-color-scheme: dark" in report.page
    assert "currentColor" in report.page
    assert "#010203" not in report.page
    urls = set(re.findall(r"https?://[\w./]+", report.page))
    assert all("w3.org" in url for url in urls)  # names of SVG's vocabulary


def test_the_same_trial_gives_the_same_bytes(
    trained: tuple[str, Any, Trial, Report], tmp_path: Path
) -> None:
    _, _, trial, report = trained
    again = Report(trial, tmp_path)
    assert again.page == report.page
    assert again.numbers == report.numbers


# ---------------------------------------------------------------------- what is missing


def test_only_metrics_is_no_failure(tmp_path: Path) -> None:
    write_boosted_trial(
        tmp_path / "trial", "binary", include_collections=["metrics"], include_regex=None
    )
    report = Report(create_trial(tmp_path / "trial"), tmp_path / "out")
    assert report.numbers["task"] is None
    assert report.headings == {"metrics", "missing"}
    assert "labels and predictions were not saved" in report.page
    assert "include the collection feature_importance" in report.page


def test_of_nothing_there_is_no_report(tmp_path: Path) -> None:
    other = make_run({"Net_fc.weight": np.ones(3), "Loss_output_0": np.array([1.0])})
    for trial in (Trial(MemoryStore(), name="t"), Trial(other.store, name="t")):
        with pytest.raises(ValueError, match=f"nothing of XGBoost was saved in {trial.path}"):
            create_xgboost_report(trial, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_without_validation_data_it_says_what_to_give_the_hook(tmp_path: Path) -> None:
    report = report_of(tmp_path, {"feature_importance/weight/a": np.array([1.0])})
    why = "labels and predictions were not saved: give the hook validation_data=, and include"
    assert report.sections["roc"]["missing"].startswith(why)
    assert report.headings == {"feature_importance", "missing"}
    assert "running" not in report.page


def test_a_metric_that_is_not_a_number_is_marked_and_a_class_without_examples_is_not(
    tmp_path: Path,
) -> None:
    builder = TrialBuilder()
    builder.collections(metrics=("^[a-z]+-[a-z]+$",))
    for labels, metric in (([0.0, 0.0], 0.5), ([0.0, 1.0], math.nan)):
        at = len(builder.keys)
        tensors = {"labels": np.array(labels), "predictions": np.array([0.1, 0.9])}
        builder.step(at, tensors | {"train-error": np.array([metric])})
    report = Report(Trial(builder.store, name="t"), tmp_path)
    assert report.sections["metrics"]["train-error"] == {"rounds": [0, 1], "values": [0.5, None]}
    assert None in report.sections["class_accuracy"]["values"][0]
    assert report.page.count("not finite") == 1


def test_it_follows_a_training(tmp_path: Path) -> None:
    builder = TrialBuilder(LocalStore(tmp_path / "trial"))
    builder.collections(metrics=("^[a-z]+-[a-z]+$",))
    trial = create_trial(tmp_path / "trial")
    steps = []
    for step in range(3):
        predictions = np.array([0.1, 0.9, 0.4 + 0.2 * step])
        tensors = {"labels": np.array([0.0, 1.0, 1.0]), "predictions": predictions}
        builder.step(step, tensors | {"train-error": np.array([1.0 - step])})
        report = Report(trial, tmp_path / "out")
        steps.append(report.sections["class_accuracy"]["rounds"])
        assert report.numbers["has_ended"] is False
        assert "running" in report.page
    assert steps == [[0], [0, 1], [0, 1, 2]]
    assert sorted(path.name for path in (tmp_path / "out").rglob("*") if path.is_file()) == [
        "xgboost_report.html",
        "xgboost_report.json",
    ]


def test_it_goes_to_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        client = boto3.client("s3")
        client.create_bucket(Bucket="tensors")
        trial = Trial(make_run({"feature_importance/weight/a": np.array([1.0])}).store, name="t")
        paths = create_xgboost_report(trial, "s3://tensors/job/rule-output/")
        assert paths.html == (
            "s3://tensors/job/rule-output/CreateXgboostReport/xgboost_report.html"
        )
        key = paths.json.removeprefix("s3://tensors/")
        assert json.load(client.get_object(Bucket="tensors", Key=key)["Body"])["trial"] == "t"


# ---------------------------------------------------------------------- other data


def report_of(tmp_path: Path, *rounds: dict[str, Any], **options: Any) -> Report:
    builder = TrialBuilder(**options)
    builder.collections(metrics=("^[^/]+-[^/]+$",))
    for step, tensors in enumerate(rounds):
        builder.step(step, tensors)
    builder.end()
    return Report(Trial(builder.store, name="t"), tmp_path)


@pytest.mark.parametrize(
    ("labels", "predictions", "objective", "task"),
    [
        ([0, 1, 1], [0.2, 0.7, 0.4], None, "binary"),
        ([0, 1, 1], [0.2, 0.7, 0.4], "reg:logistic", "binary"),
        ([0, 1, 1], [0.2, 0.7, 0.4], "reg:squarederror", "regression"),
        ([0, 1, 1], [-2.0, 0.7, 4.0], "binary:logitraw", "binary"),
        ([0, 1, 1], [-2.0, 0.7, 4.0], None, "regression"),
        ([0, 1, 2], [2.0, 1.0, 0.0], None, "multiclass"),
        ([0, 1, 2], [2.0, 1.0, 0.0], "multi:softmax", "multiclass"),
        ([0, 1, 2], [2.5, 1.0, 0.0], None, "regression"),
        ([0, 1, 2], [[0.2, 0.8, 0.0]] * 3, None, "multiclass"),
        ([0.5, 1, 2], [[0.2, 0.8, 0.0]] * 3, None, "regression"),
        ([0, 5, 2], [[0.2, 0.8, 0.0]] * 3, "multi:softprob", "regression"),
        ([0.5, 1, 1], [0.2, 0.7, 0.4], "binary:logistic", "regression"),
        ([0, 1, 2], [0.3, 0.1, 2.0], "rank:ndcg", "ranking"),
        ([0, 1, 2], [0.3, 0.1, 2.0], "count:poisson", "regression"),
        ([0, 1, 1], [0.2, 0.7, 0.4], "my objective", "binary"),
        ([-1, 1, 1], [-1.0, 1.0, 1.0], None, "regression"),
        ([0, 1, 5000], [1.0, 1.0, 0.0], None, "regression"),
        ([0, 1, 2], [[0.1] * 9000] * 3, "multi:softprob", "regression"),
    ],
)
def test_the_task(
    tmp_path: Path, labels: Any, predictions: Any, objective: str | None, task: str
) -> None:
    tensors = {"labels": np.array(labels, np.float32), "predictions": np.array(predictions)}
    if objective is not None:
        tensors["hyperparameters/objective"] = np.array([objective])
    report = report_of(tmp_path, tensors)
    assert report.numbers["task"] == task
    if task == "ranking":
        assert report.page
        assert report.headings == {"label_distribution", "missing"}


def test_of_margins_the_threshold_is_zero(tmp_path: Path) -> None:
    report = report_of(
        tmp_path,
        {
            "labels": np.array([0.0, 1.0, 1.0, 0.0]),
            "predictions": np.array([-2.0, 0.3, 4.0, 0.2]),
            "hyperparameters/objective": np.array(["binary:logitraw"]),
        },
    )
    matrix = report.sections["confusion_matrix"]["rows_true_columns_predicted"]
    assert matrix == [[1, 1], [0, 2]]


def test_examples_that_are_not_finite_are_left_out_and_told_of(tmp_path: Path) -> None:
    report = report_of(
        tmp_path,
        {
            "labels": np.array([0.0, 1.0, math.nan, 1.0]),
            "predictions": np.array([0.1, 0.9, 0.5, math.inf]),
        },
        {"labels": np.array([math.nan]), "predictions": np.array([1.0])},
    )
    assert report.numbers["num_examples"] == 2
    assert any("round 0: 2 examples" in note for note in report.numbers["notes"])
    assert "no example has a finite label" in report.page


def test_rounds_that_do_not_fit_are_left_out_and_told_of(tmp_path: Path) -> None:
    good = {"labels": np.array([0.0, 1.0]), "predictions": np.array([0.1, 0.9])}
    report = report_of(
        tmp_path,
        good,
        {"labels": np.array([0.0, 1.0]), "predictions": np.array([0.1, 0.9, 0.3])},
        {"labels": np.ones((2, 3)), "predictions": np.array([0.1, 0.9])},
        {"labels": np.array(["a", "b"]), "predictions": np.array([0.1, 0.9])},
        {"labels": np.float64(1.0), "predictions": np.array([0.1])},
    )
    assert report.sections["class_accuracy"]["rounds"] == [0]
    assert "2 labels, and predictions of 3 rows" in report.page
    assert len(report.numbers["notes"]) == 4


def test_of_many_notes_the_page_has_some(tmp_path: Path) -> None:
    good = {"labels": np.array([0.0, 1.0]), "predictions": np.array([0.1, 0.9])}
    report = report_of(tmp_path, good, *[good | {"predictions": np.ones(3)}] * 15)
    assert len(report.numbers["notes"]) == 15
    assert "and 5 more notes" in report.page


def test_labels_that_were_saved_once_are_those_of_all_rounds(tmp_path: Path) -> None:
    labels = np.array([0.0, 1.0, 1.0])
    predictions = [np.array([0.1, 0.9, 0.2 * step]) for step in range(4)]
    report = report_of(
        tmp_path,
        {"predictions": predictions[0]},
        {"predictions": predictions[1], "labels": labels},
        {"predictions": predictions[2]},
        {"predictions": predictions[3]},
    )
    assert report.sections["class_accuracy"]["values"] == [[1, 0.5], [1, 0.5], [1, 0.5], [1, 1]]


def test_workers_have_a_share_of_the_examples_each(tmp_path: Path) -> None:
    builder = TrialBuilder(num_workers=2)
    builder.collections(metrics=("^[a-z]+-[a-z]+$",))
    for worker, (label, prediction) in enumerate([(0.0, 0.2), (1.0, 0.3)]):
        tensors = {
            "labels": np.full(5, label),
            "predictions": np.full(5, prediction),
            "train-error": np.array([0.5]),
        }
        builder.step(0, tensors, worker=f"worker_{worker}")
    builder.end()
    report = Report(Trial(builder.store, name="t"), tmp_path)
    matrix = report.sections["confusion_matrix"]["rows_true_columns_predicted"]
    assert matrix == [[5, 0], [5, 0]]
    assert report.sections["metrics"]["train-error"] == {"rounds": [0], "values": [0.5]}


def test_several_targets_are_taken_together(tmp_path: Path) -> None:
    labels = np.array([[1.5, 2.0], [3.0, 4.0]])
    report = report_of(tmp_path, {"labels": labels, "predictions": labels + 1})
    assert report.sections["residuals"]["mean"] == pytest.approx(-1)
    assert report.numbers["num_examples"] == 4


def test_of_one_class_there_is_no_roc(tmp_path: Path) -> None:
    report = report_of(tmp_path, {"labels": np.ones(3), "predictions": np.array([0.1, 0.5, 1.0])})
    assert report.sections["roc"] == {"missing": "all labels are of one class"}
    assert report.sections["class_accuracy"]["values"][0][0] is None


def test_of_many_rounds_some_are_looked_at(tmp_path: Path) -> None:
    tensors = {"labels": np.array([0.0, 1.0]), "predictions": np.array([0.2, 0.8])}
    report = report_of(tmp_path, *[tensors] * (MAX_ROUNDS + 50))
    rounds = report.sections["class_accuracy"]["rounds"]
    assert (len(rounds), rounds[0], rounds[-1]) == (MAX_ROUNDS, 0, MAX_ROUNDS + 49)
    assert f"{MAX_ROUNDS} of {MAX_ROUNDS + 50} rounds" in report.page


def test_a_long_roc_is_thinned_and_its_area_is_not(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels, predictions = rng.integers(0, 2, 5000).astype(float), rng.random(5000)
    report = report_of(tmp_path, {"labels": labels, "predictions": predictions})
    roc = report.sections["roc"]
    assert len(roc["thresholds"]) == 300
    assert roc["auc"] == pytest.approx(metrics.roc_auc_score(labels, predictions))
    assert roc["true_positive_rates"][-1] == 1


def test_many_classes(tmp_path: Path) -> None:
    labels = np.arange(60.0)
    report = report_of(tmp_path, {"labels": labels, "predictions": labels[::-1].copy()})
    assert report.numbers["task"] == "multiclass"
    assert "40 more" in report.page


def test_names_out_of_files_are_escaped(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    builder = TrialBuilder()
    builder.collections(metrics=("^[^/]+-[^/]+$",))
    tensors = {
        f"feature_importance/weight/{evil}": np.array([0.5]),
        "feature_importance/weight/$\\frac{": np.array([0.5]),
        f"train-{evil}": np.array([1.0]),
        "a$-b$": np.array([1.0]),
        "hyperparameters/objective": np.array([f"binary:{evil}"]),
        "labels": np.array([0.0, 1.0]),
        "predictions": np.array([0.2, 0.8]),
    }
    builder.step(0, tensors)
    report = Report(Trial(builder.store, name=evil), tmp_path)
    page = _Outside()
    page.feed(report.page)
    assert "script" not in page.tags
    assert "&lt;script&gt;" in report.page


def test_a_damaged_record_leaves_its_round_out(tmp_path: Path) -> None:
    builder = TrialBuilder()
    tensors = {"labels": np.array([0.0, 1.0]), "predictions": np.array([0.2, 0.8])}
    for step in range(2):
        builder.step(step, tensors)
    key = next(iter(builder.store.list("events/")))
    data = bytearray(builder.store.get(key))
    data[-20] ^= 0xFF
    builder.store.put(key, bytes(data))
    builder.end()
    report = Report(Trial(builder.store, name="t"), tmp_path)
    assert report.sections["class_accuracy"]["rounds"] == [1]
    assert "round 0 was left out" in report.page


def test_a_damaged_file_of_the_original_client_is_reported(tmp_path: Path) -> None:
    builder = TrialBuilder(run=None)
    builder.collections(metrics=("^[a-z]+-[a-z]+$",))
    tensors = {"train-error": np.array([0.5]), "feature_importance/weight/a": np.array([1.0])}
    builder.step(0, tensors)
    events = next(iter(builder.store.list("events/")))
    builder.store.put(events, b"\0" * builder.store.size(events))
    builder.end()
    report = Report(Trial(builder.store, name="t"), tmp_path)
    assert "it cannot be read" in report.sections["metrics"]["missing"]
    assert "it cannot be read" in report.page


def test_an_objective_that_cannot_be_read_is_not_known(tmp_path: Path) -> None:
    tensors = {"labels": np.array([0.0, 1.0]), "predictions": np.array([0.2, 0.8])}
    for objective in (np.array([3.0]), np.array(["binary:logistic"])):
        builder = make_run({"hyperparameters/objective": objective} | tensors)
        if objective.dtype.kind == "U":
            key = next(iter(builder.store.list("events/")))
            data = builder.store.get(key).replace(b"binary:logistic", b"multi:softprob_")
            builder.store.put(key, data)
        numbers = Report(Trial(builder.store, name="t"), tmp_path).numbers
        assert numbers["task_reason"] == "labels are 0 and 1, and predictions between them"


def test_rounds_of_the_fixture() -> None:
    assert list(range(0, ROUNDS, 2)) == SAVED_ROUNDS
