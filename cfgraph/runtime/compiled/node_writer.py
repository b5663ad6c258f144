"""Code of single nodes, and the functions that it calls other than kernels of pure nodes."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cfgraph.analysis.loops.branch_decisions import BranchTest
from cfgraph.analysis.loops.frame import Frame
from cfgraph.errors import ExecutionError
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.node import make_pair
from cfgraph.ir.role import ENTER, NEXT_ITERATION, Role
from cfgraph.ir.shapes import Shape
from cfgraph.limits import check_deadline, iteration_limit_error
from cfgraph.ops.opdef.op import KERNEL_FAILURES, Elementwise, Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext
from cfgraph.runtime.compiled.plan_liveness import PlanLiveness
from cfgraph.runtime.engine.plan import NodePlan
from cfgraph.runtime.engine.references import dereference
from cfgraph.runtime.engine.step import RunStep
from cfgraph.runtime.program import FIRST, SECOND, Constant, Program, Value
from cfgraph.stack_position import iteration_path

# lines between two checks of the deadline
_LINES_PER_CHECK: Final = 48
_OPERATORS: Final[dict[Callable[..., Any], str]] = {
    operator.add: "{} + {}",
    operator.sub: "{} - {}",
    operator.mul: "{} * {}",
    operator.lt: "{} < {}",
    operator.le: "{} <= {}",
    operator.gt: "{} > {}",
    operator.ge: "{} >= {}",
    operator.eq: "{} == {}",
    operator.ne: "{} != {}",
    operator.and_: "{} & {}",
    operator.or_: "{} | {}",
    operator.xor: "{} ^ {}",
    operator.neg: "-{}",
    operator.invert: "~{}",
    operator.matmul: "{} @ {}",
}
_OPERANDS: Final = {form: form.count("{}") for form in _OPERATORS.values()}
# the forms of calls, by the number of arguments
_CALLS: Final = tuple(f"{{}}({', '.join(['{}'] * count)})" for count in range(8))
# elements of the inputs and outputs of a node that is evaluated when code is generated
_MAX_FOLDED: Final = 4096
_BUILTIN: Final = type(operator.add)
# the line of a value that another worker reads, before a program is divided among workers
TRANSFER: Final = "transfer({})"


@dataclass(frozen=True, slots=True)
class CodeStyle:
    """Forms of the generated code that depend on its use.

    `loop` has a field for the number of the loop, the tests have one for a predicate.
    """

    checks_limits: bool = True
    unpacks_feeds: bool = True
    loop: str = "for i{} in iterations:"
    exit_test: str = "if {0} is not TRUE and not test({0}):"
    branch_test: str = "{0} is TRUE or test({0})"


FAST: Final = CodeStyle()


class NodeWriter:
    """Writes the code of the nodes of a plan.

    `values` contains the variables of their outputs, `tests` those of their predicates as booleans
    or numbers of branches, and of the flags of Merges.
    """

    def __init__(self, liveness: PlanLiveness, program: Program, style: CodeStyle) -> None:
        self.plan = liveness.plan
        self.style = style
        self.liveness = liveness
        self.program = program
        self.values: dict[Output, Value] = {}
        self.tests: dict[BranchTest, Value] = {}
        self.numbers = {frame: number for number, frame in enumerate(self.plan.frames.all)}
        self.last_check = 0

    def constant(self, plan: NodePlan) -> bool:
        """Evaluate a pure node of constants, if its outputs are small or it has no input.

        False if that fails, since it fails only if the node runs.
        """
        node, values = plan.node, self.values
        if plan.moves:
            return False
        contents = []
        for output in node.inputs:
            value = values.get(output)
            if not isinstance(value, Constant):
                return False
            contents.append(value.content)
        if not plan.outputs or plan.deref_slots:
            return False
        if (contents and not _is_foldable(plan, contents)) or (not contents and plan.outputs > 1):
            return False
        try:
            result = plan.kernel(*contents)
        except Exception:  # raised again when the node runs
            return False
        results = result if plan.outputs > 1 else (result,)
        if contents and not all(isinstance(value, np.ndarray | np.generic) for value in results):
            return False
        for port, value in enumerate(results):
            values.setdefault(
                make_pair(Output, (node, port)), self.program.constant(value, plan=plan)
            )
        return True

    def forward_constant(self, plan: NodePlan) -> None:
        """Alias the outputs of a node to its input if that is a constant."""
        source = self.values.get(plan.inputs[0])
        if isinstance(source, Constant) and not plan.deref_slots and not plan.moves:
            for port in range(plan.outputs):
                self.values.setdefault(Output(plan.node, port), source)

    def forward(self, plan: NodePlan) -> None:
        """Alias the outputs of a node to its input; only check a reference that it forwards."""
        node, values = plan.node, self.values
        source = self._input(plan, 0)
        if 0 in plan.deref_slots:
            if 0 in plan.forwarded_slots:
                self.program.add("deref({})", [source], (), plan)
            else:
                value = self.program.variable()
                self.program.add("deref({})", [source], [value], plan)
                source = value
        for port in range(plan.outputs):
            values.setdefault(Output(node, port), source)

    def transfer(self, plan: NodePlan) -> None:
        """Assign the value of another worker to a variable of its own."""
        source = self.values[plan.node.inputs[0]]
        if plan.deref_slots:
            reference, source = source, self.program.variable()
            self.program.add("deref({})", [reference], [source], plan)
        target = self.values[Output(plan.node, 0)] = self.program.variable(scalar=source.scalar)
        self.program.add(TRANSFER, [source], [target], plan)

    def kernel(self, plan: NodePlan) -> None:
        program, values, node = self.program, self.values, plan.node
        if len(program.lines) - self.last_check > _LINES_PER_CHECK:
            check_deadline()
            if self.style.checks_limits:
                program.add("pause()", (), (), plan)
            self.last_check = len(program.lines)
        arguments = [self._input(plan, slot) for slot in range(len(node.inputs))]
        scalar = issubclass(plan.op, Elementwise)
        for value in arguments:
            scalar = scalar and value.scalar
        form = _OPERATORS.get(plan.kernel) if type(plan.kernel) is _BUILTIN else None
        if form is None or plan.deref_slots or len(arguments) != _OPERANDS[form]:
            called, form = self._call(plan)
            arguments.insert(0, called)
        targets, fed = [], self.liveness.fed
        for port in range(plan.outputs):
            target = program.variable(scalar=scalar)
            targets.append(target)
            output = make_pair(Output, (node, port))
            if not fed or output not in fed:
                values[output] = target
        program.add(form, arguments, targets, plan)

    def _input(self, plan: NodePlan, slot: int, source: Value | None = None) -> Value:
        """The value of an input, or of its `source`, in the memory that the node reads it from."""
        value = self.values[plan.inputs[slot]] if source is None else source
        move = plan.move_of(slot)
        if move is None:
            return value
        if slot in plan.deref_slots:
            reference, value = value, self.program.variable()
            self.program.add("deref({})", [reference], [value], plan)
        moved = self.program.variable(scalar=value.scalar)
        self.program.add("{}({})", [self.program.constant(move, "m", plan), value], [moved], plan)
        return moved

    def _call(self, plan: NodePlan) -> tuple[Value, str]:
        """The kernel of a node, and the form of the call."""
        op, frame, count = plan.op, self.plan.frames.of[plan.node], len(plan.node.inputs)
        kernel = self.program.constant(called_kernel(plan, frame), "k", plan)
        if count < len(_CALLS) and not plan.deref_slots and not op.effects.stateful:
            return kernel, _CALLS[count]
        fields = ["{}"] * count
        for slot in plan.deref_slots:
            fields[slot] = "{}" if slot in plan.forwarded_slots else "deref({})"
        if op.effects.stateful:
            if is_located(op):
                indices = ", ".join(map(self._counter, frame.loops))
                fields = [f"({indices},)" if indices else "()", *fields]
            fields = ["step", *fields]
        return kernel, f"{{}}({', '.join(fields)})"

    def _counter(self, frame: Frame) -> str:
        return f"i{self.numbers[frame]}" if self.liveness.info[frame].is_loop else "0"

    def add_test(self, test: BranchTest, switch: NodePlan) -> None:
        variable = self.tests[test] = self.program.variable(scalar=True, prefix="b")
        form = self.style.branch_test
        if test.branches != 2:
            form = f"branch({{}}, {test.branches})"
        predicate = self._input(switch, 1, self.values[test.source])
        self.program.add(form, [predicate], [variable], switch)

    def unset(self, flag: Value) -> None:
        self.program.add("False", (), [flag])

    def copy(self, output: Output, target: Value) -> None:
        self.program.add("{}", [self.values[output]], [target])

    def move(
        self, plan: NodePlan, slot: int, value: Value, index: Value | None, flag: BranchTest | None
    ) -> None:
        """Assign one input of a Merge to its variable, and set its index and its flag."""
        program = self.program
        source = self._input(plan, slot).resolved()
        if slot in plan.deref_slots:
            program.add("deref({})", [source], (), plan)
        target = value.resolved()
        if source is not target:
            if not source.is_incomplete and source.def_block is program.block:
                source.merge_into(target)
            else:
                target.scalar = target.scalar and source.scalar
                program.add("{}", [source], [target], plan)
        if index is not None:
            program.add("{}", [program.constant(np.int32(slot))], [index], plan)
        if flag is not None:
            program.add("True", (), [self.tests[flag]], plan)

    def initialize(self, merge: Node) -> None:
        """Assign the first value of a loop variable."""
        value = self.values[Output(merge, 0)]
        source = self._input(self.plan.nodes[merge], self._roles_of_inputs(merge).index(ENTER))
        value.scalar = source.scalar
        self.program.add("{}", [source], [value])

    def advance(self, merges: list[Node], number: int, body_start: int) -> None:
        """Assign the values of the next iteration to the loop variables.

        A value whose variable is first assigned after the last use of the loop variable becomes
        that variable.
        """
        pairs, values = [], self.values
        for merge in merges:
            back = self._roles_of_inputs(merge).index(NEXT_ITERATION)
            source = self._input(self.plan.nodes[merge], back).resolved()
            target = values[Output(merge, 0)].resolved()
            if source is not target:
                pairs.append((target, source))
        moved = {source for _, source in pairs}
        rest = []
        for target, moved_source in pairs:
            source = moved_source.resolved()
            block = source.def_block
            if (
                target not in moved
                and block is not None
                and block.loop == number
                and source.first_def >= max(body_start, target.last_read)
                and source is not target
            ):
                source.merge_into(target)
            else:
                rest.append((target, source))
        if rest:
            form = ", ".join("{}" for _ in rest)
            self.program.add(form, [source for _, source in rest], [target for target, _ in rest])

    def _roles_of_inputs(self, node: Node) -> list[Role | None]:
        return [self.plan.nodes[output.node].op.role for output in node.inputs]


def _is_foldable(plan: NodePlan, contents: list[Any]) -> bool:
    """True for a deterministic node with small constant inputs and small outputs of known shape."""
    op, node = plan.op, plan.node
    if op.effects.random or op.calls.kind or op.role is not None:
        return False
    if not all(
        isinstance(value, np.ndarray | np.generic) and value.size <= _MAX_FOLDED
        for value in contents
    ):
        return False
    shapes = tuple(Shape(value.shape) for value in contents)
    values = [np.asarray(value) for value in contents]
    try:
        outputs = op.shape(InferenceContext(node, shapes, values.__getitem__))
    except (OpError, *KERNEL_FAILURES):
        return False
    sizes = [shape.elements for shape in outputs]
    return all(size is not None and size <= _MAX_FOLDED for size in sizes)


TRUE: Final = np.True_
_FALSE: Final = np.False_


class CompiledIteration:
    """The iteration in which a stateful node of generated code runs."""

    __slots__ = ("indices", "names")

    def __init__(self, names: tuple[str, ...], indices: tuple[int, ...]) -> None:
        self.names = names
        self.indices = indices

    @property
    def index(self) -> int:
        """The number of the iteration in its frame."""
        return self.indices[-1] if self.indices else 0

    @property
    def loops(self) -> tuple[tuple[str, int], ...]:
        """The names of the enclosing loops and their iterations, outermost first."""
        return tuple(zip(self.names, self.indices, strict=True))

    @property
    def path(self) -> str:
        """The path of loops and iterations, `/while[3]/inner[0]`; `/` for the root."""
        return iteration_path(self.loops)


def is_located(op: type[Op]) -> bool:
    """True for an op with state that depends on its iteration."""
    effects = op.effects
    return effects.stateful and (effects.random or effects.per_iteration or bool(op.calls.kind))


def called_kernel(plan: NodePlan, frame: Frame) -> Callable[..., Any]:
    """The kernel of a node as generated code calls it."""
    if not plan.op.effects.stateful:
        return plan.kernel
    return stateful_kernel(plan.kernel, plan.node, plan.op, frame_names(frame))


def stateful_kernel(
    kernel: Callable[..., Any], node: Node, op: type[Op], names: tuple[str, ...]
) -> Callable[..., Any]:
    """The kernel of a stateful node, which takes the step and the inputs.

    One that depends on its iteration takes the iterations, of loops with these `names`, before the
    inputs.
    """

    def run_locked(step: RunStep, *inputs: Any) -> Any:
        with step.state.lock:
            return kernel(step, *inputs)

    def run(step: RunStep, indices: tuple[int, ...], *inputs: Any) -> Any:
        step.node = node
        step.iteration = CompiledIteration(names, indices)
        with step.state.lock:
            return kernel(step, *inputs)

    def run_call(step: RunStep, indices: tuple[int, ...], *inputs: Any) -> Any:
        step.node = node
        step.iteration = CompiledIteration(names, indices)
        return kernel(step, *inputs)

    if is_located(op):
        return run_call if op.calls.kind else run
    return kernel if op.effects.atomic else run_locked


def frame_names(frame: Frame) -> tuple[str, ...]:
    """The names of the loops from the outermost to this one."""
    return tuple(loop.name for loop in frame.loops)


def branch_taken(predicate: Any) -> bool:
    """The branch of a Switch with two outputs. Raises OpError for a predicate with a shape."""
    if predicate is _FALSE:
        return False
    return branch(predicate, 2) == 1


def branch(predicate: Any, count: int) -> int:
    """The output that a Switch forwards to. Raises OpError for a predicate with a shape."""
    if predicate.ndim:
        raise OpError(f"the predicate must be a scalar, but it has shape {list(predicate.shape)}")
    index = int(predicate)
    return index if 0 <= index < count else count - 1


def exceeded(step: RunStep, name: str) -> ExecutionError:
    """The error of a loop that exceeds the iteration limit."""
    assert step.max_iterations is not None
    return iteration_limit_error(name, step.max_iterations)


def pause() -> None:
    """Let Python raise the exceptions of signals and deadlines, which operators do not."""


def _references(a: Any, b: Any, dead: int) -> int:
    return sys.getrefcount(a)


def _references_of_variable() -> int:
    """The reference count in a function of an array that only a variable of its caller holds."""
    array = np.empty(0)
    return _references(array, None, 0)


_UNSHARED: Final = _references_of_variable()


def _base_references(a: Any) -> int:
    return sys.getrefcount(a.base)


_UNSHARED_BASE: Final = _base_references(np.empty(1)[:])


def _has_own_buffer(a: Any) -> bool:
    """True for an array in memory that no other array has, if only a variable holds this one."""
    flags = a.flags
    if not flags.c_contiguous or not flags.writeable:
        return False
    if flags.owndata:
        return True
    is_whole = a.base.__class__ is np.ndarray and a.base.flags.owndata
    return bool(is_whole) and _base_references(a) <= _UNSHARED_BASE


def _can_hold(a: Any, b: Any) -> bool:
    """True if the result of an operator on both fits into the buffer of the first, which has it."""
    if a.__class__ is not np.ndarray or a.dtype != b.dtype or not _has_own_buffer(a):
        return False
    sizes = zip(reversed(a.shape), reversed(b.shape), strict=False)
    return b.ndim <= a.ndim and all(size in (1, n) for n, size in sizes)


def _reusing_operator(function: np.ufunc) -> Callable[[Any, Any, int], Any]:
    def run(a: Any, b: Any, dead: int) -> Any:
        if dead & FIRST and sys.getrefcount(a) <= _UNSHARED and _can_hold(a, b):
            return function(a, b, a)
        if dead & SECOND and sys.getrefcount(b) <= _UNSHARED and _can_hold(b, a):
            return function(a, b, b)
        return function(a, b)

    return run


def _reuse(kernel: Callable[..., Any], a: Any, *others: Any) -> Any:
    """The result of a kernel, in the buffer of its first input if nothing else has that."""
    if a.__class__ is np.ndarray and sys.getrefcount(a) <= _UNSHARED and _has_own_buffer(a):
        return kernel(a, *others, out=a)
    return kernel(a, *others)


REUSING: Final[dict[str, Callable[..., Any]]] = {
    "_add": _reusing_operator(np.add),
    "_subtract": _reusing_operator(np.subtract),
    "_multiply": _reusing_operator(np.multiply),
    "_reuse": _reuse,
}


# the names that generated code may use in addition to its own constants
FUNCTIONS: Final[dict[str, Any]] = {
    "__builtins__": {},
    "TRUE": TRUE,
    "test": branch_taken,
    "branch": branch,
    "deref": dereference,
    "exceeded": exceeded,
    "pause": pause,
    **REUSING,
}
