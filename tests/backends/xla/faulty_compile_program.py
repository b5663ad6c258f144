"""The program that compiles, with a fault that a variable of the environment plants in a step."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from cfgraph.backends.xla import compile_program
from tests.processes.misbehaving_program import FAULTS, take_memory

# "STEP FAULT"
FAULT = "CFGRAPH_TEST_COMPILE_FAULT"
STEPS = {
    "import": "import_jax",
    "trace": "trace_function",
    "compile": "compile_lowered",
    "time": "timed_calls",
}


# as absl prints it
FAILED_CHECK = """\
F1127 07:45:16.760610   30039 hlo_instruction.cc:843] Check failed: planted
*** Check failure stack trace: ***
    @     0x7fbee7440634  absl::log_internal::LogMessage::SendToLog()
    @     0x7fbee322cc4c  xla::HloInstruction::CloneWithNewOperands()
    @     0x7fbeedb59243  xla::InstructionFusion::RunImpl()
    @     0x7fbef6158ba3  PyObject_Vectorcall
"""


def abort_in_fusion() -> None:
    sys.stderr.write(FAILED_CHECK)
    sys.stderr.flush()
    os.abort()


def fail_a_check() -> None:
    from jaxlib import xla_client

    shape = xla_client.Shape.array_shape(np.dtype("float32"), (2,))
    shape.tuple_shapes()  # of no tuple: jaxlib ends the process


KINDS: dict[str, Callable[[], Any]] = {
    **FAULTS,
    "exit without an error": lambda: os._exit(0),
    "memory": lambda: [take_memory() for _ in range(8)],
    "kill": lambda: signal.raise_signal(signal.SIGKILL),
    "fusion": abort_in_fusion,
    "failed check": fail_a_check,
}


def faulty(step: Callable[..., Any], kind: str, *arguments: Any) -> Any:
    without_fusion = len(arguments) > 1 and bool(arguments[1])
    if not (kind == "fusion" and without_fusion):
        KINDS[kind]()
    return step(*arguments)


def end_after_the_answer(step: Callable[..., Any], kind: str, *arguments: Any) -> Any:
    threading.Timer(0.002, KINDS[kind]).start()
    return step(*arguments)


def main(connection: int) -> None:
    step, _, kind = os.environ[FAULT].partition(" ")
    wrapper, name = faulty, STEPS.get(step, "compile_function")
    if step == "load":
        wrapper = end_after_the_answer
    real = getattr(compile_program, name)
    setattr(compile_program, name, partial(wrapper, real, kind))
    compile_program.main(connection)
