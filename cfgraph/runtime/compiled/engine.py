"""The compiled engine: generated functions of prepared runs, and their execution.

A deadline costs nothing in the loops of the code: another thread raises `DeadlinePassed` in it.
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from cfgraph.errors import CfgraphError, ExecutionError, ProcessLost, RunTimeout
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import RECV, SEND
from cfgraph.limits import DeadlinePassed, current_limits
from cfgraph.ops.opdef.op import makes_handle
from cfgraph.runtime.code_cache import CacheEntry
from cfgraph.runtime.compiled.call_deadlines import call_until
from cfgraph.runtime.compiled.code_position import code_position, located
from cfgraph.runtime.compiled.compiled_run import CompiledRun, Function, GeneratedFunction
from cfgraph.runtime.compiled.generate import CodeGenerator
from cfgraph.runtime.compiled.interpreter import Interpreter
from cfgraph.runtime.compiled.loop_watch import LoopWatch, WatchedIterations
from cfgraph.runtime.compiled.merged_devices import join_devices, merge_devices
from cfgraph.runtime.compiled.node_writer import FAST, FUNCTIONS, CodeStyle
from cfgraph.runtime.compiled.plan_liveness import PlanLiveness
from cfgraph.runtime.compiled.stored_code import decode, encode, encode_reason
from cfgraph.runtime.engine.plan import NodePlan, Plan, RunSpec
from cfgraph.runtime.engine.quiescent_state import QuiescentState
from cfgraph.runtime.engine.step import RunStep
from cfgraph.runtime.program import GeneratedCode, NotCompiled
from cfgraph.runtime.run_executor import ExecutorReport
from cfgraph.runtime.token_driver import TokenDriver
from cfgraph.stack_position import (
    LOCATORS,
    StackPosition,
    frame_variables,
    is_of_signal_handler,
)

# late imports: few runs have effects to check

if TYPE_CHECKING:
    from cfgraph.analysis.deadness.deadness import Deadness

UNLIMITED: Final = range((1 << 63) - 1)
# Python compiles a function in one call, which no signal or limit interrupts
_MAX_LINES: Final = 200_000
# nodes that surely have fewer lines
_MAX_INTERPRETED: Final = 100_000
# of a node in generated code, where each output is a variable
_MAX_OUTPUTS: Final = 4096
# iterations after which an exceeded limit is not located again by the token executor
MAX_REPEATED: Final = 100_000
# of kernels, in generated code
_SPARE_CALLS: Final = 100
# the errors of runs that are not repeated for an explanation
_COSTLY_ERRORS: Final = (RunTimeout, MemoryError, ProcessLost)
# of a run whose code is worth a file
_MIN_CACHED_NODES: Final = 100
_numbers: Final = count(1)


def compile_run(
    spec: RunSpec,
    plans: Sequence[Plan],
    device_of: Mapping[Node, str] | None = None,
    entry: CacheEntry | None = None,
    *,
    interprets: bool = False,
) -> CompiledRun:
    """Generate and compile the function of a run. Raises NotCompiled with a reason.

    `device_of` has the devices of the nodes of a graph that is placed, and not partitioned. The
    code is that of the cache `entry`, or is stored there. If the engine `interprets`, the first run
    of a plan without control flow needs no code.
    """
    plan = plans[0]
    if _crosses_devices(plans):
        joined = join_devices(plans)
        spec, plan = merge_devices(spec, plans) if joined is None else (spec, joined)
        device_of, entry = {node: node.device for node in plan.nodes}, None
    if len(plan.nodes) < _MIN_CACHED_NODES:
        entry = None
    if interprets and plan.is_straight_line and len(plan.nodes) < _MAX_INTERPRETED:
        _require_compilable(plan)
        if plan.frames.cycles:
            raise NotCompiled("nodes wait for each other in a cycle", plan.frames.cycles[0][0])
        _require_ordered_effects(plan, lambda: PlanLiveness(spec.graph, plan).deadness)
        generated = GeneratedFunction(partial(_stored_or_generated, spec, plan, entry))
        interpreter = Interpreter(plan, len(spec.fetches))
        return CompiledRun(
            plan, generated, is_repeatable(plan), False, device_of or {}, interpreter
        )
    code, function = _stored_or_generated(spec, plan, entry)
    return _compiled_run(plan, code, device_of or {}, function)


def _stored_or_generated(
    spec: RunSpec, plan: Plan, entry: CacheEntry | None
) -> tuple[GeneratedCode, Function]:
    """The code and the function of a run on one device, from the cache if it has them."""
    stored = _stored_function(spec, plan, entry) if entry is not None else None
    if stored is not None:
        return stored
    with spec.graph.paused_gc():
        _, code = _generate(spec, [plan], entry)
        return code, _function(code)


def compile_part(
    plan: Plan, code: GeneratedCode, functions: Mapping[str, Callable[..., Any]]
) -> CompiledRun:
    """The part of a run that one worker executes; its code calls `functions` for messages."""
    function = _function(code, functions)
    return _compiled_run(plan, code, {node: node.device for node in plan.nodes}, function)


def _compiled_run(
    plan: Plan,
    code: GeneratedCode,
    device_of: Mapping[Node, str],
    function: Function | None = None,
) -> CompiledRun:
    made = code, function or _function(code)
    repeatable = is_repeatable(plan)
    needs_tokens = code.may_be_dead and not repeatable
    generated = GeneratedFunction(lambda: made)
    return CompiledRun(plan, generated, repeatable, needs_tokens, device_of)


def _stored_function(
    spec: RunSpec, plan: Plan, entry: CacheEntry
) -> tuple[GeneratedCode, Function] | None:
    """The code of a cache and its function, or None without code that fits the run."""
    data = entry.load()
    code = decode(data, spec.graph, plan) if data is not None else None
    if code is None:
        return None
    try:
        return code, _function(code)
    except Exception:  # the file is damaged
        return None


def _function(
    code: GeneratedCode, functions: Mapping[str, Callable[..., Any]] | None = None
) -> Function:
    """The function of generated code, which calls other `functions` as well."""
    names = {**FUNCTIONS, **(functions or {}), **code.constants}
    exec(compile(code.source, f"<cfgraph run {next(_numbers)}>", "exec"), names)
    function: Function = names["run"]
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
    _require_compilable(plan)
    between = None
    if transfers is not None:
        nodes = spec.graph.nodes
        between = frozenset(nodes[name] for name in transfers if name in nodes)
    generator = CodeGenerator(spec.graph, plan, len(spec.fetches), style, between)
    program = generator.generate()
    if len(program.lines) > _MAX_LINES:
        raise NotCompiled(f"the code of the run has more than {_MAX_LINES} lines")
    _require_ordered_effects(plan, lambda: generator.liveness.deadness)
    return generator


def _require_compilable(plan: Plan) -> None:
    """Raise NotCompiled for a node that generated code cannot run."""
    wide = next((node for node, known in plan.nodes.items() if known.outputs > _MAX_OUTPUTS), None)
    if wide is not None:
        raise NotCompiled(f"a node has more than {_MAX_OUTPUTS} outputs", wide)
    blocking = next((node for node, known in plan.nodes.items() if known.op.effects.blocking), None)
    if blocking is not None:
        raise NotCompiled("a node may wait for another one", blocking)


def _crosses_devices(plans: Sequence[Plan]) -> bool:
    """True if a run has several devices, or sends messages."""
    ops = {known.op for plan in plans for known in plan.nodes.values()}
    return len(plans) > 1 or any(op.role in (SEND, RECV) for op in ops)


def _require_ordered_effects(plan: Plan, deadness: Callable[[], Deadness]) -> None:
    """Raise NotCompiled if the order of accesses to a resource depends on the schedule.

    `deadness` is the exact analysis of the nodes, which is needed only if some may race.
    """
    writers = [node for node, known in plan.nodes.items() if known.op.effects.stateful]
    # in a loop, one access may race with itself in the next iteration
    if not writers or (len(writers) == 1 and len(plan.frames.all) == 1):
        return
    from cfgraph.analysis.check_effects import effect_findings

    nodes = list(plan.nodes)
    search = partial(effect_findings, nodes, plan.frames, all_run=True, launches=True)
    if next(search(None), None) is None:
        return
    finding = next(search(deadness()), None)
    if finding is not None:
        node = next((node for node in plan.nodes if node.name == finding.node), None)
        raise NotCompiled("accesses to a resource have no defined order", node)


def is_repeatable(plan: Plan) -> bool:
    """True if the run changes nothing that outlives it."""
    return not any(map(_has_lasting_effect, plan.nodes.values()))


def _has_lasting_effect(plan: NodePlan) -> bool:
    effects = plan.op.effects
    return effects.stateful and not (
        effects.random or effects.reads_only or effects.only_checks or makes_handle(plan.node)
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
    """The position of `CompiledDriver.run`."""
    compiled: CompiledRun = frame_variables(frames[0])["self"].compiled
    plan, iteration = code_position(compiled, ((frame, frame.f_lineno or 0) for frame in frames))
    return StackPosition("run", plan.node.name if plan else None, iteration.loops)


class CompiledDriver:
    """Runs generated code in place of a driver; one run at a time uses it.

    `make_tokens` makes a driver of the token executor, which explains errors: a run without
    lasting effects is repeated on it.
    """

    elapsed: float | None = None
    allow_dead = False
    fallback = ""
    is_interpreted = False
    is_generated = True

    def __init__(
        self,
        compiled: CompiledRun,
        spec: RunSpec,
        step: RunStep,
        make_tokens: Callable[[], TokenDriver],
    ) -> None:
        self.compiled = compiled
        self.step = step
        self._fetches = spec.fetches
        self.results: list[Any] = []
        self.run_start = time.perf_counter_ns()
        self._make_tokens = make_tokens
        self.tokens: TokenDriver | None = None
        self._feeds: Sequence[Any] = ()

    @property
    def stopped(self) -> bool:
        """False: the run does not end early."""
        return False

    def reports(self) -> list[ExecutorReport]:
        """Nothing: generated code runs on the host."""
        return []

    @property
    def fetches(self) -> tuple[Output, ...]:
        """The fetched tensors, in the graph of the token executor if that repeated the run."""
        return self._fetches if self.tokens is None else self.tokens.fetches

    def run(self, feeds: Sequence[Any], pick: random.Random | None) -> None:
        """Run the generated function.

        Raises ExecutionError if a kernel fails, RunTimeout.
        """
        self.prepare_variables()
        self._feeds, self.tokens = feeds, None
        self.fallback = self.token_reason()
        if self.fallback:
            self._repeat()
            return
        limits, limit = current_limits(), self.step.max_iterations
        watch = LoopWatch(self.compiled)
        iterations = UNLIMITED if limit is None else WatchedIterations(limit + 1, watch)
        function, self.is_interpreted = self.compiled.next_function()
        if limits.deadline != math.inf:
            if time.monotonic() > limits.deadline:
                raise located(self.compiled, DeadlinePassed())
            sample = None if self.is_interpreted else watch.record_deadline
            function = partial(call_until, limits.deadline, function, sample=sample)
        try:
            self.results[:] = self.call(function, feeds, iterations)
        except DeadlinePassed as error:
            # a kernel may have seen the deadline just before
            late = located(self.compiled, _timeout_before(error) or error)
            if isinstance(late, RunTimeout):
                late.loop = watch.state_at_deadline()
            raise late from None
        except Exception as error:
            if is_of_signal_handler(error):
                raise
            self.explain(error, watch)

    def prepare_variables(self) -> None:
        """Move the variables to where the run expects them."""
        if self.step.state.to_host is not None:
            self.step.state.move_to_host()

    def call(self, function: Function, feeds: Sequence[Any], iterations: Any) -> Sequence[Any]:
        """The fetched values of the function."""
        return function(self.step, feeds, iterations)

    def token_reason(self) -> str:
        """The reason why the token executor must run this run, or empty."""
        if self.compiled.needs_tokens_for_dead and not self.allow_dead:
            return "a fetch of a run with effects may be dead"
        calls = self.compiled.calls
        if calls and calls + _SPARE_CALLS > _free_calls():
            return "the stack of Python has no room for nested loops and conditionals"
        return ""

    def explain(self, error: Exception, watch: LoopWatch) -> None:
        """Raise an error of the function as the token executor does.

        A run that may be repeated is: the token executor raises the first of several errors. What
        took time or a process the first time would take it again.
        """
        compiled, limit = self.compiled, self.step.max_iterations
        if not compiled.is_repeatable or isinstance(error, _COSTLY_ERRORS):
            raise located(compiled, error) from error.__cause__
        if not exceeds_iterations(error):
            self._repeat()
            return
        exceeded = located(compiled, error)
        has_several = len(compiled.plan.frames.all) > 2 or compiled.device_of
        try:
            if limit is not None and limit <= MAX_REPEATED and has_several:
                # another loop, or device, may exceed the limit first
                with suppress(RunTimeout):
                    self._repeat()
            raise exceeded from error.__cause__
        except ExecutionError as raised:
            raised.loop = raised.loop or watch.state_at_limit(raised.exceeded_loop)
            raise

    def _repeat(self) -> None:
        """Repeat the run on the token executor, which has the same result or error."""
        self.tokens = tokens = self._make_tokens()
        tokens.run(self._feeds, None)
        self.results[:] = tokens.results

    def clear(self) -> None:
        """Drop fetched and fed values."""
        self.results.clear()
        self._feeds = ()
        self.tokens = None

    def quiescent_state(self) -> QuiescentState:
        """The state of the run for explanations, which the token executor recomputes."""
        if self.tokens is None:
            self._repeat()
        assert self.tokens is not None
        return self.tokens.quiescent_state()

    def fetched_to_host(self, index: int, value: Any) -> Any:
        """The value of a fetch in host memory."""
        return value


LOCATORS[CompiledDriver.run.__code__] = _run_position


def _timeout_before(error: DeadlinePassed) -> RunTimeout | None:
    """The error that was raised when the deadline interrupted it, if it has its node."""
    context = error.__context__
    while context is not None and not isinstance(context, RunTimeout):
        context = context.__context__
    return context if context is not None and context.node else None
