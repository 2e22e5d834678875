"""Depth of decision trees that are given as columns, one row for each node.

Shape legend: N = nodes, of one or several trees.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["deepest", "depth_of_complete_tree"]


def deepest(names: Sequence[str], *children: Sequence[str]) -> int | None:
    """Return the depth of the deepest tree: links from a root to the farthest node below it.

    Args:
        names: Name of each node [N], unique over all trees.
        children: For each kind of child, its name at each node [N]; what names no node is no child.

    Returns:
        The depth, 0 for trees of one node; None if the links make no trees.
    """
    rows = {name: at for at, name in enumerate(names)}
    if len(rows) < len(names):
        return None
    parents = [-1] * len(names)
    below: list[list[int]] = [[] for _ in names]
    for column in children:
        for at, child in enumerate(column):
            row = rows.get(child)
            if row is None:
                continue
            if parents[row] >= 0:
                return None
            parents[row] = at
            below[at].append(row)
    level = [at for at, parent in enumerate(parents) if parent < 0]
    depth, num_seen = -1, 0
    while level:
        num_seen += len(level)
        depth += 1
        level = [child for at in level for child in below[at]]
    return depth if names and num_seen == len(names) else None


def depth_of_complete_tree(largest_id: float) -> int:
    """Return the depth of a tree by its largest node number: floor(log2(number)).

    It is exact for trees whose nodes are numbered level by level from 0 with no gap, where the
    numbers up to depth d are 0 to 2^(d + 1) - 2.

    Args:
        largest_id: The number, finite.
    """
    # Of an integer no logarithm is rounded up to the next depth.
    return max(int(largest_id).bit_length() - 1, 0)
