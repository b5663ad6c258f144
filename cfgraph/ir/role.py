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


# each output of these ops is one of its inputs, unchanged; a Switch has it on one of its outputs
FORWARDING_ROLES: Final = frozenset(
    {Role.SWITCH, Role.MERGE, Role.ENTER, Role.EXIT, Role.NEXT_ITERATION}
)
