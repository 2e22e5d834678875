"""Classes of the original have their public names here, or there is a reason."""

from __future__ import annotations

import json
from typing import Final

import pytest

from tests.interop.environment import OUR_PYTHON, SMDEBUG_PYTHON, run_scripts

pytestmark = pytest.mark.other_environment

_PROFILER: Final = "of the profiler, which does not exist here"
_INSTANCE: Final = "an attribute of instances here"
_READER: Final = "how the original's reader fills its objects"
_TENSORBOARD: Final = "a hook writes TensorBoard files itself"
_INTERNAL: Final = "a part of the original's writer"

ABSENT: Final = {
    "smdebug.core.tensor.Tensor": {"add_reduction_step": _READER, "add_step": _READER},
    "smdebug.core.collection.Collection": {"tensor_names": _INSTANCE},
    "smdebug.pytorch.Collection": {"tensor_names": _INSTANCE, "modules": _INTERNAL},
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
        "GRADIENT_PREFIX": _INTERNAL,
        "INPUT_TENSOR_SUFFIX": _INTERNAL,
        "INVALID_TAG_CHARACTERS": _INTERNAL,
        "OUTPUT_TENSOR_SUFFIX": _INTERNAL,
        "SCALAR_PREFIX": _INTERNAL,
        "bhook": _PROFILER,
        "fhook": _PROFILER,
        "log_outstanding_backward_stats_and_reset": _PROFILER,
        "log_outstanding_forward_stats_and_reset": _PROFILER,
        "log_outstanding_timeline_metrics": _PROFILER,
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


def test_no_public_name_is_absent_without_a_reason() -> None:
    classes = (*COMPLETE, *ABSENT)
    outputs = run_scripts(
        (SMDEBUG_PYTHON, "names_script.py", *classes),
        (OUR_PYTHON, "names_script.py", "--alias", *classes),
    )
    theirs, ours = (json.loads(text.rpartition("names:")[2]) for text in outputs)
    for path in classes:
        absent = set(theirs[path]) - set(ours[path])
        assert absent == set(ABSENT.get(path, {})), path
