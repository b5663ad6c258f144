"""Roles of ops in the executor's control-flow protocol."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Role(StrEnum):
    """Control-flow primitive that an op implements; an ordinary op has none."""

    SWITCH = "switch"
    MERGE = "merge"
    ENTER = "enter"
    EXIT = "exit"
    NEXT_ITERATION = "next_iteration"
    LOOP_COND = "loop_cond"
    CONTROL_TRIGGER = "trigger"
    SEND = "send"
    RECV = "recv"
    ARG = "arg"
    RETVAL = "retval"


# for loops over all nodes: Python 3.11 takes five times as long to read an attribute of an enum
SWITCH: Final = Role.SWITCH
MERGE: Final = Role.MERGE
ENTER: Final = Role.ENTER
EXIT: Final = Role.EXIT
NEXT_ITERATION: Final = Role.NEXT_ITERATION
LOOP_COND: Final = Role.LOOP_COND
CONTROL_TRIGGER: Final = Role.CONTROL_TRIGGER
SEND: Final = Role.SEND
RECV: Final = Role.RECV

# each output of these ops is one of its inputs, unchanged; a Switch has it on one of its outputs
FORWARDING_ROLES: Final = frozenset(
    {Role.SWITCH, Role.MERGE, Role.ENTER, Role.EXIT, Role.NEXT_ITERATION}
)
