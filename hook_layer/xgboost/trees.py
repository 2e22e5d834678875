"""The trees of a boosting round as columns, one row for each node."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from xgboost import Booster

__all__ = ["TREE_COLUMNS", "trees_of_last_round"]

TREE_COLUMNS: Final = (
    "Tree",
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

    Args:
        model: A booster with trees.

    Returns:
        The columns of `Booster.trees_to_dataframe`, [nodes], of these trees; columns of text have
        "nan" where there is nothing, and categories are joined by commas.

    Raises:
        ImportError: pandas is not installed.
        ValueError: XGBoost cannot show these trees as a table.
    """
    last_round = model.num_boosted_rounds() - 1
    # Cut out first, for the whole model takes longer from round to round.
    frame = model[last_round : last_round + 1].trees_to_dataframe()
    columns = {name: frame[name].to_numpy() for name in TREE_COLUMNS}
    trees = columns["Tree"].astype(np.int64)
    trees += last_round * (int(trees.max()) + 1)
    return columns | {
        "Tree": trees,
        "Node": columns["Node"].astype(np.int64),
        "ID": _renumbered(columns["ID"], trees),
        "Feature": columns["Feature"].astype(np.str_),
        "Yes": _renumbered(columns["Yes"], trees),
        "No": _renumbered(columns["No"], trees),
        "Missing": _renumbered(columns["Missing"], trees),
        "Category": np.array([_joined(categories) for categories in columns["Category"]]),
    }


def _renumbered(nodes: NDArray[Any], trees: NDArray[np.int64]) -> NDArray[np.str_]:
    """Return names of nodes, `tree-node`, with the trees' numbers in the whole model."""
    return np.array(
        [
            f"{tree}-{name.partition('-')[2]}" if isinstance(name, str) else "nan"
            for name, tree in zip(nodes, trees, strict=True)
        ]
    )


def _joined(categories: object) -> str:
    return ",".join(map(str, categories)) if isinstance(categories, (list, tuple)) else "nan"
