"""One of two workers that train together; started by test_distributed.py.

python distributed_worker.py COMMUNICATOR_JSON FOLDER
"""

from __future__ import annotations

import json
import sys
from typing import Any

import xgboost
from xgboost import collective

from hook_layer.format.job_file import StopFile
from hook_layer.format.paths import STOP_FILE
from hook_layer.testing.written_trial import WrittenTrial
from hook_layer.xgboost import Hook
from hook_layer.xgboost.training_data import TrainingData
from hook_layer.xgboost.unavailable import UnavailableError
from tests.hook_layer.xgboost.boosting import EVERY_ROUND, Script, matrix, train


def watched(folder: str, workers: str, *, asks: bool) -> dict[str, Any]:
    """Train on this worker's rows, and return what became of it."""
    rank = collective.get_rank()
    data = matrix(rows=slice(rank, None, 2))
    hook = Hook(
        folder,
        include_collections=["predictions"],
        save_config=EVERY_ROUND,
        include_workers=workers,
        validation_data=data,
    )

    def ask(_: Any, epoch: int) -> None:
        if asks and rank == 0 and epoch == 2:
            hook.flush()
            trial = WrittenTrial(folder)
            request = StopFile("the loss grows: é", "2026-01-01T00:00:00Z", trial.job().run_id)
            trial.store.put(STOP_FILE, request.encode())
            assert hook.session.trial is not None
            hook.session.trial.stop_signal.check()

    results: dict[str, Any] = {}
    model = train(hook, Script(before=ask), data=data, rounds=5, evals_result=results)
    return {
        "rounds": model.num_boosted_rounds(),
        "reason": hook.stop_reason,
        "rmse": results["train"]["rmse"],
        "predictions": model.predict(data).tolist(),
    }


def reason_without_labels() -> str:
    """Return why the labels of all training data cannot be had."""
    rows = TrainingData()
    rows.begin({"dtrain": matrix(rows=slice(collective.get_rank(), None, 2))})
    try:
        rows.tensors(None)
    except UnavailableError as error:
        return str(error)
    return ""


def main(communicator: str, folder: str) -> None:
    with collective.CommunicatorContext(**json.loads(communicator)):
        rank = collective.get_rank()
        outcome = {
            "all": watched(f"{folder}/all", "all", asks=True),
            "one": watched(f"{folder}/one", "one", asks=True),
            "reason_without_labels": reason_without_labels(),
        }
    assert xgboost.collective.get_world_size() == 1
    print(json.dumps([rank, outcome]))


if __name__ == "__main__":
    main(*sys.argv[1:])
