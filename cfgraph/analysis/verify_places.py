"""Rules on devices, and on who may read the graph at all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from cfgraph.analysis.findings import Finding
from cfgraph.analysis.subject import Subject

# the version of GraphDef that this package follows: that of TensorFlow 2.21
CONSUMER: Final = 2474

_DEVICE: Final = re.compile(
    r"(/job:[A-Za-z]\w*|/(replica|task):(\d+|\*)|/device:(\*|[A-Za-z]\w*)(:(\d+|\*))?"
    r"|/([cg]pu|[CG]PU):(\d+|\*))*/?\Z"
).match
_COLOCATED: Final = b"loc:@"


def devices(subject: Subject) -> Iterator[Finding]:
    """Every device that a node asks for is written as devices are written."""
    good: set[str] = {""}
    for node in subject.nodes:
        device = node.device
        if device in good:
            continue
        if _DEVICE(device):
            good.add(device)
            continue
        message = f"{device!r} is no device name"
        hint = "write it as in /job:worker/task:0/device:GPU:1, or a part of that"
        yield Finding("CFG402", "warning", message, node.name, hint)


def colocation(subject: Subject) -> Iterator[Finding]:
    """Every node that another one wants to be beside exists."""
    for node in subject.nodes:
        groups = node.attrs.get("_class")
        if groups is None:
            continue
        if not isinstance(groups, tuple):
            message = "attribute '_class' is no list of names, so nothing is placed beside the node"
            yield Finding("CFG401", "warning", message, node.name)
            continue
        for group in groups:
            if not isinstance(group, bytes) or not group.startswith(_COLOCATED):
                continue
            name = group[len(_COLOCATED) :].decode("utf-8", "backslashreplace")
            if name not in subject.graph.nodes:
                message = f"the node is to be placed beside {name!r}, which does not exist"
                hint = subject.guess(name, subject.graph.nodes)
                yield Finding("CFG401", "warning", message, node.name, hint)


def versions(subject: Subject) -> Iterator[Finding]:
    """The producer of the graph lets a consumer like us read it."""
    producer, min_consumer, bad_consumers = subject.graph.versions
    if producer < 0:
        message = f"the graph claims to come from a producer of version {producer}"
        yield Finding("CFG120", "error", message)
    if min_consumer > CONSUMER:
        message = (
            f"the graph is for consumers of version {min_consumer} and later, this is {CONSUMER}"
        )
        yield Finding("CFG120", "error", message, hint="a newer version of cfgraph may read it")
    if CONSUMER in bad_consumers:
        message = f"the graph is not for consumers of version {CONSUMER}, which this is"
        yield Finding("CFG120", "error", message, hint="write it anew with another producer")
