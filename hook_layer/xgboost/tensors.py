"""The tensors of a boosting round, by groups that are computed only when one of them is due.

Predictions, SHAP values and trees take longer than the round itself; so a hook first asks a group
for the names that it may have (`TensorGroup.names`), which is cheap.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import xgboost
from numpy.typing import NDArray
from xgboost import Booster, DMatrix

from hook_layer.capture.captured_step import OwnedArray
from hook_layer.configuration.collections import CollectionKeys
from hook_layer.format.records import to_array
from hook_layer.install_hint import install_hint
from hook_layer.xgboost.data import first_rows
from hook_layer.xgboost.training_data import LABEL, TRAINING_DATA, WEIGHT, TrainingData
from hook_layer.xgboost.tree_steps import EFFECTIVE_RATE, WITHOUT_SPLIT, TreeSteps
from hook_layer.xgboost.trees import TREE_COLUMNS, trees_of_last_round
from hook_layer.xgboost.unavailable import UnavailableError

__all__ = ["GROUPS", "BoosterInputs", "RoundTensors", "TensorGroup"]

_IMPORTANCE_TYPES: Final = ("weight", "gain", "cover", "total_gain", "total_cover")
_BIAS: Final = "bias"
_TREE_BOOSTERS: Final = ("gbtree", "dart")
_STORABLE_KINDS: Final = "fiubU"

_KNOWS_VECTOR_LEAVES: Final = int(xgboost.__version__.partition(".")[0]) > 2  # noqa: PLR2004
"""Whether XGBoost can be asked for the importances in multi-output trees: version 2 crashes."""


@dataclass
class BoosterInputs:
    """What a hook is given beside the booster.

    Attributes:
        hyperparameters: The parameters of the training.
        train_data: The data that SHAP values are computed of.
        validation_data: The data that is predicted, with its labels.
        training_data: The rows of the current training.
        tree_steps: The effect of its trees.
    """

    hyperparameters: Mapping[str, Any] | None = None
    train_data: DMatrix | None = None
    validation_data: DMatrix | None = None
    training_data: TrainingData = field(default_factory=TrainingData)
    tree_steps: TreeSteps = field(default_factory=TreeSteps)


class RoundTensors:
    """Computes the tensors of one round."""

    def __init__(self, inputs: BoosterInputs, model: Booster | None) -> None:
        self._inputs = inputs
        self._model = model

    @property
    def model(self) -> Booster:
        """The booster.

        Raises:
            UnavailableError: There is none.
        """
        if self._model is None:
            raise UnavailableError(
                "the round has not exactly one model: xgboost.cv trains one per fold, or "
                "another callback cut the model"
            )
        return self._model

    @cached_property
    def features(self) -> Sequence[str]:
        """Names of the features, `f0 f1 ...` where they have none."""
        names = self.model.feature_names
        return [f"f{i}" for i in range(self.model.num_features())] if names is None else names

    def hyperparameters(self) -> dict[str, OwnedArray]:
        """Return `hyperparameters/{name}`."""
        given = self._inputs.hyperparameters
        if given is None:
            raise UnavailableError("pass hyperparameters= to the hook")
        return {f"hyperparameters/{name}": OwnedArray(_storable(v)) for name, v in given.items()}

    def predictions(self) -> dict[str, OwnedArray]:
        """Return `predictions` of the validation data, [rows] or [rows, classes]."""
        return {"predictions": OwnedArray(self.model.predict(self._validation_data))}

    def labels(self) -> dict[str, OwnedArray]:
        """Return `labels` of the validation data, [rows] or [rows, targets]."""
        data = self._validation_data
        labels = data.get_label()
        if not labels.size:
            raise UnavailableError("validation_data has no labels")
        if labels.size > data.num_row():  # XGBoost before 3.2 gives them in one row
            labels = labels.reshape(data.num_row(), -1)
        return {"labels": OwnedArray(labels)}

    def input_values(self) -> dict[str, OwnedArray]:
        """Return `input_values`: features of the first rows of the validation data, beside labels.

        They are [rows, features], what is missing is NaN.
        """
        values = first_rows(self._validation_data)
        if values is None:
            raise UnavailableError("validation_data is too large and cannot be cut")
        return {"input_values": OwnedArray(values)}

    def training_data(self) -> dict[str, OwnedArray]:
        """Return `training_data/Label` and `training_data/Weight`, once per training."""
        found = self._inputs.training_data.tensors(self._model)
        return {name: OwnedArray(values) for name, values in found.items()}

    def tree_steps(self) -> dict[str, OwnedArray]:
        """Return `optimizer_steps/{measure}`, [1]: what the trees change."""
        self._check_has_trees()
        if _booster_traits(self.model).has_vector_leaves:
            raise UnavailableError("trees with several outputs are not measured")
        found = self._inputs.tree_steps.measures(self.model)
        return {name: OwnedArray(np.array([value])) for name, value in found.items()}

    def feature_importance(self, kind: str) -> dict[str, OwnedArray]:
        """Return `feature_importance/{kind}/{feature}`, [1]: shares of the features in use."""
        self._check_has_trees()
        if _booster_traits(self.model).has_vector_leaves and not _KNOWS_VECTOR_LEAVES:
            raise UnavailableError("trees with several outputs need XGBoost 3")
        scores = self.model.get_score(importance_type=kind)
        values = np.array(list(scores.values()), np.float64)
        total = values.sum() or 1.0
        return {
            f"feature_importance/{kind}/{name}": OwnedArray(values[i : i + 1] / total)
            for i, name in enumerate(scores)
        }

    def average_shap(self) -> dict[str, OwnedArray]:
        """Return `average_shap/{feature}`, [1]: the mean over rows and classes."""
        values = self._shap
        averages = values.mean(axis=tuple(range(values.ndim - 1)), dtype=np.float64)
        averages = averages.astype(values.dtype)
        return {
            f"average_shap/{name}": OwnedArray(averages[i : i + 1])
            for i, name in enumerate(self.explained)
        }

    def full_shap(self) -> dict[str, OwnedArray]:
        """Return `full_shap/{feature}`: the whole matrix under each name, as the original does.

        It is [rows, features + 1] or [rows, classes, features + 1]; the bias comes last.
        """
        return {f"full_shap/{name}": OwnedArray(self._shap) for name in self.explained}

    def trees(self) -> dict[str, OwnedArray]:
        """Return `trees/{column}`, [nodes]: the trees of this round."""
        self._check_has_trees()
        try:
            columns = trees_of_last_round(self.model)
        except ImportError as error:
            raise UnavailableError(f"this needs pandas: {install_hint('xgboost')}") from error
        return {f"trees/{name}": OwnedArray(values) for name, values in columns.items()}

    @cached_property
    def explained(self) -> Sequence[str]:
        """What SHAP values are of: the features, and the bias unless a feature has its name."""
        return [*self.features, *(() if _BIAS in self.features else (_BIAS,))]

    def hyperparameter_names(self) -> Iterable[str]:
        """Return the names that `hyperparameters` has."""
        return (f"hyperparameters/{name}" for name in self._inputs.hyperparameters or ())

    def importance_names(self, kind: str) -> Iterable[str]:
        """Return the names that `feature_importance` may have."""
        return (f"feature_importance/{kind}/{name}" for name in self.features)

    def shap_names(self, prefix: str) -> Iterable[str]:
        """Return the names that `average_shap` or `full_shap` has."""
        return (f"{prefix}/{name}" for name in self.explained)

    @cached_property
    def _shap(self) -> NDArray[Any]:
        if self._inputs.train_data is None:
            raise UnavailableError("pass train_data= to the hook")
        return self.model.predict(self._inputs.train_data, pred_contribs=True)

    @property
    def _validation_data(self) -> DMatrix:
        if self._inputs.validation_data is None:
            raise UnavailableError("pass validation_data= to the hook, or evals= to the training")
        return self._inputs.validation_data

    def _check_has_trees(self) -> None:
        booster_type = _booster_traits(self.model).type
        if booster_type not in _TREE_BOOSTERS:
            raise UnavailableError(f"the booster {booster_type} has no trees")


@dataclass(frozen=True)
class TensorGroup:
    """Tensors that are computed together.

    Attributes:
        name: Name of the group: that of the collection that its tensors belong to, and what else
            their names begin with.
        names: Returns the names that it may have.
        compute: Returns its tensors.
        has_own_names: Whether a collection of everything leaves them out: the original has none
            of these, and they are large.
    """

    name: str
    names: Callable[[RoundTensors], Iterable[str]]
    compute: Callable[[RoundTensors], dict[str, OwnedArray]]
    has_own_names: bool = False

    @property
    def collection(self) -> str:
        """The collection that its tensors belong to."""
        return self.name.partition("/")[0]

    def is_member(self, tensor_name: str, round_tensors: RoundTensors) -> bool:
        """Return whether a tensor of the group is in the collection whatever its regex says."""
        is_bias = tensor_name == f"{self.name}/{_BIAS}"
        return not is_bias or _BIAS in round_tensors.features


def _constant(*names: str) -> Callable[[RoundTensors], Iterable[str]]:
    return lambda _: names


GROUPS: Final = (
    TensorGroup(
        CollectionKeys.HYPERPARAMETERS,
        RoundTensors.hyperparameter_names,
        RoundTensors.hyperparameters,
    ),
    TensorGroup(
        CollectionKeys.PREDICTIONS, _constant(CollectionKeys.PREDICTIONS), RoundTensors.predictions
    ),
    TensorGroup(CollectionKeys.LABELS, _constant(CollectionKeys.LABELS), RoundTensors.labels),
    TensorGroup(
        "input_values", _constant("input_values"), RoundTensors.input_values, has_own_names=True
    ),
    TensorGroup(
        TRAINING_DATA, _constant(LABEL, WEIGHT), RoundTensors.training_data, has_own_names=True
    ),
    TensorGroup(
        "optimizer_steps",
        _constant(WITHOUT_SPLIT, EFFECTIVE_RATE),
        RoundTensors.tree_steps,
        has_own_names=True,
    ),
    *(
        TensorGroup(
            f"{CollectionKeys.FEATURE_IMPORTANCE}/{kind}",
            partial(RoundTensors.importance_names, kind=kind),
            partial(RoundTensors.feature_importance, kind=kind),
        )
        for kind in _IMPORTANCE_TYPES
    ),
    *(
        TensorGroup(name, partial(RoundTensors.shap_names, prefix=name), compute)
        for name, compute in (
            (CollectionKeys.AVERAGE_SHAP, RoundTensors.average_shap),
            (CollectionKeys.FULL_SHAP, RoundTensors.full_shap),
        )
    ),
    TensorGroup(
        CollectionKeys.TREES,
        _constant(*(f"{CollectionKeys.TREES}/{column}" for column in TREE_COLUMNS)),
        RoundTensors.trees,
    ),
)
"""All groups, in the order of capture."""


class _BoosterTraits(NamedTuple):
    type: str
    has_vector_leaves: bool


_traits: Final[WeakKeyDictionary[Booster, _BoosterTraits]] = WeakKeyDictionary()


def _booster_traits(model: Booster) -> _BoosterTraits:
    """Return what a booster is; asked for once, for it takes as long as a round of a small one."""
    known = _traits.get(model)
    if known is None:
        learner = json.loads(model.save_config())["learner"]
        strategy = learner["learner_train_param"].get("multi_strategy")
        known = _traits[model] = _BoosterTraits(
            learner["gradient_booster"]["name"], strategy == "multi_output_tree"
        )
    return known


def _storable(value: object) -> NDArray[Any]:
    """Return a parameter as numbers or texts that the format can hold, [...] or [texts]."""
    try:
        array = to_array(value)
    except ValueError:  # lists of different lengths
        return np.array([str(value)])
    is_text = array.dtype.kind == "U"
    if array.dtype.kind in _STORABLE_KINDS and not (is_text and array.ndim != 1):
        return np.array(array)
    return np.array([str(value)])
