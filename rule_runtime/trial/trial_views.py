"""Tables, plots and notebook views of a trial."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from hook_layer.format.modes import ModeKeys
from rule_runtime.optional_extra import require_report_extra
from rule_runtime.trial.errors import InvalidWorker
from rule_runtime.trial.live_run import LiveRun
from rule_runtime.trial.modes import Mode, as_mode
from rule_runtime.trial.notebook import (
    MAX_TENSORS,
    few,
    steps_text,
    trial_html,
)
from rule_runtime.trial.refreshing import no_refresh
from rule_runtime.trial.tidy_table import TABLE_COLUMNS, tidy_table
from rule_runtime.trial.trial_collections import collection_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from rule_runtime.plotting.arguments import OneTensor
    from rule_runtime.reporting.xgboost_report import XgboostReportPaths
    from rule_runtime.trial.step_index import StepFile
    from rule_runtime.trial.tensor import Tensor
    from rule_runtime.trial.trial import Trial
    from rule_runtime.trial.trial_collections import TrialCollection

__all__ = ["TrialViews"]

_logger: Final = logging.getLogger("stepwatch")


class TrialViews(LiveRun):
    """Methods of a trial that return tables, plots and HTML.

    Plots need matplotlib, and tables pandas: the extra `report`. Both are imported lazily.
    """

    _tensors: Mapping[str, Tensor]

    def step_files(self, mode: Mode = ModeKeys.GLOBAL, worker: str | None = None) -> list[StepFile]:
        """Return the index files of the complete steps, by step and worker.

        Args:
            mode: Only this mode; GLOBAL for all.
            worker: Only this worker; None for all.

        Raises:
            InvalidWorker: If there is no such worker.
        """
        mode = as_mode(mode)
        steps = self.steps()
        if worker is not None and worker not in self.worker_set:
            raise InvalidWorker(worker)
        files = [file for step in steps for _, file in sorted(self._files[step].items())]
        return [
            file
            for file in files
            if file.index is not None
            and mode in {ModeKeys.GLOBAL, file.index.mode}
            and worker in {None, file.worker}
        ]

    def select_tensors(
        self,
        regex: str | Sequence[str] | None = None,
        collection: str | TrialCollection | None = None,
    ) -> list[str]:
        """Return the names of saved tensors that match all given conditions, sorted.

        Args:
            regex: Regular expressions; the name must match at least one of them.
            collection: A collection that the tensor must belong to, or its name.

        Raises:
            TypeError: If the collection is neither a collection nor a name.
            re.error: If `regex` is not a regular expression.
        """
        if collection is None:
            names = self._trial.tensor_names()
        else:
            members = self._trial.collection(collection_name(collection)).tensor_names
            with no_refresh(self):  # the collection already looked for new files
                names = [name for name in self._trial.tensor_names() if name in members]
        if regex is not None:
            patterns = [regex] if isinstance(regex, str) else regex
            searches = [re.compile(pattern).search for pattern in patterns]
            names = [name for name in names if any(search(name) for search in searches)]
        return names

    def to_dataframe(
        self,
        regex: str | Sequence[str] | None = None,
        collection: str | TrialCollection | None = None,
        statistics: str | Iterable[str] | None = None,
        mode: Mode = ModeKeys.GLOBAL,
        worker: str | None = None,
    ) -> Any:
        """Return a table with one row for each (step, tensor, worker), in that order.

        The columns are `step` (global), `mode`, `mode_step`, `worker`, `tensor`, and one per
        statistic. The data comes from index files. Event files are read only for the sign of an
        infinite `value`, and if the index has no statistics (original client). Lost values are NaN,
        with a warning.

        Args:
            regex: Regular expressions; a tensor's name must match at least one of them.
            collection: A collection that the tensor must belong to, or its name.
            statistics: Some of value size nan inf min max mean std abs_mean l1 l2; None for all.
                `value` is NaN for tensors with more than one element.
            mode: Only steps of this mode; GLOBAL for all.
            worker: Only this worker; None for all.

        Returns:
            A pandas.DataFrame.

        Raises:
            ImportError: If pandas is not installed.
            InvalidWorker: If there is no such worker.
            ValueError: If there is no such statistic.
        """
        require_report_extra("to_dataframe", "pandas")
        import pandas as pd  # noqa: PLC0415 - may be missing

        if statistics is None:
            statistics = TABLE_COLUMNS
        columns = (statistics,) if isinstance(statistics, str) else tuple(statistics)
        names = self.select_tensors(regex, collection)
        if collection is not None and not names:
            chosen = collection_name(collection) + (f" that match {regex!r}" if regex else "")
            _logger.warning("No tensors from the collection %s were saved", chosen)
        with no_refresh(self):  # look for new files only once
            files = self.step_files(mode, worker)
        table = tidy_table(self.store, files, names, columns)
        return pd.DataFrame(
            {
                "step": table.steps,
                "mode": _named(table.mode_names, table.modes),
                "mode_step": table.mode_steps,
                "worker": _named(table.worker_names, table.workers),
                "tensor": _named(table.tensor_names, table.tensors),
                **table.columns,
            }
        )

    # ------------------------------------------------------------------ plots

    def plot(
        self,
        tensors: OneTensor | Iterable[OneTensor] | None = None,
        **options: Any,
    ) -> Figure:
        """Plot a statistic of tensors over the steps; see `rule_runtime.plotting.plot_tensors`."""
        from rule_runtime import plotting  # noqa: PLC0415 - needs matplotlib

        return plotting.plot_tensors(self._trial, tensors, **options)

    def plot_collection(self, name: str, regex: str = ".*", **options: Any) -> Figure:
        """Plot the tensors of a collection; see `rule_runtime.plotting.plot_collection`."""
        from rule_runtime import plotting  # noqa: PLC0415 - needs matplotlib

        return plotting.plot_collection(self._trial, name, regex, **options)

    def plot_metrics(self, **options: Any) -> Figure:
        """Plot the metrics of XGBoost; see `rule_runtime.plotting.plot_metrics`."""
        from rule_runtime import plotting  # noqa: PLC0415 - needs matplotlib

        return plotting.plot_metrics(self._trial, **options)

    def plot_feature_importance(self, importance_type: str = "weight", **options: Any) -> Figure:
        """Plot importances; see `rule_runtime.plotting.plot_feature_importance`."""
        from rule_runtime import plotting  # noqa: PLC0415 - needs matplotlib

        return plotting.plot_feature_importance(self._trial, importance_type, **options)

    def plot_average_shap(self, **options: Any) -> Figure:
        """Plot average SHAP values; see `rule_runtime.plotting.plot_average_shap`."""
        from rule_runtime import plotting  # noqa: PLC0415 - needs matplotlib

        return plotting.plot_average_shap(self._trial, **options)

    def plot_full_shap(self, **options: Any) -> Figure:
        """Plot the SHAP values of all rows; see `rule_runtime.plotting.plot_full_shap`."""
        from rule_runtime import plotting  # noqa: PLC0415 - needs matplotlib

        return plotting.plot_full_shap(self._trial, **options)

    def plot_activations(self, tensor: OneTensor, **options: Any) -> Figure:
        """Plot a layer's outputs as images; see `rule_runtime.plotting.plot_activations`."""
        from rule_runtime import plotting  # noqa: PLC0415 - needs matplotlib

        return plotting.plot_activations(self._trial, tensor, **options)

    def plot_kernels(self, tensor: OneTensor, **options: Any) -> Figure:
        """Plot kernels over the steps; see `rule_runtime.plotting.plot_kernels`."""
        from rule_runtime import plotting  # noqa: PLC0415 - needs matplotlib

        return plotting.plot_kernels(self._trial, tensor, **options)

    def create_xgboost_report(self, out_dir: str | os.PathLike[str]) -> XgboostReportPaths:
        """Write a report about an XGBoost run; see `rule_runtime.reporting.xgboost_report`."""
        from rule_runtime.reporting import xgboost_report  # noqa: PLC0415 - needs matplotlib

        return xgboost_report.create_xgboost_report(self._trial, out_dir)

    # ------------------------------------------------------------------ notebook views

    def __repr__(self) -> str:
        return (
            f"<Trial {self._trial.name!r} at {self._trial.path}: {len(self._files)} steps, "
            f"{len(self.workers_seen)} workers, {self._state}>"
        )

    def _repr_html_(self) -> str:
        trial, tensors = self._trial, self._tensors
        facts = {
            "path": trial.path,
            "state": self._state,
            "steps": steps_text(self._mode_to_global),
            "workers": few(self.workers_seen),
            "tensors": str(len(tensors)),
        }
        if self.problems:
            facts["unreadable"] = f"{len(self.problems)} index files, see trial.problems"
        shown = [(name, tensors[name].facts()) for name in sorted(tensors)[:MAX_TENSORS]]
        return trial_html(trial.name, facts, shown)

    @property
    def _state(self) -> str:
        if self.loaded_all_steps:
            return "training has ended"
        return "training continues" if self.has_begun else "nothing found yet"

    @property
    def _trial(self) -> Trial:
        return cast("Trial", self)


def _named(names: Sequence[str], codes: Any) -> Any:
    return np.array(names, dtype=object)[codes] if len(names) else np.empty(0, dtype=object)
