"""Functional nodes in the form that converters of models expect, which is TensorFlow 2's.

    While(x)        becomes    While(counter, maximum, x), whose body adds one to the counter
    Case(i, x)      becomes    If(i == 0, x, otherwise=If(i == 1, x, …)): converters have no Case

No node asks to be lowered: converters run TensorFlow's optimizer first, which would lower it again.
TensorFlow itself would run such a loop by a recursion, so that this form is for converters alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final, TypeVar

import numpy as np

from cfgraph.errors import InvalidInput, Unsupported
from cfgraph.ir.attrs import Func, TensorValue
from cfgraph.ir.dtypes import int32
from cfgraph.ir.function_graph import FunctionGraph, instantiate, is_polymorphic
from cfgraph.ir.functions import BodyNode, Function, FunctionDefinition
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import function_from_nodes, remove_uncalled_functions, with_body
from cfgraph.ir.names import unused_name
from cfgraph.ir.registry import infer_attrs
from cfgraph.ir.role import Role
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ir.signature import ArgDef
from cfgraph.ir.traversal import postorder, topological_order
from cfgraph.ops.opdef.op import function_calls, lookup, role_of
from cfgraph.ops.opdef.random_streams import GRAPH, StreamScope, draws, stream_annotations
from cfgraph.ops.shape_inference import StaticShapes, infer_shapes
from cfgraph.passes.functionalize.function_body import ArgumentNames
from cfgraph.passes.functionalize.lists.indexed_lists import index_lists
from cfgraph.passes.node_copier import SourceCopier

_LOWER_ATTR: Final = "_lower_using_switch_merge"
# TensorFlow 2 marks its loops, which count already, with the number of their variables
_COUNTED_ATTR: Final = "_num_original_outputs"
_SHAPES_ATTR: Final = "output_shapes"
_COUNTER: Final = ("loop_counter", "maximum_iterations")
_ARG_SHAPES_ATTR: Final = "_output_shapes"
_INPUT_SHAPES_ATTR: Final = "_input_shapes"
_NO_MAXIMUM: Final = -1

T = TypeVar("T")


def converter_form(graph: Graph, fetched: Collection[Node]) -> int:
    """Bring functional nodes into the form of converters; returns the number of changed nodes.

    A loop that is fetched itself keeps its outputs, and so its form.
    """
    form = _ConverterForm(graph)
    count = form.rewrite(graph, fetched)
    if count:
        remove_uncalled_functions(graph)
        _distinguish_arguments(graph.functions)
        _declare_shapes(graph)
    return count


def _distinguish_arguments(library: dict[str, Function]) -> None:
    """Give arguments of different functions different names.

    A converter inlines functions into nested scopes, where equal names would be one tensor.
    """
    used: set[str] = set()
    for name, function in library.items():
        definition = function.definition
        own = {arg.name for arg in definition.inputs}
        taken = _used_names(definition) | used
        base = re.sub(r"[^a-z0-9_]", "_", name.lower())
        texts = {arg: _unused(f"{base}_{arg}", taken) for arg in sorted(own & used)}
        used |= own.difference(texts) | {*texts.values()}
        if texts:
            library[name] = Function(name, _with_renamed_arguments(definition, texts))


def _with_renamed_arguments(
    definition: FunctionDefinition, names: Mapping[str, str]
) -> FunctionDefinition:
    def renamed(text: str) -> str:
        name, separator, rest = text.partition(":")
        return names.get(name, name) + separator + rest

    return replace(
        definition,
        inputs=tuple(replace(arg, name=renamed(arg.name)) for arg in definition.inputs),
        nodes=tuple(
            replace(node, inputs=tuple(map(renamed, node.inputs)), origin=None)
            for node in definition.nodes
        ),
        returns={output: renamed(text) for output, text in definition.returns.items()},
    )


def _declare_shapes(graph: Graph) -> None:
    """Declare the shapes of arguments, as TensorFlow 2 does, of functions with one caller."""
    library = graph.functions
    nodes: list[Node | BodyNode] = [*graph]
    for function in library.values():
        nodes += function.definition.nodes
    callers = Counter(name for node in nodes for name in _called(node))
    todo: list[tuple[Graph, dict[str, Shape]]] = [(graph, {})]
    for current, feeds in todo:
        shapes = infer_shapes(current, feeds)
        for node in current:
            for name in _called(node):
                body = _body(library, name) if callers[name] == 1 else None
                if body is None:
                    continue
                known = _argument_shapes(node, shapes)
                definition = library[name].definition
                attrs = {index: dict(item) for index, item in definition.arg_attrs.items()}
                for index, shape in enumerate(known):
                    if shape.dims is not None:
                        attrs.setdefault(index, {})[_ARG_SHAPES_ATTR] = (shape,)
                library[name] = Function(name, replace(definition, arg_attrs=attrs))
                named = zip(body.arguments, known, strict=True)
                todo.append((body.graph, {f"{arg.name}:0": shape for arg, shape in named}))


def _argument_shapes(node: Node, shapes: StaticShapes) -> list[Shape]:
    """The shapes of the arguments of the functions that a node calls, in each of its calls."""
    calls = function_calls(node.op)
    entering = [shapes[tensor] for tensor in node.inputs[calls.first_argument :]]
    if not calls.is_loop:
        return entering
    leaving = shapes.node_shapes(node)
    repeated = [a if a == b else UNKNOWN_SHAPE for a, b in zip(entering, leaving, strict=True)]
    return [Shape(()), *repeated] if calls.kind == "for" else repeated


def _called(node: Node | BodyNode) -> list[str]:
    """The names of the functions that a functional node calls."""
    return [func.name for func in function_calls(node.op).named_in(node.attrs)]


def _body(library: Mapping[str, Function], name: str) -> FunctionGraph | None:
    """The body of a function as a graph, unless it depends on its caller or has unknown ops."""
    function = library.get(name)
    if function is None or is_polymorphic(function):
        return None
    try:
        return instantiate(function, {}, library)
    except (InvalidInput, Unsupported):
        return None


@dataclass(slots=True)
class _ConverterForm:
    """The functions that were rewritten, and copies of some with further arguments."""

    graph: Graph
    _rewritten: set[str] = field(default_factory=set)
    _copies: dict[tuple[str, str], str] = field(default_factory=dict)

    def rewrite(self, graph: Graph, fixed: Collection[Node]) -> int:
        """Rewrite the nodes of a graph or a body, after the functions that they call."""
        count = 0
        # what is lowered still says by its edges when nodes are live
        is_functional = not any(role_of(node) in (Role.ENTER, Role.SWITCH) for node in graph)
        count += index_lists(graph, fixed) if is_functional else 0
        for node in list(graph):
            is_case = function_calls(node.op).kind == "case"
            if is_functional and is_case and len(node.attr("branches")) > 1:
                self._nest_branches(graph, node)
                count += 1
            moved = self._sink(graph, node, fixed) if is_functional else []
            for name in _called(node):
                self._rewrite_body(name)
            if _LOWER_ATTR in node.attrs:
                attrs = {key: value for key, value in node.attrs.items() if key != _LOWER_ATTR}
                graph.set_op(node, node.op, attrs)
                count += 1
            if not is_functional:
                continue
            kind = function_calls(node.op).kind
            if kind == "while" and node not in fixed:
                count += self._count_iterations(graph, node)
            elif kind in ("if", "case"):
                count += self._order_arguments(graph, node)
                graph.remove(*moved)
        if count:
            graph.reorder(topological_order(graph).nodes)
        return count

    def _rewrite_body(self, name: str) -> None:
        if name in self._rewritten:
            return
        self._rewritten.add(name)
        body = _body(self.graph.functions, name)
        if body is None:
            return
        returned = {tensor.node for tensor in body.returns}
        if not self.rewrite(body.graph, returned):
            return
        functions = self.graph.functions
        functions[name] = with_body(functions[name], body, functions)

    # -- loops -------------------------------------------------------------------------------------

    def _count_iterations(self, graph: Graph, node: Node) -> bool:
        """Add a counter and the maximum that converters expect as the first two variables."""
        names = _called(node)
        if _COUNTED_ATTR in node.attrs or not all(name in self.graph.functions for name in names):
            return False
        uses = [use for use in node.uses if use.slot >= 0]
        readers = [(use, use.node.inputs[use.slot].port) for use in uses]
        order = _changing_first(self.graph.functions[node.attr("body").name].definition)
        first = [
            graph.add("Const", name=f"{node.name}/{name}", dtype=int32, value=_scalar(value))
            for name, value in zip(_COUNTER, (0, _NO_MAXIMUM), strict=True)
        ]
        attrs = {
            **node.attrs,
            "T": (int32, int32, *_ordered(node.attr("T"), order)),
            _COUNTED_ATTR: len(node.inputs),
        }
        for key in ("cond", "body"):
            attrs[key] = Func(self._counted(attrs[key].name, key, order))
        shapes = attrs.get(_SHAPES_ATTR)
        if shapes:
            attrs[_SHAPES_ATTR] = (Shape(()), Shape(()), *_ordered(shapes, order))
        inputs = [*(constant.output() for constant in first), *_ordered(node.inputs, order)]
        graph.set_op(node, node.op, attrs)
        graph.connect(node, inputs, node.controls)
        for use, port in readers:
            graph.set_input(use.node, use.slot, node.output(order.index(port) + len(first)))
        return True

    def _counted(self, name: str, role: str, order: Sequence[int]) -> str:
        """A copy of the condition or the body of a loop, with two more variables."""
        key = name, f"{role} {order}"
        if key not in self._copies:
            definition = _with_order(self.graph.functions[name].definition, order)
            if role == "body":
                definition = replace(definition, outputs=_ordered(definition.outputs, order))
            arguments = _new_args(definition, _COUNTER)
            changed = _with_arguments(definition, arguments)
            if role == "body":
                changed = _with_counter(changed, arguments, name)
            self._copies[key] = self._add(f"{name}_counted", changed)
        return self._copies[key]

    # -- branches ----------------------------------------------------------------------------------

    def _sink(self, graph: Graph, node: Node, fixed: Collection[Node]) -> list[Node]:
        """Copy what one branch alone reads into it, as TensorFlow's optimizer does in functions.

        Returns the nodes that are not needed once the branches have no unread arguments.
        """
        calls, names = function_calls(node.op), _called(node)
        has_branches = calls.kind == "if" and all(name in self.graph.functions for name in names)
        if graph is self.graph or not has_branches:
            return []
        first = calls.first_argument
        reads = [{*_read_arguments(self.graph.functions[name].definition)} for name in names]
        branches: dict[Node, int | None] = {}
        for source in reversed(_sinkable(node.inputs[first:], fixed)):
            found: set[int | None] = set()
            for user, slot in source.uses:
                number = slot - first
                is_argument = user is node and number >= 0
                readers = [n for n, read in enumerate(reads) if number in read]
                found.update(readers if is_argument else [branches.get(user)])
            branches[source] = found.pop() if len(found) == 1 else None
        moved = [source for source in graph if branches.get(source) is not None]
        for branch in range(len(names)):
            members = dict.fromkeys(source for source in moved if branches[source] == branch)
            if members:
                self._move(graph, node, branch, members)
        return moved

    def _move(self, graph: Graph, node: Node, branch: int, members: Collection[Node]) -> None:
        """Copy nodes into a branch; what they read are new arguments of all branches."""
        calls = function_calls(node.op)
        first, names = calls.first_argument, _called(node)
        read = dict.fromkeys(item for source in members for item in source.inputs)
        arguments = node.inputs[first:]
        added = [item for item in read if item.node not in members and item not in arguments]
        attrs = {**node.attrs, "Tin": (*(item.dtype for item in added), *node.attr("Tin"))}
        for number, name in enumerate(names):
            definition = self.graph.functions[name].definition
            unused = ArgumentNames(_used_names(definition))
            new = [ArgDef(unused.new(tensor), tensor.dtype, None) for tensor in added]
            changed = _with_arguments(definition, new)
            if number == branch:
                changed = self._with_copies(changed, [*added, *arguments], members)
            key = calls.functions[number]
            attrs[key] = Func(self._add(name, changed, is_rewritten=False), attrs[key].attrs)
        graph.connect(node, [*node.inputs[:first], *added, *arguments], node.controls)
        graph.set_op(node, node.op, attrs)

    def _with_copies(
        self,
        definition: FunctionDefinition,
        arguments: Sequence[Output],
        members: Collection[Node],
    ) -> FunctionDefinition:
        """A branch with copies of nodes in place of the arguments that they were."""
        functions, branch = self.graph.functions, Function("", definition)
        body = instantiate(branch, {}, functions)
        copier = SourceCopier(body.graph, lambda tensor: tensor)
        own = {arg.output(): item for arg, item in zip(body.arguments, arguments, strict=True)}
        copier.tensors.update((item, arg) for arg, item in own.items() if item.node not in members)
        copies = {arg: copier.value(item) for arg, item in own.items() if item.node in members}
        for argument, copy in copies.items():
            body.graph.replace_uses(argument, copy)
        body.graph.reorder(topological_order(body.graph).nodes)
        returns = tuple(copies.get(tensor, tensor) for tensor in body.returns)
        return with_body(branch, replace(body, returns=returns), functions).definition

    def _order_arguments(self, graph: Graph, node: Node) -> bool:
        """Drop the arguments that no branch reads, and list the others as branches read them.

        TensorFlow's optimizer would rewrite the functions so, and lose the shapes of arguments of
        a loop with such a branch. What no branch reads may have said when it runs.
        """
        names, calls = _called(node), function_calls(node.op)
        functions = [self.graph.functions.get(name) for name in names]
        bodies = [function.definition for function in functions if function is not None]
        if len(bodies) < len(names):
            return False
        read = [*dict.fromkeys(chain.from_iterable(map(_read_arguments, bodies)))]
        if read == [*range(len(bodies[0].inputs))]:
            return False
        copies = {name: self._selecting(name, read) for name in names}
        attrs = {key: _renamed(value, copies) for key, value in node.attrs.items()}
        types, first = node.attr("Tin"), calls.first_argument
        attrs["Tin"] = tuple(types[number] for number in read)
        arguments = [node.inputs[first + number] for number in read]
        graph.connect(node, [*node.inputs[:first], *arguments], node.controls)
        graph.set_op(node, node.op, attrs)
        return True

    def _selecting(self, name: str, numbers: Sequence[int]) -> str:
        """A copy of a branch with some arguments, in their order."""
        key = name, ",".join(map(str, numbers))
        if key not in self._copies:
            definition = self.graph.functions[name].definition
            self._copies[key] = self._add(name, _with_order(definition, numbers))
        return self._copies[key]

    def _nest_branches(self, graph: Graph, node: Node) -> None:
        """Replace a Case by an If whose other branch has the rest."""
        names = _called(node)
        index, *arguments = node.inputs
        attrs = {key: value for key, value in node.attrs.items() if key != "branches"}
        if draws(node, self.graph.functions):
            attrs |= GRAPH.inside(node).of_call()
            names = [self._drawing(node, name, number) for number, name in enumerate(names)]
        zero = graph.add("Const", name=f"{node.name}/index", dtype=int32, value=_scalar(0))
        test = graph.add("Equal", index, zero.output(), name=f"{node.name}/is_first")
        functions, more = self._first_and_rest(node, names, 0)
        inputs = [test.output(), *([index] if more else []), *arguments]
        types = (*([int32] if more else []), *node.attr("Tin"))
        attrs |= {"Tin": types, "then_branch": functions[0], "else_branch": functions[1]}
        graph.connect(node, inputs, node.controls)
        op = _if_op(node)
        graph.set_op(node, op, infer_attrs(node.name, op, inputs, attrs))

    def _drawing(self, node: Node, name: str, number: int) -> str:
        """A copy of a branch of a Case, with the streams of its random nodes."""
        label = f"branch{number}"
        path = GRAPH.inside(node, label).path.removeprefix(GRAPH.inside(node).path)
        if not path or name not in self.graph.functions:
            return name
        key = name, path
        if key not in self._copies:
            definition = self.graph.functions[name].definition
            nodes = StreamScope(path).annotated(definition.nodes, self.graph.functions)
            changed = replace(definition, nodes=nodes)
            self._copies[key] = self._add(f"{name}_{label}", changed, is_rewritten=False)
        return self._copies[key]

    def _first_and_rest(
        self, node: Node, names: Sequence[str], number: int
    ) -> tuple[tuple[Func, Func], bool]:
        """Branch `number` and a function of those after it; true if they take the index, too."""
        first, *rest = names[number:]
        if len(rest) == 1:
            return (Func(first), Func(rest[0])), False
        indexed = self._indexed(first)
        return (Func(indexed), Func(self._rest(node, names, number + 1))), True

    def _indexed(self, name: str) -> str:
        """A copy of a branch with the index as first argument."""
        key = name, "index"
        if key not in self._copies:
            definition = self.graph.functions[name].definition
            changed = _with_arguments(definition, _new_args(definition, ["index"]))
            self._copies[key] = self._add(f"{name}_indexed", changed, is_rewritten=False)
        return self._copies[key]

    def _rest(self, node: Node, names: Sequence[str], number: int) -> str:
        """A function of the index and the arguments that calls branch `number` or a later one."""
        inner = Graph()
        inner.functions = self.graph.functions
        model = self.graph.functions[names[number]].definition
        index, *arguments = [
            inner.add("Placeholder", name=arg.name, dtype=arg.dtype).output()
            for arg in (*_new_args(model, ["index"]), *model.inputs)
        ]
        (then, otherwise), more = self._first_and_rest(node, names, number)
        prefix = f"{names[number]}/or_later"
        constant = inner.add("Const", name=f"{prefix}/number", dtype=int32, value=_scalar(number))
        test = inner.add("Equal", index, constant.output(), name=f"{prefix}/is_number")
        dropped = {"branches", *stream_annotations(node)}
        attrs = {key: value for key, value in node.attrs.items() if key not in dropped}
        attrs |= GRAPH.of_call() if draws(node, self.graph.functions) else {}
        types = (*([int32] if more else []), *node.attr("Tin"))
        attrs |= {"Tin": types, "then_branch": then, "else_branch": otherwise}
        inputs = [test.output(), *([index] if more else []), *arguments]
        call = inner.add(_if_op(node), *inputs, name=f"{prefix}/branches", attrs=attrs)
        outputs = {arg.name: call.output(port) for port, arg in enumerate(model.outputs)}
        effects = {"effect": call} if node.op == "Case" else {}
        sources = {tensor.node.name: tensor for tensor in (index, *arguments)}
        made = function_from_nodes("", inner, sources, outputs, effects, inner.functions)
        return self._add(f"{names[number]}_or_later", made.definition, is_rewritten=False)

    def _add(self, base: str, definition: FunctionDefinition, *, is_rewritten: bool = True) -> str:
        """Add a function under an unused name."""
        name = unused_name(base, self.graph.functions)
        self.graph.functions[name] = Function(name, definition)
        if is_rewritten:
            self._rewritten.add(name)
        return name


def _sinkable(arguments: Iterable[Output], fixed: Collection[Node]) -> list[Node]:
    """The nodes that may sink and lead to arguments by such nodes alone, in topological order."""

    def sources(tensors: Iterable[Output]) -> list[Node]:
        nodes = dict.fromkeys(tensor.node for tensor in tensors)
        return [node for node in nodes if node not in fixed and _may_sink(node)]

    order: dict[Node, None] = {}
    for start in sources(arguments):
        for node in postorder(start, lambda node: sources(node.inputs), order):
            order[node] = None
    return [*order]


def _may_sink(node: Node) -> bool:
    """True for a node without effects, except for one of lists, which converters follow."""
    op = lookup(node.op)
    if op is None or node.controls or op.calls.kind:
        return False
    types = [tensor.dtype for tensor in (*node.inputs, *node.outputs)]
    if any(t is None or t.is_ref or t.kind in ("variant", "resource") for t in types):
        return False
    return not (op.effects.stateful or op.effects.random or op.effects.is_input)


def _if_op(node: Node) -> str:
    return "If" if node.op == "Case" else "StatelessIf"


def _scalar(value: int) -> TensorValue:
    return TensorValue(np.array(value, np.int32))


def _used_names(definition: FunctionDefinition) -> set[str]:
    arguments = {arg.name for arg in (*definition.inputs, *definition.outputs)}
    return arguments | {node.name for node in definition.nodes} | {*definition.control_outputs}


def _unused(base: str, used: set[str]) -> str:
    name = unused_name(base, used)
    used.add(name)
    return name


def _new_args(definition: FunctionDefinition, names: Sequence[str]) -> list[ArgDef]:
    """Arguments of type int32 with names that a function does not use yet."""
    used = _used_names(definition)
    return [ArgDef(_unused(name, used), int32, None) for name in names]


def _read_arguments(definition: FunctionDefinition) -> Iterator[int]:
    """The numbers of the arguments that a body reads, in the order of TensorFlow's optimizer."""
    numbers = {arg.name: number for number, arg in enumerate(definition.inputs)}
    inputs = (node.inputs for node in _breadth_first(definition.nodes))
    for text in chain(*inputs, definition.returns.values()):
        name = text.partition(":")[0]
        if name in numbers:
            yield numbers[name]


def _breadth_first(nodes: Sequence[BodyNode]) -> list[BodyNode]:
    """The nodes of a body, each as soon as all that it reads are listed."""
    missing: dict[str, int] = {}
    readers: dict[str, list[BodyNode]] = {node.name: [] for node in nodes}
    for node in nodes:
        read = [text.removeprefix("^").partition(":")[0] for text in node.inputs]
        read = [name for name in read if name in readers]
        missing[node.name] = len(read)
        for name in read:
            readers[name].append(node)
    order = [node for node in nodes if not missing[node.name]]
    for node in order:
        for reader in readers[node.name]:
            missing[reader.name] -= 1
            if not missing[reader.name]:
                order.append(reader)
    return order


def _renamed(value: Any, copies: Mapping[str, str]) -> Any:
    """An attribute with other functions."""
    if isinstance(value, tuple):
        return tuple(_renamed(item, copies) for item in value)
    return Func(copies[value.name], value.attrs) if isinstance(value, Func) else value


def _without_input_shapes(definition: FunctionDefinition) -> dict[str, Any]:
    return {key: item for key, item in definition.attrs.items() if key != _INPUT_SHAPES_ATTR}


def _ordered(items: Sequence[T], order: Sequence[int]) -> tuple[T, ...]:
    return tuple(items[number] for number in order)


def _with_order(definition: FunctionDefinition, order: Sequence[int]) -> FunctionDefinition:
    """The function with these of its arguments, in this order."""
    known = definition.arg_attrs
    return replace(
        definition,
        inputs=_ordered(definition.inputs, order),
        arg_attrs={new: known[old] for new, old in enumerate(order) if old in known},
        attrs=_without_input_shapes(definition),
    )


def _changing_first(body: FunctionDefinition) -> list[int]:
    """The variables of a loop, those last that its body returns as they are.

    That is the order of TensorFlow 2. A converter may take the list that a loop writes for another
    variable if one that the loop only reads comes before it.
    """
    nodes = {node.name: node for node in body.nodes}

    def is_unchanged(number: int) -> bool:
        name = body.returns[body.outputs[number].name].partition(":")[0]
        while (node := nodes.get(name)) is not None and _is_identity(node):
            name = node.inputs[0].partition(":")[0]
        return name == body.inputs[number].name

    return sorted(range(len(body.inputs)), key=is_unchanged)


def _is_identity(node: BodyNode) -> bool:
    op = lookup(node.op)
    return op is not None and op.aliasing.is_identity and len(node.inputs) == 1


def _with_arguments(
    definition: FunctionDefinition, arguments: Sequence[ArgDef]
) -> FunctionDefinition:
    """The function with further arguments, before its own, that it does not read."""
    attrs = _without_input_shapes(definition)
    arg_attrs = {index + len(arguments): item for index, item in definition.arg_attrs.items()}
    inputs = (*arguments, *definition.inputs)
    return replace(definition, inputs=inputs, attrs=attrs, arg_attrs=arg_attrs)


def _with_counter(
    definition: FunctionDefinition, arguments: Sequence[ArgDef], prefix: str
) -> FunctionDefinition:
    """The body of a loop that returns the first argument plus one, and the second argument."""
    used = _used_names(definition)
    counter, maximum = arguments
    one, total = (_unused(f"{prefix}/{counter.name}/{end}", used) for end in ("step", "next"))
    nodes = (
        BodyNode(one, "Const", attrs={"dtype": int32, "value": _scalar(1)}),
        BodyNode(total, "AddV2", (counter.name, f"{one}:output:0"), attrs={"T": int32}),
    )
    outputs = [ArgDef(_unused(f"{arg.name}_out", used), int32, None) for arg in arguments]
    results = (f"{total}:z:0", maximum.name)
    first = {arg.name: text for arg, text in zip(outputs, results, strict=True)}
    return replace(
        definition,
        outputs=(*outputs, *definition.outputs),
        nodes=(*definition.nodes, *nodes),
        returns={**first, **definition.returns},
    )
