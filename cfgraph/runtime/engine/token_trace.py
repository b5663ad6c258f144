"""Tracing of tokens: closures that report each firing of a node to an observer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from cfgraph.ir.devices import short_device_name
from cfgraph.ir.graph import Node
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import rendezvous_key
from cfgraph.runtime.engine.joint_products import evaluated
from cfgraph.runtime.engine.kernel_nodes import TRANSFER_NODES
from cfgraph.runtime.engine.link import FireWrapper
from cfgraph.runtime.engine.plan import NodePlan
from cfgraph.runtime.engine.propagate import Consumers, Fire, Iteration, Send
from cfgraph.runtime.engine.references import dereference
from cfgraph.runtime.trace.events import Observer, TraceEvent

# of a token: its iteration, start, outputs, and bytes of its message, and true if it is dead
_Report = Callable[[Iteration, int, tuple[Any, ...], int, bool], None]


def trace_wrapper(observer: Observer, device: str, run_start: int) -> FireWrapper:
    """A wrapper for `link` that reports every token to `observer`, with times since `run_start`."""

    def wrap(plan: NodePlan, ports: list[Consumers], live: Fire, dead: Fire) -> tuple[Fire, Fire]:
        role, base, none = plan.op.role, plan.base, (None,) * plan.outputs
        outputs: list[Any] = list(none)
        sends, forwards = role is Role.SEND, role in (Role.ENTER, Role.EXIT, Role.NEXT_ITERATION)
        for port, consumers in enumerate(() if forwards else ports):
            consumers.senders.insert(0, _capture(outputs, port, shares=bool(plan.forwarded_slots)))
        report = _report_function(plan, observer, device, run_start)

        def fire(iteration: Iteration) -> None:
            size = message_bytes(iteration.values[base]) if sends else 0
            if forwards:
                value = iteration.values[base]
                outputs[0] = dereference(value) if plan.forwarded_slots else value
            start = time.perf_counter_ns() - run_start
            live(iteration)
            values = tuple(outputs)
            outputs[:] = none
            report(iteration, start, values, size, False)

        def fire_dead(iteration: Iteration) -> None:
            size = message_bytes(iteration.values[base]) if sends else 0
            start = time.perf_counter_ns() - run_start
            dead(iteration)
            report(iteration, start, none, size, True)

        return fire, fire_dead

    return wrap


def _report_function(plan: NodePlan, observer: Observer, device: str, run_start: int) -> _Report:
    """A function that reports a token of a node that has just fired."""
    node, role, is_joint = plan.node, plan.op.role, plan.wrapper is not None
    pair = _transfer_name(node) if role in TRANSFER_NODES else ""
    kind = role.value if role and pair else "op"
    receives = role is Role.RECV

    def report(
        iteration: Iteration, start: int, values: tuple[Any, ...], size: int, is_dead: bool
    ) -> None:
        end, path = time.perf_counter_ns() - run_start, iteration.path
        observer.event(
            TraceEvent(
                device,
                node.name,
                node.op,
                path,
                iteration.index,
                is_dead,
                start,
                end,
                tuple(map(evaluated, values)),
                kind,
                f"{pair} {path}" if pair else None,
                message_bytes(values[0]) if receives else size,
                joint=is_joint,
            )
        )

    return report


def _capture(outputs: list[Any], port: int, *, shares: bool) -> Send:
    """A function that notes the value of an output for its event; it delivers nothing."""

    def capture(iteration: Iteration, value: Any) -> int:
        outputs[port] = dereference(value) if shares else value
        return 0

    return capture


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
