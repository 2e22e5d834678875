"""Depth of decision trees given as columns with one row per node.

Shape legend: N = nodes, of one or several trees.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["deepest"]


def deepest(names: Sequence[str], *children: Sequence[str]) -> int | None:
    """Return the depth of the deepest tree: the most links between a root and a node below it.

    Args:
        names: Name of each node [N], unique over all trees.
        children: For each kind of child, its name at each node [N]; other names are ignored.

    Returns:
        The depth, 0 for trees of one node; None if the links do not form trees.
    """
    rows = {name: at for at, name in enumerate(names)}
    below: list[list[int]] = [[] for _ in names]
    roots = set(range(len(names)))
    num_links = 0
    for column in children:
        for parent, child in enumerate(column):
            if (row := rows.get(child)) is not None:
                below[parent].append(row)
                roots.discard(row)
                num_links += 1
    if len(rows) < len(names) or num_links != len(names) - len(roots):
        return None  # a node has two parents
    depth, num_seen, level = -1, 0, list(roots)
    while level:
        num_seen += len(level)
        depth += 1
        level = [child for at in level for child in below[at]]
    return depth if names and num_seen == len(names) else None
