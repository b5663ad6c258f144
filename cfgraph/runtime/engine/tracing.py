"""Attachment of observers to the closures of nodes."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from cfgraph.ir.devices import short_device_name
from cfgraph.ir.graph import Node
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import rendezvous_key
from cfgraph.runtime.engine.kernel_nodes import TRANSFER_NODES
from cfgraph.runtime.engine.link import FireWrapper
from cfgraph.runtime.engine.plan import NodePlan
from cfgraph.runtime.engine.propagate import Consumers, Fire, Iteration, Send
from cfgraph.runtime.engine.references import dereference
from cfgraph.runtime.trace.events import Observer, TraceEvent


def trace_wrapper(observer: Observer, device: str, run_start: int) -> FireWrapper:
    """A wrapper for `link` that reports every token to `observer`, with times since `run_start`."""

    def wrap(plan: NodePlan, ports: list[Consumers], live: Fire, dead: Fire) -> tuple[Fire, Fire]:
        node, role, none = plan.node, plan.op.role, (None,) * plan.outputs
        outputs: list[Any] = list(none)
        sends, receives = role is Role.SEND, role is Role.RECV
        forwards = role in (Role.ENTER, Role.EXIT, Role.NEXT_ITERATION)
        for port, consumers in enumerate(() if forwards else ports):
            consumers.senders.insert(0, _capture(outputs, port, shares=bool(plan.forwarded_slots)))
        pair = _transfer_name(node) if role in TRANSFER_NODES else ""
        kind = role.value if role and pair else "op"

        def fire(iteration: Iteration) -> None:
            size = message_bytes(iteration.values[plan.base]) if sends else 0
            if forwards:
                value = iteration.values[plan.base]
                outputs[0] = dereference(value) if plan.forwarded_slots else value
            start = time.perf_counter_ns() - run_start
            live(iteration)
            values = tuple(outputs)
            outputs[:] = none
            report(iteration, False, start, values, size)

        def fire_dead(iteration: Iteration) -> None:
            size = message_bytes(iteration.values[plan.base]) if sends else 0
            start = time.perf_counter_ns() - run_start
            dead(iteration)
            report(iteration, True, start, none, size)

        def report(
            iteration: Iteration, is_dead: bool, start: int, values: tuple[Any, ...], size: int
        ) -> None:
            end = time.perf_counter_ns() - run_start
            flow = f"{pair} {iteration.path}" if pair else None
            if receives:
                size = message_bytes(values[0])
            observer.event(
                TraceEvent(
                    device,
                    node.name,
                    node.op,
                    iteration.path,
                    iteration.index,
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


def _transfer_name(node: Node) -> str:
    """The name of a transfer at both ends, without the tag of a message."""
    key = rendezvous_key(node)
    sender, receiver = short_device_name(key.send_device), short_device_name(key.recv_device)
    return f"{sender}>{receiver} {key.tensor_name}"


def message_bytes(value: Any) -> int:
    """The size of a message; 0 for deadness and for values that are not arrays."""
    if isinstance(value, np.ndarray) and value.dtype == object:
        return sum(len(text) for text in value.flat if isinstance(text, bytes))
    return int(getattr(value, "nbytes", 0))


def _capture(outputs: list[Any], port: int, *, shares: bool) -> Send:
    def capture(iteration: Iteration, value: Any) -> int:
        outputs[port] = dereference(value) if shares else value
        return 0

    return capture
