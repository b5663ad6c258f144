"""A run with its generated function, which is made when it is first needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import RLock
from typing import Any

from cfgraph.ir.graph import Node
from cfgraph.runtime.compiled.interpreter import Interpreter
from cfgraph.runtime.engine.plan import Plan
from cfgraph.runtime.program import GeneratedCode

Function = Callable[..., tuple[Any, ...]]


class GeneratedFunction:
    """The code of a run and its function, generated once, when they are first needed."""

    def __init__(self, make: Callable[[], tuple[GeneratedCode, Function]]) -> None:
        self._make = make
        self._made: tuple[GeneratedCode, Function] | None = None
        self._lock = RLock()  # the handler of a signal may run the session again

    @property
    def is_made(self) -> bool:
        """True if the code has been generated."""
        return self._made is not None

    def get(self) -> tuple[GeneratedCode, Function]:
        """The code and the function. Raises NotCompiled with a reason."""
        made = self._made
        if made is None:
            with self._lock:
                made = self._made = self._made or self._make()
        return made


@dataclass(frozen=True)
class CompiledRun:
    """The generated function of a run, and the `interpreter` of its first run if it has one.

    `is_repeatable`: the run changes nothing that outlives it, so that it may be repeated to
    explain an error. `needs_tokens_for_dead`: it is not, and a fetch may be dead, which only the
    token executor can explain. `device_of` has the devices of the nodes of a run on several.
    """

    plan: Plan
    generated: GeneratedFunction
    is_repeatable: bool
    needs_tokens_for_dead: bool
    device_of: Mapping[Node, str]
    interpreter: Interpreter | None = None

    @property
    def code(self) -> GeneratedCode:
        """The generated code."""
        return self.generated.get()[0]

    @property
    def calls(self) -> int:
        """The depth of calls between the functions of the code."""
        return self.code.calls if self.interpreter is None else 0

    def next_function(self) -> tuple[Function, bool]:
        """The function of the next run; true for the interpreter, if that is the first run."""
        interpreter = self.interpreter
        if interpreter is not None and not interpreter.has_run:
            return interpreter.run, True
        return self.generated.get()[1], False
