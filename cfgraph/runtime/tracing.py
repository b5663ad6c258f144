"""Puts an observer around the closures of every node."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from cfgraph.analysis.transfers import rendezvous_key
from cfgraph.ir.devices import short_device_name
from cfgraph.ir.graph import Node
from cfgraph.runtime.deliver import Edges
from cfgraph.runtime.fire_transfer import TRANSFERS
from cfgraph.runtime.frame_state import Fire, Iteration, Send
from cfgraph.runtime.link import Wrap
from cfgraph.runtime.plan import NodePlan
from cfgraph.runtime.references import value_of
from cfgraph.runtime.trace import Observer, TraceEvent


def traced(observer: Observer, device: str, began: int) -> Wrap:
    """A wrapper for `link` that tells `observer` every token that fires, and when since `began`."""

    def wrap(plan: NodePlan, ports: list[Edges], live: Fire, dead: Fire) -> tuple[Fire, Fire]:
        node, role, none = plan.node, plan.op.role, (None,) * plan.outputs
        outputs: list[Any] = list(none)
        forwards = role in ("enter", "exit", "next_iteration")
        for port, edges in enumerate(() if forwards else ports):
            edges.others.insert(0, _capture(outputs, port, shares=bool(plan.shares)))
        pair = _pair(node) if role in TRANSFERS else ""
        kind = role if pair else "op"

        def fire(it: Iteration) -> None:
            size = size_of(it.values[plan.base]) if role == "send" else 0
            if forwards:
                value = it.values[plan.base]
                outputs[0] = value_of(value) if plan.shares else value
            start = time.perf_counter_ns() - began
            live(it)
            told = tuple(outputs)
            outputs[:] = none
            tell(it, False, start, told, size)

        def fire_dead(it: Iteration) -> None:
            size = size_of(it.values[plan.base]) if role == "send" else 0
            start = time.perf_counter_ns() - began
            dead(it)
            tell(it, True, start, none, size)

        def tell(
            it: Iteration, is_dead: bool, start: int, values: tuple[Any, ...], size: int
        ) -> None:
            end = time.perf_counter_ns() - began
            flow = f"{pair} {it.path}" if pair else None
            if role == "recv":
                size = size_of(values[0])
            observer.event(
                TraceEvent(
                    device,
                    node.name,
                    node.op,
                    it.path,
                    it.index,
                    is_dead,
                    start,
                    end,
                    values,
                    kind,
                    flow,
                    size,
                )
            )

        return fire, fire_dead

    return wrap


def _pair(node: Node) -> str:
    """What both ends of a transfer are called, but for the tag of each message."""
    key = rendezvous_key(node)
    sender, receiver = short_device_name(key.send_device), short_device_name(key.recv_device)
    return f"{sender}>{receiver} {key.tensor_name}"


def size_of(value: Any) -> int:
    """The bytes of a message; 0 for deadness, and for what is no array."""
    if isinstance(value, np.ndarray) and value.dtype == object:
        return sum(len(item) for item in value.flat if isinstance(item, bytes))
    return int(getattr(value, "nbytes", 0))


def _capture(outputs: list[Any], port: int, *, shares: bool) -> Send:
    def capture(it: Iteration, value: Any) -> int:
        outputs[port] = value_of(value) if shares else value
        return 0

    return capture
