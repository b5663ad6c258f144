"""Nodes that runs still need once a node no longer waits for them.

    r ──▶ Switch(r, false):1 ──▶ Merge ──▶ Sub ──▶ y
    └──────────────────────────────────────▲

A run executes what its fetches depend on. A node `r` that reached the fetches only through the dead
input of a Merge would no longer run without that input, and an error in it would be lost. Here it
still runs, because each path from the Merge to an output meets a reader of `r`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import Final

from cfgraph.ir.graph import Node
from cfgraph.ops.opdef.op import has_effect

# nodes that a search visits
_MAX_VISITED: Final = 500


def is_still_needed(
    source: Node, node: Node, outputs: Collection[Node], fed: Collection[Node]
) -> bool:
    """True if each run that needs `node` also needs `source`, without an edge into `node`.

    A run may fetch any of `outputs`, and may feed the nodes in `fed`. The searches are bounded.
    """
    readers, _ = _descendants(source, lambda item: item is not node and item not in fed)
    uncovered, is_complete = _descendants(node, lambda item: item not in readers)
    return is_complete and not any(
        item in outputs or not item.uses or has_effect(item) for item in uncovered
    )


def _descendants(start: Node, enter: Callable[[Node], bool]) -> tuple[set[Node], bool]:
    """The nearest nodes that a path leads to, through nodes for which `enter` is true.

    The second value is False if the bound was reached.
    """
    found, todo = {start}, deque([start])
    while todo:
        for use in todo.popleft().uses:
            if use.node in found or not enter(use.node):
                continue
            if len(found) >= _MAX_VISITED:
                return found, False
            found.add(use.node)
            todo.append(use.node)
    return found, True
