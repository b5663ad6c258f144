"""Mutations of a GraphDef: nodes, inputs, names, ops, attributes, devices, and functions."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from typing import Any

from cfgraph.ops.index import FAMILIES
from cfgraph.proto import graph_pb2
from tests.robustness.attr_mutations import FLOATS, TYPES, set_shape, set_tensor, set_value

GraphDef = graph_pb2.GraphDef
# ops that decide about control flow, more often than others
_CONTROL = (
    "Switch",
    "Merge",
    "Enter",
    "Exit",
    "NextIteration",
    "LoopCond",
    "ControlTrigger",
    "_SwitchN",
    "If",
    "While",
    "Case",
    "For",
    "StatelessIf",
    "StatelessWhile",
    "PartitionedCall",
    "StatefulPartitionedCall",
    "XlaLaunch",
    "_Send",
    "_Recv",
    "Identity",
    "NoOp",
    "Const",
    "Placeholder",
    "StackV2",
    "StackPushV2",
    "StackPopV2",
    "TensorArrayV3",
    "VarHandleOp",
    "ReadVariableOp",
    "AssignVariableOp",
    "VariableV2",
    "Assign",
    "_Arg",
    "_Retval",
    "SymbolicGradient",
    "RefSwitch",
    "RefMerge",
    "RefEnter",
    "RefExit",
    "TensorListReserve",
    "TensorListSetItem",
    "TensorListPushBack",
)
_NAMES = (
    "",
    "x",
    "a/b",
    "^a",
    "a:0",
    "_a",
    "/",
    "a b",
    "é",
    "\u202e",
    "\x1b[31m",
    "a\nb",
    "..",
    "<script>",
    "x" * 300,
)
_DEVICES = (
    "",
    "cpu:0",
    "/job:worker/task:1/device:GPU:1",
    "/device:CPU:1",
    "gpu:*",
    "/nonsense",
    "/device:CPU:99999999999",
    "/job:a/replica:0/task:0/device:CPU:0",
)


@functools.cache
def _ops() -> tuple[str, ...]:
    return tuple(op for names in FAMILIES.values() for op in names.split())


def mutate_structure(rng: random.Random, graph: GraphDef, other: GraphDef) -> GraphDef:
    """Return a changed copy; `other` lends nodes, attributes, and functions."""
    changed = GraphDef()
    changed.CopyFrom(graph)
    pool = rng.choice((_MUTATIONS, _PLAUSIBLE))
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 6))):
        if changed.node or changed.library.function:
            rng.choice(pool)(rng, changed, other)
    return changed


def _bodies(graph: GraphDef) -> list[Any]:
    """Lists of nodes: of the graph and of its functions."""
    lists = [graph.node, *(function.node_def for function in graph.library.function)]
    return [nodes for nodes in lists if nodes]


def _nodes(rng: random.Random, graph: GraphDef) -> Any:
    """A list of nodes; that of the graph half of the time."""
    bodies = _bodies(graph)
    if not bodies:
        graph.node.add(name="x", op="NoOp")
        return graph.node
    return bodies[0] if rng.random() < 0.5 else rng.choice(bodies)


def _node(rng: random.Random, graph: GraphDef) -> Any:
    return rng.choice(_nodes(rng, graph))


def _drop_node(rng: random.Random, graph: GraphDef, other: GraphDef) -> None:
    nodes = _nodes(rng, graph)
    del nodes[rng.randrange(len(nodes))]


def _duplicate_node(rng: random.Random, graph: GraphDef, other: GraphDef) -> None:
    nodes = _nodes(rng, graph)
    copy = nodes.add()
    copy.CopyFrom(rng.choice(nodes[:-1]))
    if rng.random() < 0.7:
        copy.name += rng.choice(("_1", "/x", "a"))


def _rename_node(rng: random.Random, graph: GraphDef, other: GraphDef) -> None:
    nodes = _nodes(rng, graph)
    node = rng.choice(nodes)
    before, node.name = node.name, rng.choice((*_NAMES, rng.choice(nodes).name))
    if rng.random() < 0.7:
        for reader in nodes:
            for slot, text in enumerate(reader.input):
                if text.lstrip("^").split(":")[0] == before:
                    reader.input[slot] = text.replace(before, node.name, 1)


def _change_op(rng: random.Random, graph: GraphDef, other: GraphDef) -> None:
    ops = (rng.choice(_ops()), rng.choice(_CONTROL), rng.choice(_CONTROL), "", "Unknown")
    functions = [function.signature.name for function in graph.library.function]
    _node(rng, graph).op = rng.choice((*ops, *functions[:1]))


def _drop_input(rng: random.Random, graph: GraphDef, other: GraphDef) -> None:
    node = _node(rng, graph)
    if node.input:
        del node.input[rng.randrange(len(node.input))]


def _tensor_name(rng: random.Random, nodes: Sequence[Any]) -> str:
    name = rng.choice(nodes).name
    forms = ("{}", "{}", "{}", "^{}", "{}:1", "{}:99", "{}:output:0", "{}:-1", "missing")
    return rng.choice(forms).format(name)


def _add_input(rng: random.Random, graph: GraphDef, other: GraphDef) -> None:
    nodes = _nodes(rng, graph)
    node = rng.choice(nodes)
    slot = rng.randrange(len(node.input) + 1)
    inputs = list(node.input)
    inputs.insert(slot, _tensor_name(rng, nodes))
    node.input[:] = inputs


def _change_input(rng: random.Random, graph: GraphDef, other: GraphDef) -> None:
    nodes = _nodes(rng, graph)
    node = rng.choice(nodes)
    if node.input:
        node.input[rng.randrange(len(node.input))] = _tensor_name(rng, nodes)


def _swap_inputs(rng: random.Random, graph: GraphDef, other: GraphDef) -> None:
    inputs = _node(rng, graph).input
    shuffled = list(inputs)
    rng.shuffle(shuffled)
    inputs[:] = shuffled


def _move_node(rng: random.Random, graph: GraphDef, other: GraphDef) -> None:
    nodes = _nodes(rng, graph)
    moved = graph_pb2.GraphDef().node.add()
    start = rng.randrange(len(nodes))
    moved.CopyFrom(nodes[start])
    del nodes[start]
    rng.choice(_bodies(graph) or [graph.node]).add().CopyFrom(moved)


def _change_device(rng: random.Random, graph: GraphDef, other: GraphDef) -> None:
    _node(rng, graph).device = rng.choice(_DEVICES)


def _attr(rng: random.Random, node: Any) -> Any:
    """An attribute of a node, which may be new."""
    names = sorted(node.attr) or [rng.choice(("T", "N", "dtype", "shape", "value", "_class"))]
    return node.attr[rng.choice(names)]


def _drop_attr(rng: random.Random, graph: GraphDef, other: GraphDef) -> None:
    node = _node(rng, graph)
    if node.attr:
        del node.attr[rng.choice(sorted(node.attr))]


def _retype_attr(rng: random.Random, graph: GraphDef, other: GraphDef) -> None:
    functions = [function.signature.name for function in graph.library.function]
    set_value(rng, _attr(rng, _node(rng, graph)), functions)


def _change_tensor(rng: random.Random, graph: GraphDef, other: GraphDef) -> None:
    tensors = [
        node.attr[key].tensor
        for nodes in _bodies(graph)
        for node in nodes
        for key in sorted(node.attr)
        if node.attr[key].HasField("tensor")
    ]
    if tensors:
        set_tensor(rng, rng.choice(tensors))


def _change_type(rng: random.Random, graph: GraphDef, other: GraphDef) -> None:
    node = _node(rng, graph)
    for key in sorted(node.attr):
        if node.attr[key].HasField("type") and rng.random() < 0.6:
            node.attr[key].type = rng.choice(TYPES)


def _change_shape(rng: random.Random, graph: GraphDef, other: GraphDef) -> None:
    node = _node(rng, graph)
    keys = [key for key in sorted(node.attr) if node.attr[key].HasField("shape")]
    set_shape(rng, node.attr[rng.choice(keys or ["shape", "_output_shapes"])].shape)


def _lend_attr(rng: random.Random, graph: GraphDef, other: GraphDef) -> None:
    lender, node = _node(rng, rng.choice((graph, other))), _node(rng, graph)
    if lender.attr:
        key = rng.choice(sorted(lender.attr))
        node.attr[key].CopyFrom(lender.attr[key])


def _set_special_attr(rng: random.Random, graph: GraphDef, other: GraphDef) -> None:
    """Attributes that annotate any node."""
    key = rng.choice(("_class", "_gradient_op_type", "frame_name", "_XlaCompile", "_output_shapes"))
    attr = _node(rng, graph).attr[key]
    if rng.random() < 0.5:
        attr.Clear()
        attr.list.s.append(f"loc:@{rng.choice(graph.node or other.node).name}".encode())
    else:
        set_value(rng, attr, ())


def _cross_over(rng: random.Random, graph: GraphDef, other: GraphDef) -> None:
    """Append the nodes of the other graph, and let some of them read this one."""
    prefix = rng.choice(("", "o/"))
    nodes = list(other.node)[: rng.choice((1, 3, 1000))]
    for node in nodes:
        copy = graph.node.add()
        copy.CopyFrom(node)
        if prefix:
            copy.name = prefix + node.name
            copy.input[:] = [
                f"^{prefix}{text[1:]}" if text.startswith("^") else prefix + text
                for text in node.input
            ]
    graph.library.MergeFrom(other.library)
    for _ in range(rng.choice((0, 1, 2))):
        _change_input(rng, graph, other)


def _drop_function(rng: random.Random, graph: GraphDef, other: GraphDef) -> None:
    if graph.library.function:
        del graph.library.function[rng.randrange(len(graph.library.function))]


def _duplicate_function(rng: random.Random, graph: GraphDef, other: GraphDef) -> None:
    source = rng.choice((graph, other)).library.function
    if source:
        copy = graph.library.function.add()
        copy.CopyFrom(rng.choice(source))
        if rng.random() < 0.5:
            copy.signature.name = rng.choice(("copy", "Add", ""))


def _change_signature(rng: random.Random, graph: GraphDef, other: GraphDef) -> None:
    if not graph.library.function:
        return
    function = rng.choice(graph.library.function)
    signature = function.signature
    args = rng.choice((signature.input_arg, signature.output_arg))
    match rng.randrange(7):
        case 0 if args:
            del args[rng.randrange(len(args))]
        case 1:
            args.add(name=rng.choice(_NAMES[:5]), type=rng.choice(TYPES))
        case 2 if args:
            arg = rng.choice(args)
            arg.type = rng.choice(TYPES)
            arg.type_attr = rng.choice(("", "T"))
            arg.number_attr = rng.choice(("", "N"))
        case 3 if function.ret:
            del function.ret[rng.choice(sorted(function.ret))]
        case 4:
            names = [node.name for node in function.node_def] + [
                arg.name for arg in signature.input_arg
            ]
            keys = [*sorted(function.ret), "r"]
            forms = ("{}", "{}:0", "{}:output:0", "{}:99")
            function.ret[rng.choice(keys)] = rng.choice(forms).format(rng.choice((*names, "gone")))
        case 5:
            set_value(rng, function.attr[rng.choice(("_noinline", "T"))], ())
        case _:
            signature.name = rng.choice(("renamed", "", "If", "Add"))


def _add_recursion(rng: random.Random, graph: GraphDef, other: GraphDef) -> None:
    """Let a body run another function of the library, perhaps itself."""
    if graph.library.function:
        function = rng.choice(graph.library.function)
        name = rng.choice(graph.library.function).signature.name
        node = function.node_def.add(name="recursion", op=rng.choice((name, "PartitionedCall")))
        node.attr["f"].func.name = name
        node.input.extend(arg.name for arg in function.signature.input_arg)


def _lend_input(rng: random.Random, graph: GraphDef, other: GraphDef) -> None:
    """Read a tensor that some other node reads, or let a control edge wait for a node."""
    nodes = _nodes(rng, graph)
    node, lender = rng.choice(nodes), rng.choice(nodes)
    if rng.random() < 0.3:
        node.input.append(f"^{lender.name}")
    elif node.input and lender.input and not node.input[0].startswith("^"):
        node.input[0] = rng.choice(lender.input)


def _change_op_in_family(rng: random.Random, graph: GraphDef, other: GraphDef) -> None:
    node = _node(rng, graph)
    families = [names.split() for names in FAMILIES.values()]
    node.op = rng.choice(next((ops for ops in families if node.op in ops), [node.op]))


def _replace_type(rng: random.Random, graph: GraphDef, other: GraphDef) -> None:
    """Replace a dtype by another one in the whole graph."""
    before, after = rng.choice((1, 3, 10)), rng.choice((1, 2, 3, 4, 7, 8, 9, 10, 14, 19))
    nodes = [node for body in _bodies(graph) for node in body]
    for node in nodes:
        for key in sorted(node.attr):
            attr = node.attr[key]
            if attr.type == before and attr.HasField("type"):
                attr.type = after
            if attr.HasField("tensor") and attr.tensor.dtype == before:
                attr.tensor.dtype = after


def _insert_identity(rng: random.Random, graph: GraphDef, other: GraphDef) -> None:
    nodes = _nodes(rng, graph)
    node = rng.choice(nodes)
    if node.input and not node.input[0].startswith("^"):
        new = nodes.add(name=f"inserted_{len(nodes)}", op=rng.choice(_FORWARDING))
        new.input.append(node.input[0])
        new.attr["T"].type = node.attr["T"].type if "T" in node.attr else 1
        if new.op == "Enter":
            new.attr["frame_name"].s = rng.choice((b"while/while_context", b"frame"))
        node.input[0] = new.name


_FORWARDING = ("Identity", "StopGradient", "NextIteration", "Exit", "Enter", "PreventGradient")


def _insert_conditional(rng: random.Random, graph: GraphDef, other: GraphDef) -> None:
    """Guard the input of a node by a Switch and a Merge."""
    nodes = _nodes(rng, graph)
    node, count = rng.choice(nodes), len(nodes)
    predicates = [n.name for n in nodes if n.op == "LoopCond" or "Less" in n.op]
    predicates += [n.name for n in nodes if n.attr["dtype"].type == 10]
    if not (node.input and predicates) or node.input[0].startswith("^"):
        return
    kind = node.attr["T"].type if "T" in node.attr else 1
    switch = nodes.add(name=f"switch_{count}", op="Switch")
    switch.input.extend([node.input[0], rng.choice(predicates)])
    switch.attr["T"].type = kind
    merge = nodes.add(name=f"merge_{count}", op="Merge")
    outputs = [switch.name, f"{switch.name}:1", rng.choice(list(node.input))]
    merge.input.extend(rng.sample(outputs, 2))
    merge.attr["T"].type = kind
    merge.attr["N"].i = 2
    node.input[0] = merge.name


def _change_number(rng: random.Random, graph: GraphDef, other: GraphDef) -> None:
    node = _node(rng, graph)
    keys = [key for key in sorted(node.attr) if node.attr[key].WhichOneof("value") in set("ifb")]
    if keys:
        attr = node.attr[rng.choice(keys)]
        name = attr.WhichOneof("value")
        values = {"i": (0, 1, 2, 3, 10, -1), "f": FLOATS, "b": (True, False)}[name]
        setattr(attr, name, rng.choice(values))


_PLAUSIBLE: tuple[Callable[[random.Random, GraphDef, GraphDef], None], ...] = (
    _lend_input,
    _lend_input,
    _change_op_in_family,
    _replace_type,
    _insert_identity,
    _insert_conditional,
    _insert_conditional,
    _change_number,
    _change_tensor,
    _change_shape,
    _change_device,
    _set_special_attr,
    _cross_over,
    _duplicate_node,
    _swap_inputs,
)
_MUTATIONS: tuple[Callable[[random.Random, GraphDef, GraphDef], None], ...] = (
    _drop_node,
    _duplicate_node,
    _rename_node,
    _change_op,
    _change_op,
    _drop_input,
    _add_input,
    _change_input,
    _change_input,
    _swap_inputs,
    _move_node,
    _change_device,
    _drop_attr,
    _retype_attr,
    _retype_attr,
    _change_tensor,
    _change_tensor,
    _change_type,
    _change_shape,
    _lend_attr,
    _set_special_attr,
    _cross_over,
    _drop_function,
    _duplicate_function,
    _change_signature,
    _change_signature,
    _add_recursion,
)
