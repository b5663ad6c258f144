"""The Builder: an interface that builds graphs from Python."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from cfgraph.build.body import BodyBuilder
from cfgraph.build.conditional import BranchWriter, scalar_selector
from cfgraph.build.conversions import as_dtype, as_shape
from cfgraph.build.function import BuiltFunction
from cfgraph.build.op_call import add_constant, call_op
from cfgraph.build.tensor import BuilderTensor, BuilderVariable, Operation, TensorOperators
from cfgraph.build.user_frame import check_callable, misuse_error, user_line
from cfgraph.build.while_loop import LoopWriter
from cfgraph.errors import UsageError
from cfgraph.ir import devices, dtypes, registry
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph, Node, Output, Versions
from cfgraph.ir.names import did_you_mean, misspelled_op_hint

# the TensorFlow version whose ops these are
_VERSIONS: Final = Versions(producer=2474, min_consumer=12)


class UnknownOp(UsageError, AttributeError):
    """A name that is neither a method of the Builder nor an op."""


class Builder:
    """Builds a graph. Every op is a method: `b.MatMul(x, w, transpose_a=True, name="y")`.

    Inputs are tensors or Python values, which become constants of a suitable type. An op returns
    its output as a tensor, several as a named tuple, none as an operation. `cond`, `case` and
    `while_loop` take Python functions; outer tensors that these read are captured. `graph` is the
    graph built so far; one that is passed is extended, and its nodes and their outputs are tensors.

    Invalid calls raise UsageError or InvalidInput with file and line of the call.
    """

    def __init__(self, graph: Graph | None = None) -> None:
        root = BodyBuilder(self, None, "the graph itself", graph)
        if graph is None:
            root.graph.versions = _VERSIONS
        self._bodies = [root]
        self._initializers: list[Operation] = []
        self._reserved: dict[str, int] = dict.fromkeys(root.graph.functions, 1)

    @property
    def graph(self) -> Graph:
        """The graph, with the functions built so far in its library."""
        return self._bodies[0].graph

    @property
    def body(self) -> BodyBuilder:
        """The body that is being built."""
        return self._bodies[-1]

    # -- values ----------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"<Builder of {self.graph!r}>"

    def placeholder(self, name: str, dtype: Any = "float32", shape: Any = None) -> BuilderTensor:
        """A tensor to be fed; shape None has unknown rank, None in a shape is an unknown size."""
        if self.body.parent is not None:
            message = (
                f"the placeholder {name!r} is created in {self.body.label}, where it cannot be fed"
            )
            raise misuse_error(message, hint="create it outside and read it there")
        attrs = {"dtype": as_dtype(dtype), "shape": as_shape(shape), "name": name}
        tensor: BuilderTensor = self.call("Placeholder", (), attrs)
        return tensor

    def const(self, value: Any, dtype: Any = None, name: str = "Const") -> BuilderTensor:
        """A constant; the default `dtype` is the natural type of the value."""
        requested = None if dtype is None else as_dtype(dtype)
        return BuilderTensor(
            self.body, add_constant(self.body, value, requested, self.body.name_for(name))
        )

    def variable(
        self, initial: Any, dtype: Any = None, shape: Any = None, name: str = "Variable"
    ) -> BuilderVariable:
        """A variable with its initial value; `shape` if it may change later."""
        requested = None if dtype is None else as_dtype(dtype)
        variable = BuilderVariable(
            self, initial, requested, None if shape is None else as_shape(shape), name
        )
        self._initializers.append(variable.initializer)
        return variable

    def initializer(self, name: str = "init") -> Operation:
        """An operation that initializes all variables."""
        return self.group(*self._initializers, name=name)

    def group(self, *operations: Any, name: str = "group") -> Operation:
        """Add an operation that completes when all `operations` have completed."""
        with self.control(*operations):
            operation: Operation = self.call("NoOp", (), {"name": name})
        return operation

    def tensor(self, value: Any, dtype: DType | None = None, name: str = "Const") -> BuilderTensor:
        """Convert to a tensor: a variable is read, a Python value becomes a constant.

        A node of the graph stands for its first output.
        """
        value = self.existing(value)
        if isinstance(value, TensorOperators):
            return value.as_tensor()
        if isinstance(value, Operation):
            message = f"{value!r} has no value to read"
            raise misuse_error(message, hint="wait for it: `with builder.control(operation):`")
        return self.const(value, dtype, name)

    # -- ops -------------------------------------------------------------------------------------

    def call(self, op: str, inputs: Sequence[Any], named: dict[str, Any]) -> Any:
        """Add an op by name; `named` are inputs and attributes by name, and the node's `name`."""
        values = {key: self.existing(value) for key, value in named.items()}
        return call_op(self.body, op, [*map(self.existing, inputs)], values)

    def existing(self, value: Any) -> Any:
        """A value with tensors in place of nodes of the graph and of their outputs, also in lists.

        Raises UsageError for those of another graph.
        """
        if isinstance(value, Node):
            value = value.output()
        if isinstance(value, Output):
            if self.graph.nodes.get(value.node.name) is not value.node:
                raise misuse_error(f"{value.node.name!r} is not in the graph of this Builder")
            return BuilderTensor(self._bodies[0], value)
        return type(value)(map(self.existing, value)) if type(value) in (list, tuple) else value

    def __getattr__(self, op: str) -> Callable[..., Any]:
        definition = registry.lookup(op)
        if definition is None:
            if op.startswith("__"):
                raise AttributeError(op)
            public = [name for name in vars(Builder) if not name.startswith("_")]
            message = f"there is no op {op!r}"
            hint = misspelled_op_hint(op, registry.op_names()) or did_you_mean(op, public)
            raise UnknownOp(message, hint=hint, path=user_line())

        def add(*inputs: Any, **named: Any) -> Any:
            return self.call(op, inputs, named)

        add.__name__, add.__doc__ = op, f"{definition.__doc__}\n\n{definition.signature}"
        return add

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *registry.op_names()})

    # -- control flow ----------------------------------------------------------------------------

    def cond(
        self,
        pred: Any,
        true_fn: Callable[[], Any],
        false_fn: Callable[[], Any],
        name: str = "cond",
    ) -> Any:
        """The result of `true_fn` if `pred` is true, otherwise the result of `false_fn`.

        Both return tensors in the same structure and of the same types.
        """
        selector = scalar_selector(self, pred, dtypes.bool_, "predicate")
        branches = BranchWriter(self, name, ("then", "else"))
        for function in (true_fn, false_fn):
            check_callable(function, (), f"a branch of {name!r}")
            with self.writing(branches.open_branch()):
                branches.set_result(function())
        return branches.finish("If", selector)

    def case(self, index: Any, branches: Sequence[Callable[[], Any]], name: str = "case") -> Any:
        """The result of the branch with this index; of the last one if the index is out of
        range.
        """
        if not branches:
            message = f"{name!r} has no branches"
            raise misuse_error(message)
        selector = scalar_selector(self, index, dtypes.int32, "index")
        written = BranchWriter(self, name, [f"branch{number}" for number in range(len(branches))])
        for function in branches:
            check_callable(function, (), f"a branch of {name!r}")
            with self.writing(written.open_branch()):
                written.set_result(function())
        return written.finish("Case", selector)

    def while_loop(
        self,
        cond: Callable[..., Any],
        body: Callable[..., Any],
        loop_vars: Any,
        *,
        parallel_iterations: int = 10,
        maximum_iterations: Any = None,
        shape_invariants: Any = None,
        swap_memory: bool = False,
        back_prop: bool = True,
        name: str = "while",
    ) -> Any:
        """The loop variables after running `body` while `cond` is true.

        A list or tuple of loop variables is unpacked into the arguments of both; anything else is
        one argument. A variable keeps its type and shape; `shape_invariants` relaxes shapes, by the
        parameter name in the body or as one shape per variable. The handle of a variable may be a
        loop variable; the variable itself is read once, before the loop.

        With `swap_memory`, devices may move the values that the loop saves for its gradient to the
        host. Without `back_prop`, no gradient passes the results.
        """
        if not isinstance(parallel_iterations, int) or parallel_iterations < 1:
            message = f"parallel_iterations of {name!r} is {parallel_iterations!r}"
            raise misuse_error(message, hint="expected a positive number of iterations in flight")
        loop = LoopWriter(self, name, body, loop_vars, shape_invariants)
        arguments = loop.arguments(loop.cond)
        check_callable(cond, arguments, f"the condition of {name!r}")
        with self.writing(loop.cond):
            loop.set_condition(cond(*arguments))
        arguments = loop.arguments(loop.body)
        check_callable(body, arguments, f"the body of {name!r}")
        with self.writing(loop.body):
            loop.set_body_results(body(*arguments))
        loop.swap_memory, loop.back_prop = bool(swap_memory), bool(back_prop)
        return loop.finish(parallel_iterations, maximum_iterations)

    def function(
        self, function: Callable[..., Any] | None = None, *, name: str | None = None
    ) -> Any:
        """A function of the graph's library; calling it adds a call. Also a decorator."""
        if function is None:
            return lambda decorated: self.function(decorated, name=name)
        chosen = str(name or getattr(function, "__name__", ""))
        return BuiltFunction(self, function, chosen if chosen.isidentifier() else "function")

    # -- contexts --------------------------------------------------------------------------------

    @contextlib.contextmanager
    def scope(self, name: str) -> Iterator[str]:
        """Prefix the names of nodes created inside with `name/`, after the outer scopes."""
        body, before = self.body, self.body.prefix
        body.prefix = body.scope_for(name)
        try:
            yield body.prefix
        finally:
            body.prefix = before

    @contextlib.contextmanager
    def device(self, name: str | None) -> Iterator[None]:
        """Request a device for nodes created inside; unspecified components come from the outer
        device, None clears it.
        """
        body, before = self.body, self.body.device
        if name is not None and devices.DeviceName.parse(name) is None:
            message = f"{name!r} is not a device"
            raise misuse_error(
                message, hint="write one like '/gpu:0' or '/job:worker/device:CPU:1'"
            )
        body.device = "" if name is None else devices.merge_device_names(name, before)
        try:
            yield
        finally:
            body.device = before

    @contextlib.contextmanager
    def control(self, *operations: Any) -> Iterator[None]:
        """Make nodes created inside wait for these operations, or for the producers of these
        tensors.
        """
        body, before = self.body, self.body.controls
        body.controls = (*before, *(_as_operation(self.existing(item)) for item in operations))
        try:
            yield
        finally:
            body.controls = before

    @contextlib.contextmanager
    def writing(self, body: BodyBuilder) -> Iterator[BodyBuilder]:
        """Add nodes created inside to this body."""
        self._bodies.append(body)
        try:
            yield body
        finally:
            self._bodies.pop()

    # -- for the modules of the Builder ---------------------------------------------------------

    def function_name(self, label: str) -> str:
        """A unique function name."""
        base = label.replace("/", "_").lstrip("_")
        number = self._reserved.get(base, 0)
        self._reserved[base] = number + 1
        if not number:
            return base
        return self.function_name(f"{base}_{number}")


def _as_operation(item: Any) -> Operation:
    if isinstance(item, Operation):
        return item
    if isinstance(item, TensorOperators):
        return item.as_tensor().op
    message = f"{item!r} is not an operation or a tensor"
    raise misuse_error(message)
