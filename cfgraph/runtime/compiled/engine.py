"""The compiled engine: generated functions of prepared runs, and their execution.

A deadline costs nothing in the loops of the code: another thread raises `DeadlinePassed` in it.
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import count
from traceback import walk_tb
from types import CodeType, FrameType
from typing import Any, Final

from cfgraph.analysis.loops.frames import Frame
from cfgraph.errors import CfgraphError, RunTimeout
from cfgraph.ir.devices import short_device_name
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import RECV, SEND
from cfgraph.limits import current_limits, timeout_error
from cfgraph.ops.opdef.op import makes_handle
from cfgraph.runtime.code_cache import CacheEntry
from cfgraph.runtime.compiled.call_deadlines import DeadlinePassed, call_until
from cfgraph.runtime.compiled.generate import CodeGenerator
from cfgraph.runtime.compiled.merged_devices import merge_devices
from cfgraph.runtime.compiled.node_writer import (
    FAST,
    FUNCTIONS,
    CodeStyle,
    CompiledIteration,
    enclosing_loops,
    frame_names,
)
from cfgraph.runtime.compiled.program import GeneratedCode, NotCompiled
from cfgraph.runtime.compiled.stored_code import decode, encode, encode_reason
from cfgraph.runtime.engine.executor import located_error
from cfgraph.runtime.engine.plan import NodePlan, Plan, RunSpec
from cfgraph.runtime.engine.step import RunStep
from cfgraph.runtime.quiescent_state import QuiescentState
from cfgraph.runtime.simulator import Simulator
from cfgraph.stack_position import (
    LOCATORS,
    StackPosition,
    frame_variables,
    is_of_signal_handler,
)

UNLIMITED: Final = range((1 << 63) - 1)
# Python compiles a function in one call, which no signal or limit interrupts
_MAX_LINES: Final = 200_000
# of a node in generated code, where each output is a variable
_MAX_OUTPUTS: Final = 4096
# iterations after which an exceeded limit is not located again by the token executor
MAX_REPEATED: Final = 100_000
# of kernels, in generated code
_SPARE_CALLS: Final = 100
# of a run whose code is worth a file
_MIN_CACHED_NODES: Final = 100
_numbers: Final = count(1)


@dataclass(frozen=True)
class CompiledRun:
    """The generated function of a run.

    `is_repeatable`: the run changes nothing that outlives it, so that it may be repeated to
    explain an error. `needs_tokens_for_dead`: it is not, and a fetch may be dead, which only the
    token executor can explain. `device_of` has the devices of the nodes of a run on several.
    """

    plan: Plan
    code: GeneratedCode
    function: Callable[..., tuple[Any, ...]]
    is_repeatable: bool
    needs_tokens_for_dead: bool
    device_of: Mapping[Node, str]

    @cached_property
    def numbers(self) -> dict[Frame, int]:
        """The numbers of the frames, which the counters of loops are named after."""
        return {frame: number for number, frame in enumerate(self.plan.frames.all)}

    def simulator(
        self, spec: RunSpec, step: RunStep, make_tokens: Callable[[], Simulator]
    ) -> CompiledSimulator:
        """A simulator that calls the function."""
        return CompiledSimulator(self, spec, step, make_tokens)

    def position(
        self, stack: Iterable[tuple[FrameType, int]]
    ) -> tuple[NodePlan | None, CompiledIteration]:
        """The node and the iteration that a stack is at: frames and lines, innermost last."""
        code: CodeType = self.function.__code__
        variables: dict[str, Any] = {}
        number = 0
        for frame, line in stack:
            if frame.f_code.co_filename == code.co_filename:
                number = line
                variables.update(frame_variables(frame))
        plan, hoisted = self.code.positions[number - 1] if number > 1 else (None, None)
        if plan is None:
            return None, CompiledIteration((), ())
        frame_of_node, numbers = self.plan.frames.of[plan.node], self.numbers
        indices = [
            0 if hoisted == numbers[loop] else variables.get(f"i{numbers[loop]}", 0)
            for loop in enclosing_loops(frame_of_node)
        ]
        return plan, CompiledIteration(frame_names(frame_of_node), tuple(indices))

    def iteration(self, error: BaseException) -> CompiledIteration:
        """The iteration of the function that an error comes from."""
        return self.position(walk_tb(error.__traceback__))[1]

    def located(self, error: Exception | DeadlinePassed) -> Exception:
        """An error of the function, with the node and the iteration that it comes from."""
        plan, iteration = self.position(walk_tb(error.__traceback__))
        path, device = iteration.path, self.plan.device
        if plan is not None:
            device = self.device_of.get(plan.node, device)
        device = short_device_name(device)
        is_late = isinstance(error, RunTimeout) and error.node is None
        if is_late or isinstance(error, DeadlinePassed):
            error = timeout_error("the run exceeded its timeout", path)
            error.device = device
            return error
        return located_error(error, plan.node if plan else None, path, device)


def compile_run(
    spec: RunSpec,
    plans: Sequence[Plan],
    device_of: Mapping[Node, str] | None = None,
    entry: CacheEntry | None = None,
) -> CompiledRun:
    """Generate and compile the function of a run. Raises NotCompiled with a reason.

    `device_of` has the devices of the nodes of a graph that is placed, and not partitioned. The
    code is that of the cache `entry`, or is stored there.
    """
    crosses = _crosses_devices(plans)
    if crosses or len(plans[0].nodes) < _MIN_CACHED_NODES:
        entry = None
    plan = plans[0]
    stored = _stored_function(spec, plan, entry) if entry is not None else None
    if stored is None:
        plan, code = _generate(spec, plans, entry)
        function = _function(code)
    else:
        code, function = stored
    if crosses:
        device_of = {node: node.device for node in plan.nodes}
    return _compiled_run(plan, code, function, device_of or {})


def compile_part(
    plan: Plan, code: GeneratedCode, functions: Mapping[str, Callable[..., Any]]
) -> CompiledRun:
    """The part of a run that one worker executes; its code calls `functions` for messages."""
    function = _function(code, functions)
    return _compiled_run(plan, code, function, {node: node.device for node in plan.nodes})


def _compiled_run(
    plan: Plan,
    code: GeneratedCode,
    function: Callable[..., tuple[Any, ...]],
    device_of: Mapping[Node, str],
) -> CompiledRun:
    repeatable = is_repeatable(plan)
    needs_tokens = code.may_be_dead and not repeatable
    return CompiledRun(plan, code, function, repeatable, needs_tokens, device_of)


def _stored_function(
    spec: RunSpec, plan: Plan, entry: CacheEntry
) -> tuple[GeneratedCode, Callable[..., tuple[Any, ...]]] | None:
    """The code of a cache and its function, or None without code that fits the run."""
    data = entry.load()
    code = decode(data, spec.graph, plan) if data is not None else None
    if code is None:
        return None
    try:
        return code, _function(code)
    except (SyntaxError, KeyError, NameError, TypeError, ValueError):  # the file is damaged
        return None


def _function(
    code: GeneratedCode, functions: Mapping[str, Callable[..., Any]] | None = None
) -> Callable[..., tuple[Any, ...]]:
    """The function of generated code, which calls other `functions` as well."""
    names = {**FUNCTIONS, **(functions or {}), **code.constants}
    exec(compile(code.source, f"<cfgraph run {next(_numbers)}>", "exec"), names)
    function: Callable[..., tuple[Any, ...]] = names["run"]
    return function


def _generate(
    spec: RunSpec, plans: Sequence[Plan], entry: CacheEntry | None
) -> tuple[Plan, GeneratedCode]:
    """Generate the code of a run, and store it, or the reason why there is none."""
    try:
        generator = generate_run(spec, plans)
    except NotCompiled as error:
        if entry is not None:
            entry.store(encode_reason(error))
        raise
    code = generator.program.code(may_be_dead=generator.may_be_dead is not None)
    data = encode(code, generator.program.constants) if entry is not None else None
    if entry is not None and data is not None:
        entry.store(data)
    return generator.plan, code


def generate_run(
    spec: RunSpec,
    plans: Sequence[Plan],
    style: CodeStyle = FAST,
    transfers: Collection[str] | None = None,
) -> CodeGenerator:
    """The generator of a run, after it has written the program. Raises NotCompiled with a reason.

    A run on several devices has one function, in which messages are variables; those of the Sends
    with the names `transfers` have a line of their own.
    """
    plan = plans[0]
    if _crosses_devices(plans):
        spec, plan = merge_devices(spec, plans)
    wide = next((node for node, known in plan.nodes.items() if known.outputs > _MAX_OUTPUTS), None)
    if wide is not None:
        raise NotCompiled(f"a node has more than {_MAX_OUTPUTS} outputs", wide)
    blocking = next((node for node, known in plan.nodes.items() if known.op.effects.blocking), None)
    if blocking is not None:
        raise NotCompiled("a node may wait for another one", blocking)
    between = None
    if transfers is not None:
        nodes = spec.graph.nodes
        between = frozenset(nodes[name] for name in transfers if name in nodes)
    generator = CodeGenerator(spec.graph, plan, len(spec.fetches), style, between)
    program = generator.generate()
    if len(program.lines) > _MAX_LINES:
        raise NotCompiled(f"the code of the run has more than {_MAX_LINES} lines")
    writers = [node for node, known in plan.nodes.items() if known.op.effects.stateful]
    # in a loop, one access may race with itself in the next iteration
    if len(writers) > 1 or (writers and len(plan.frames.all) > 1):
        _require_ordered_effects(plan, generator)
    return generator


def _crosses_devices(plans: Sequence[Plan]) -> bool:
    """True if a run has several devices, or sends messages."""
    ops = {known.op for plan in plans for known in plan.nodes.values()}
    return len(plans) > 1 or any(op.role in (SEND, RECV) for op in ops)


def _require_ordered_effects(plan: Plan, generator: CodeGenerator) -> None:
    """Raise NotCompiled if the order of accesses to a resource depends on the schedule."""
    from cfgraph.analysis.check_effects import effect_findings

    nodes = list(plan.nodes)
    search = partial(effect_findings, nodes, plan.frames, all_run=True, launches=True)
    if next(search(None), None) is None:
        return
    exact = generator.liveness.deadness
    finding = next(search(exact), None)
    if finding is not None:
        node = next((node for node in plan.nodes if node.name == finding.node), None)
        raise NotCompiled("accesses to a resource have no defined order", node)


def is_repeatable(plan: Plan) -> bool:
    """True if the run changes nothing that outlives it."""
    return not any(map(_has_lasting_effect, plan.nodes.values()))


def _has_lasting_effect(plan: NodePlan) -> bool:
    effects = plan.op.effects
    return effects.stateful and not (
        effects.random or effects.reads_only or makes_handle(plan.node)
    )


def exceeds_iterations(error: Exception) -> bool:
    """True for the error of a loop that exceeds the iteration limit."""
    return isinstance(error, CfgraphError) and error.code == "CFG704"


def _free_calls() -> int:
    """The calls that Python allows before it raises RecursionError."""
    depth, frame = 0, sys._getframe()
    while frame.f_back is not None:
        depth, frame = depth + 1, frame.f_back
    return sys.getrecursionlimit() - depth


def _run_position(frames: Sequence[FrameType]) -> StackPosition:
    """The position of `CompiledSimulator.run`."""
    compiled: CompiledRun = frame_variables(frames[0])["self"].compiled
    plan, iteration = compiled.position((frame, frame.f_lineno or 0) for frame in frames)
    loops = tuple(zip(iteration.names, iteration.indices, strict=True))
    return StackPosition("run", plan.node.name if plan else None, loops)


class CompiledSimulator:
    """Runs generated code in place of a simulator; one run at a time uses it.

    `make_tokens` makes a simulator of the token executor, which explains errors: a run without
    lasting effects is repeated on it.
    """

    elapsed: float | None = None
    allow_dead = False
    fallback = ""
    gpu_plan = None

    def __init__(
        self,
        compiled: CompiledRun,
        spec: RunSpec,
        step: RunStep,
        make_tokens: Callable[[], Simulator],
    ) -> None:
        self.compiled = compiled
        self.step = step
        self._fetches = spec.fetches
        self.gpus: tuple[str, ...] = ()
        self.results: list[Any] = []
        self.run_start = time.perf_counter_ns()
        self._make_tokens = make_tokens
        self._tokens: Simulator | None = None
        self._feeds: Sequence[Any] = ()

    @property
    def fetches(self) -> tuple[Output, ...]:
        """The fetched tensors, in the graph of the token executor if that repeated the run."""
        return self._fetches if self._tokens is None else self._tokens.fetches

    def run(self, feeds: Sequence[Any], pick: random.Random | None) -> None:
        """Run the generated function.

        Raises ExecutionError if a kernel fails, RunTimeout.
        """
        if self.step.state.to_host is not None:
            self.step.state.move_to_host()
        self._feeds, self._tokens, self.fallback = feeds, None, ""
        if self.compiled.needs_tokens_for_dead and not self.allow_dead:
            self.fallback = "a fetch of a run with effects may be dead"
            self._repeat()
            return
        calls = self.compiled.code.calls
        if calls and calls + _SPARE_CALLS > _free_calls():
            self.fallback = "the stack of Python has no room for nested loops and conditionals"
            self._repeat()
            return
        limits, limit = current_limits(), self.step.max_iterations
        stop = len(UNLIMITED) if limit is None else min(limit + 1, len(UNLIMITED))
        function = self.compiled.function
        if limits.deadline != math.inf:
            if time.monotonic() > limits.deadline:
                raise self.compiled.located(DeadlinePassed())
            function = partial(call_until, limits.deadline, function)
        try:
            self.results[:] = function(self.step, feeds, range(stop))
        except DeadlinePassed as error:
            raise self.compiled.located(error) from None
        except Exception as error:
            if is_of_signal_handler(error):
                raise
            if not self.compiled.is_repeatable or isinstance(error, RunTimeout | MemoryError):
                raise self.compiled.located(error) from error.__cause__
            if not exceeds_iterations(error):
                self._repeat()
                return
            error = self.compiled.located(error)
            loops = len(self.compiled.plan.frames.all) - 1
            if (
                limit is not None
                and limit <= MAX_REPEATED
                and (loops > 1 or self.compiled.device_of)
            ):
                # another loop, or device, may exceed the limit first
                with suppress(RunTimeout):
                    self._repeat()
            raise error from error.__cause__

    def _repeat(self) -> None:
        """Repeat the run on the token executor, which has the same result or error."""
        self._tokens = tokens = self._make_tokens()
        tokens.run(self._feeds, None)
        self.results[:] = tokens.results

    def clear(self) -> None:
        """Drop fetched and fed values."""
        self.results.clear()
        self._feeds = ()
        self._tokens = None

    def quiescent_state(self) -> QuiescentState:
        """The state of the run for explanations, which the token executor recomputes."""
        if self._tokens is None:
            self._repeat()
        assert self._tokens is not None
        return self._tokens.quiescent_state()

    def fetched_to_host(self, index: int, value: Any) -> Any:
        """The value of a fetch in host memory."""
        return value


LOCATORS[CompiledSimulator.run.__code__] = _run_position
