"""Puts an observer around the closures of every node."""

from __future__ import annotations

import time
from typing import Any

from cfgraph.runtime.deliver import Edges
from cfgraph.runtime.frame_state import Fire, Iteration, Send
from cfgraph.runtime.link import Wrap
from cfgraph.runtime.plan import NodePlan
from cfgraph.runtime.trace import Observer, TraceEvent


def traced(observer: Observer, device: str, began: int) -> Wrap:
    """A wrapper for `link` that tells `observer` every token that fires, and when since `began`."""

    def wrap(plan: NodePlan, ports: list[Edges], live: Fire, dead: Fire) -> tuple[Fire, Fire]:
        node, none = plan.node, (None,) * plan.outputs
        outputs: list[Any] = list(none)
        for port, edges in enumerate(ports):
            edges.others.insert(0, _capture(outputs, port))
        forwards = plan.op.role in ("enter", "exit", "next_iteration")

        def fire(it: Iteration) -> None:
            outputs[:] = (it.values[plan.base],) if forwards else none
            start = time.perf_counter_ns() - began
            live(it)
            tell(it, False, start, tuple(outputs))

        def fire_dead(it: Iteration) -> None:
            start = time.perf_counter_ns() - began
            dead(it)
            tell(it, True, start, none)

        def tell(it: Iteration, is_dead: bool, start: int, values: tuple[Any, ...]) -> None:
            end = time.perf_counter_ns() - began
            observer.event(
                TraceEvent(
                    device, node.name, node.op, it.path, it.index, is_dead, start, end, values
                )
            )

        return fire, fire_dead

    return wrap


def _capture(outputs: list[Any], port: int) -> Send:
    def capture(it: Iteration, value: Any) -> int:
        outputs[port] = value
        return 0

    return capture
