"""The trees of a boosting round as columns, one row for each node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from xgboost import Booster

__all__ = ["TREE_COLUMNS", "trees_of_last_round"]

TREE_COLUMNS: Final = (
    "Tree",
    "Target",
    "Node",
    "ID",
    "Feature",
    "Split",
    "Yes",
    "No",
    "Missing",
    "Gain",
    "Cover",
    "Category",
)


def trees_of_last_round(model: Booster) -> dict[str, NDArray[Any]]:
    """Return the trees of the last round: one, or one for each class and parallel tree.

    Returns:
        The columns of `Booster.trees_to_dataframe`, [nodes], of these trees (`Target` from XGBoost
        3.4 on); columns of text have "nan" where there is nothing, and categories are joined by
        commas.

    Raises:
        ImportError: pandas is not installed.
        ValueError: XGBoost cannot show these trees as a table.
    """
    last_round = model.num_boosted_rounds() - 1
    # Cut out first, for the whole model takes longer from round to round.
    frame = model[last_round : last_round + 1].trees_to_dataframe()
    trees = frame["Tree"].to_numpy(np.int64)
    trees = trees + last_round * (int(trees.max()) + 1)
    columns = {
        "Tree": trees,
        "Node": frame["Node"].to_numpy(np.int64),
        "ID": _renumbered(frame["ID"], trees),
        "Feature": np.array(list(frame["Feature"]), np.str_),
        "Split": frame["Split"].to_numpy(np.float64, na_value=np.nan),
        "Yes": _renumbered(frame["Yes"], trees),
        "No": _renumbered(frame["No"], trees),
        "Missing": _renumbered(frame["Missing"], trees),
        "Gain": frame["Gain"].to_numpy(np.float64, na_value=np.nan),
        "Cover": frame["Cover"].to_numpy(np.float64, na_value=np.nan),
        "Category": np.array([_joined(categories) for categories in frame["Category"]]),
    }
    if "Target" in frame:
        columns["Target"] = frame["Target"].to_numpy(np.float64, na_value=np.nan)
    return columns


def _renumbered(nodes: Iterable[object], trees: NDArray[np.int64]) -> NDArray[np.str_]:
    """Return names of nodes, `tree-node`, with the trees' numbers in the whole model."""
    return np.array(
        [
            f"{tree}-{name.partition('-')[2]}" if isinstance(name, str) else "nan"
            for name, tree in zip(nodes, trees, strict=True)
        ]
    )


def _joined(categories: object) -> str:
    return ",".join(map(str, categories)) if isinstance(categories, (list, tuple)) else "nan"
