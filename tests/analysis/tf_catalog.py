"""Building blocks of the graphs in TensorFlow's own deadness tests."""

from __future__ import annotations

from typing import Any

import numpy as np

import cfgraph.ops  # noqa: F401 - fills the registry
from cfgraph.analysis.deadness.deadness_tf import TfDeadness, deadness_tf
from cfgraph.ir import dtypes
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.graph import CONTROL, Graph, Node, Output
from cfgraph.ir.shapes import Shape

Source = Output | Node


class Pieces:
    """Builder of one graph; loops use the raw condition, without a LoopCond."""

    def __init__(self) -> None:
        self.graph = Graph()

    def op(self, op: str, *inputs: Source, **attrs: Any) -> Node:
        return self.graph.add(op, *inputs, **attrs)

    def placeholder(self, name: str, dtype: dtypes.DType = dtypes.float32) -> Node:
        return self.op("Placeholder", name=name, dtype=dtype, shape=Shape(()))

    def const(self, value: Any, *controls: Node, name: str = "Const") -> Node:
        array = np.asarray(value, None if isinstance(value, bool) else np.int32)
        dtype = dtypes.DType.from_numpy(array.dtype)
        return self.op("Const", name=name, controls=controls, value=TensorValue(array), dtype=dtype)

    def add(self, *inputs: Source, name: str = "Add") -> Node:
        return self.op("AddV2", *inputs, name=name)

    def merge(self, *inputs: Source, controls: tuple[Node, ...] = (), name: str = "Merge") -> Node:
        return self.op("Merge", *inputs, controls=controls, name=name)

    def identity(self, source: Source, name: str = "Identity") -> Node:
        return self.op("Identity", source, name=name)

    def switch(self, name: str) -> tuple[Output, Output]:
        """A Switch with inputs of its own: the outputs for false and true."""
        value = self.placeholder(f"{name}/value")
        test = self.placeholder(f"{name}/pred", dtypes.bool_)
        made = self.op("Switch", value, test, name=f"{name}/switch")
        return made.output(0), made.output(1)

    def recv(self, name: str, dtype: dtypes.DType = dtypes.int32, op: str = "_Recv") -> Node:
        device = b"/job:localhost/replica:0/task:0/device:CPU:0"
        return self.op(
            op,
            name=name,
            tensor_type=dtype,
            tensor_name=name.encode(),
            send_device=device,
            recv_device=device,
            send_device_incarnation=0,
        )

    def enter(self, source: Source, frame: str, name: str, *, constant: bool = False) -> Node:
        attrs = {"frame_name": frame.encode(), "is_constant": constant}
        return self.op("Enter", source, name=name, **attrs)

    def counter(self, prefix: str, frame: str, start: Source) -> Counter:
        """A loop that counts, with a condition of its own."""
        made = Counter()
        enter = self.enter(start, frame, f"{prefix}/enter")
        made.iv = self.merge(enter, enter, name=f"{prefix}/iv")
        step = self.const(1, made.iv, name=f"{prefix}/incr")
        final = self.const(10, made.iv, name=f"{prefix}/final")
        made.cond = self.op("Less", made.iv, final, name=f"{prefix}/cond")
        made.latch = self.op("Switch", made.iv, made.cond, name=f"{prefix}/latch")
        made.exit = self.op("Exit", made.latch.output(0), name=f"{prefix}/exit")
        self.close(made, self.add(made.latch.output(1), step, name=f"{prefix}/ivnext"), prefix)
        return made

    def carried(self, prefix: str, frame: str, cond: Source, value: Source) -> Counter:
        """An invariant loop variable."""
        made = Counter()
        enter = self.enter(value, frame, f"{prefix}/enter")
        made.iv = self.merge(enter, enter, name=f"{prefix}/iv")
        made.cond = cond if isinstance(cond, Node) else cond.node
        made.latch = self.op("Switch", made.iv, cond, name=f"{prefix}/latch")
        made.exit = self.op("Exit", made.latch.output(0), name=f"{prefix}/exit")
        self.close(made, made.latch.output(1), prefix)
        return made

    def close(self, made: Counter, value: Source, prefix: str) -> None:
        made.next = self.op("NextIteration", value, name=f"{prefix}/next_iteration")
        self.graph.set_input(made.iv, 1, made.next.output())

    def latch_reads(self, made: Counter, other: Counter) -> None:
        """Connect the back edge of one variable to another variable."""
        self.graph.set_input(made.latch, 0, other.iv.output())

    # -- results --------------------------------------------------------------------------------

    def analyze(self, *, optimistic: bool = True) -> TfDeadness:
        return deadness_tf(self.graph, optimistic=optimistic)

    def text(self, source: Source, *, optimistic: bool = True) -> str:
        """The predicate of an output, or of a node's control edges."""
        output = source if isinstance(source, Output) else Output(source, CONTROL)
        return self.analyze(optimistic=optimistic).text(output)

    def mismatch(self, node: Node, *, optimistic: bool = True) -> bool:
        """True if the inputs of a node are not all live under the same conditions."""
        found = self.analyze(optimistic=optimistic)
        edges = [*node.inputs, *(Output(source, CONTROL) for source in node.controls)]
        return any(not found.equal(edges[0], other) for other in edges[1:])


class Counter:
    """The nodes of one loop variable."""

    iv: Node
    cond: Node
    latch: Node
    exit: Node
    next: Node
