"""The order of side effects inside a body: on each resource that of the program."""

from __future__ import annotations

from collections.abc import Iterable

from cfgraph.ir.graph import Node, Output
from cfgraph.ops.op import lookup


class Effects:
    """Which nodes of a body must run, and what each waits for.

    What reads or writes one resource runs in the order in which it was written down; so do the
    effects on the outside world (printing, assertions).
    """

    def __init__(self) -> None:
        self.must_run: dict[Node, None] = {}
        self._reads: list[Node] = []
        self._written: dict[Output | None, Node] = {}
        self._read: dict[Output | None, list[Node]] = {}

    def order(self, node: Node) -> list[Node]:
        """Take note of a new node; what it has to wait for."""
        op = lookup(node.op)
        if op is None or not op.stateful:
            return []
        keys: list[Output | None] = [item for item in node.inputs if _is_shared(item)]
        if not keys and (op.random or _is_shared(Output(node))):
            return []
        if not keys or hasattr(op, "functional"):
            keys.append(None)
        before: dict[Node, None] = {}
        for key in keys:
            if key in self._written:
                before[self._written[key]] = None
            if op.reads_only:
                self._read.setdefault(key, []).append(node)
            else:
                before.update(dict.fromkeys(self._read.pop(key, ())))
                self._written[key] = node
        if op.reads_only:
            self._reads.append(node)
        else:
            self.must_run[node] = None
        before.pop(node, None)
        return list(before)

    def to_run(self, returned: Iterable[Output]) -> list[Node]:
        """What has to be done when the body is: all effects, and what is read of variables.

        Were it not for the latter, a write after the body could come before a read in it.
        """
        given = {output.node for output in returned}
        read = [node for node in self._reads if node.uses or node in given]
        return [*self.must_run, *read]


def _is_shared(item: Output) -> bool:
    dtype = item.dtype
    return dtype is not None and (dtype.is_ref or dtype.kind == "resource")
