"""Classes of the original have their public names here, or there is a reason."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.interop.environment import (
    MXNET_PYTHON,
    OUR_PYTHON,
    SMDEBUG_PYTHON,
    original_on_path,
    run_scripts,
    xgboost_by_its_name,
)

pytestmark = pytest.mark.other_environment

_PROFILER: Final = "of the profiler, which does not exist here"
_INSTANCE: Final = "an attribute of instances here"
_READER: Final = "how the original's reader fills its objects"
_TENSORBOARD: Final = "a hook writes TensorBoard files itself"
_INTERNAL: Final = "a part of the original's writer"

_OF_HOOKS: Final = {
    "GRADIENT_PREFIX": _INTERNAL,
    "INPUT_TENSOR_SUFFIX": _INTERNAL,
    "INVALID_TAG_CHARACTERS": _INTERNAL,
    "OUTPUT_TENSOR_SUFFIX": _INTERNAL,
    "SCALAR_PREFIX": _INTERNAL,
    "log_outstanding_timeline_metrics": _PROFILER,
}
ABSENT: Final = {
    "smdebug.core.tensor.Tensor": {"add_reduction_step": _READER, "add_step": _READER},
    "smdebug.core.collection.Collection": {"tensor_names": _INSTANCE},
    "smdebug.pytorch.Collection": {"tensor_names": _INSTANCE, "modules": _INTERNAL},
    "smdebug.xgboost.Collection": {"tensor_names": _INSTANCE},
    "smdebug.xgboost.Hook": {
        **_OF_HOOKS,
        "write_average_shap": _INTERNAL,
        "write_feature_importances": _INTERNAL,
        "write_full_shap": _INTERNAL,
        "write_hyperparameters": _INTERNAL,
        "write_labels": _INTERNAL,
        "write_losses": _INTERNAL,
        "write_metrics": _INTERNAL,
        "write_predictions": _INTERNAL,
        "write_tree_model": _INTERNAL,
    },
    "smdebug.core.writer.FileWriter": {
        "index_writer": _INTERNAL,
        "proto_writer": _INTERNAL,
        "write_shape": _INTERNAL,
        "write_graph": _TENSORBOARD,
        "write_histogram_summary": _TENSORBOARD,
        "write_pytorch_graph": _TENSORBOARD,
        "write_scalar_summary": _TENSORBOARD,
        "write_summary": _TENSORBOARD,
    },
    "smdebug.pytorch.Hook": {
        **_OF_HOOKS,
        "bhook": _PROFILER,
        "fhook": _PROFILER,
        "log_outstanding_backward_stats_and_reset": _PROFILER,
        "log_outstanding_forward_stats_and_reset": _PROFILER,
        "log_trace_event": _PROFILER,
        "reset_backward_module_profile_stats": _PROFILER,
        "reset_forward_module_profile_stats": _PROFILER,
        "should_save_dataloader_metrics": _PROFILER,
    },
}
"""Names that Stepwatch lacks, by class, and why."""

COMPLETE: Final = (
    "smdebug.trials.Trial",
    "smdebug.trials.LocalTrial",
    "smdebug.trials.S3Trial",
    "smdebug.core.tensor.StepState",
    "smdebug.core.collection.CollectionKeys",
    "smdebug.core.collection_manager.CollectionManager",
    "smdebug.core.modes.ModeKeys",
    "smdebug.core.reader.FileReader",
    "smdebug.ReductionConfig",
    "smdebug.SaveConfig",
    "smdebug.SaveConfigMode",
    "smdebug.rules.Rule",
    "smdebug.rules.RequiredTensors",
    "smdebug.rules.RequiredTensorsForTrial",
    "smdebug.rules.action.Actions",
)


OF_MXNET: Final = {
    "smdebug.mxnet.Collection": {"tensor_names": _INSTANCE},
    "smdebug.mxnet.Hook": _OF_HOOKS,
}
"""The same for classes that need MXNet."""


def test_no_public_name_is_absent_without_a_reason(tmp_path: Path) -> None:
    _check_names((SMDEBUG_PYTHON, OUR_PYTHON), COMPLETE, ABSENT, xgboost_by_its_name(tmp_path))


def test_no_public_name_for_mxnet_is_absent_without_a_reason(tmp_path: Path) -> None:
    _check_names((MXNET_PYTHON, MXNET_PYTHON), (), OF_MXNET, original_on_path(tmp_path))


def _check_names(
    pythons: tuple[Path, Path],
    complete: tuple[str, ...],
    absent_names: Mapping[str, Mapping[str, str]],
    path: Path,
) -> None:
    """Compare the public names of classes of the original, in one Python, with ours in another."""
    classes = (*complete, *absent_names)
    outputs = run_scripts(
        (pythons[0], "names_script.py", *classes),
        (pythons[1], "names_script.py", "--alias", *classes),
        path=path,
    )
    theirs, ours = (json.loads(text.rpartition("names:")[2]) for text in outputs)
    for each in classes:
        absent = set(theirs[each]) - set(ours[each])
        assert absent == set(absent_names.get(each, {})), each
