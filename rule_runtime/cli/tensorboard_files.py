"""Reads the scalars of TensorBoard's files as runs, for `stepwatch evaluate`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any, Final

from hook_layer.configuration.collections import CollectionKeys
from hook_layer.format.known_collections import SCALAR
from hook_layer.format.paths import INDEX_PREFIX
from hook_layer.logged_scalars.scalar_run import ScalarRun
from rule_runtime.trial.sessions import StoredRun

__all__ = ["tensorboard_runs"]

_FILES: Final = "*tfevents*"
_ALL: Final = {"scalars": 0, "tensors": 0}
"""TensorBoard's reader keeps all values of these kinds."""
_MAX_STEPS: Final = 10_000
"""Steps of a run that are evaluated, about 20 s: longer ones are thinned evenly."""
_LOSSES: Final = f"(?i)^{SCALAR}(?!.*(val|eval|test)).*loss"
"""Training losses by their usual names."""


def tensorboard_runs(path: str) -> list[StoredRun]:
    """Return a run in memory for each folder with TensorBoard's files.

    There is none if the folder has runs of Stepwatch, which may have written such files beside.

    Raises:
        ValueError: TensorBoard is not installed.
    """
    root = Path(path).expanduser()
    if not root.is_dir() or any(root.rglob(INDEX_PREFIX)):
        return []
    folders = sorted({file.parent for file in root.rglob(_FILES)})
    return [_run(folder, str(folder.relative_to(root))) for folder in folders]


def _run(folder: Path, name: str) -> StoredRun:
    by_step: dict[int, dict[str, float]] = defaultdict(dict)
    for tag, step, value in _scalars(folder):
        by_step[step][tag] = value
    uri = f"memory://tensorboard{folder.resolve()}/"
    with ScalarRun(uri, interval_s=0) as run:
        run.collection_manager.get(CollectionKeys.LOSSES).include(_LOSSES)
        for step in _thinned(by_step):
            run.log(by_step[step], step)
    return StoredRun(name, uri)


def _thinned(by_step: Mapping[int, Mapping[str, float]]) -> list[int]:
    """Return at most about 10,000 steps, with the first and last one and all not finite values."""
    steps = sorted(by_step)
    spacing = -(-len(steps) // _MAX_STEPS)
    return [
        step
        for at, step in enumerate(steps)
        if at % spacing == 0 or step == steps[-1] or not all(map(isfinite, by_step[step].values()))
    ]


def _scalars(folder: Path) -> Iterator[tuple[str, int, float]]:
    """Yield tag, step and value of each scalar; TensorFlow 2 writes them as tensors."""
    try:
        from tensorboard.backend.event_processing.event_accumulator import (  # noqa: PLC0415
            EventAccumulator,
        )
        from tensorboard.util.tensor_util import make_ndarray  # noqa: PLC0415
    except ImportError as error:
        raise ValueError(f"{folder}: reading it requires `pip install tensorboard`") from error
    files: Any = EventAccumulator(str(folder), size_guidance=_ALL).Reload()
    for tag in files.Tags()["scalars"]:
        yield from ((tag, event.step, event.value) for event in files.Scalars(tag))
    for tag in files.Tags()["tensors"]:
        if files.SummaryMetadata(tag).plugin_data.plugin_name == "scalars":
            for event in files.Tensors(tag):
                yield tag, event.step, float(make_ndarray(event.tensor_proto))
