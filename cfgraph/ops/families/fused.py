"""Fused ops that TensorFlow's rewrites leave in graphs: a product, and what follows it.

Each op is the chain of ordinary ops that it stands for. Its kernel runs the kernels of the chain;
`unfused` adds the chain to a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, ClassVar, Final

from cfgraph.errors import ExecutionError, InvalidInput
from cfgraph.ir import registry
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.names import decode_text
from cfgraph.ir.shapes import Shape
from cfgraph.ops.opdef.facts import CompilerSupport
from cfgraph.ops.opdef.op import Elementwise, Kernel, Op, OpError, SameShape, bound_kernel, lookup
from cfgraph.ops.opdef.shape_functions import InferenceContext, shape_of_rank

# adds an op to the chain: (op, *inputs, **attributes) -> its node
AddNode = Callable[..., Node]


class FusedOp(Op, abstract=True):
    """An op that stands for a chain of ops; `expand` adds the chain."""

    compilation = CompilerSupport(traceable=False, compiled=False)
    expand: ClassVar[Callable[[AddNode, Node, Sequence[Output]], Sequence[Output]]]

    @classmethod
    def unfused(cls, add: AddNode, node: Node, inputs: Sequence[Output]) -> Sequence[Output]:
        """Add the chain for a node; the tensors that replace its outputs.

        Raises OpError for attributes that describe no chain, InvalidInput for those that `add`
        does not accept.
        """
        return cls.expand(add, node, inputs)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        graph = Graph()
        types = node.input_types or []
        arguments = [
            graph.add("Placeholder", name=f"x{i}", dtype=dtype).output()
            for i, dtype in enumerate(types)
        ]

        def add(op: str, *inputs: Output, **attrs: Any) -> Node:
            return graph.add(op, *inputs, attrs=attrs)

        try:
            outputs = cls.unfused(add, node, arguments)
        except InvalidInput as error:  # it names a member; the fused node is named instead
            raise OpError(error.message) from error
        chain = [n for n in graph if n.op != "Placeholder"]
        kernels = [_plain_kernel(n, xp) for n in chain]

        def run(*values: Any) -> Any:
            known: dict[Output, Any] = dict(zip(arguments, values, strict=True))
            for inner, kernel in zip(chain, kernels, strict=True):
                result = kernel(*(known[x] for x in inner.inputs))
                parts = result if isinstance(result, tuple) else (result,)
                known.update((inner.output(port), part) for port, part in enumerate(parts))
            values = tuple(known[x] for x in outputs)
            return values if len(values) > 1 else values[0]

        return run


def _plain_kernel(node: Node, xp: ModuleType) -> Kernel:
    op = lookup(node.op)
    if op is None or op.effects.stateful or not op.compilation.runnable:
        raise OpError(f"{node.op} cannot be part of a fused op")
    try:
        return bound_kernel(node, op, xp)
    except ExecutionError as error:
        error.node = None  # the member is part of no graph; the fused node is named instead
        raise


def shared_attrs(node: Node, op: str) -> dict[str, Any]:
    """The attributes of a node that another op also has, without types."""
    target = registry.lookup(op)
    source = registry.lookup(node.op)
    assert target is not None
    assert source is not None
    known = source.parsed().attrs
    return {
        key: node.attr(key)
        for key, attr in target.parsed().attrs.items()
        if key in known and attr.kind != "type"
    }


def add_epilogue(
    add: AddNode, node: Node, x: Output, args: Sequence[Output], *, broadcasts_bias: bool = False
) -> Output:
    """Add the ops that `fused_ops` names after the product `x`.

    A bias that broadcasts may have leading dimensions of size 1.
    """
    rest = list(args)
    layout = {"data_format": node.attr("data_format")} if "data_format" in _attrs_of(node) else {}
    for name in map(decode_text, node.attr("fused_ops")):
        if name == "BiasAdd":
            bias = _next(node, rest)
            added = add("AddV2", x, bias) if broadcasts_bias else add("BiasAdd", x, bias, **layout)
            x = added.output()
        elif name == "FusedBatchNorm":
            scale, offset, mean, variance = (_next(node, rest) for _ in range(4))
            attrs = {"epsilon": node.attr("epsilon"), "is_training": False, **layout}
            x = add("FusedBatchNormV3", x, scale, offset, mean, variance, **attrs).output()
        elif name == "Add":
            x = add("AddV2", x, _next(node, rest)).output()
        elif name == "Mul":
            x = add("Mul", x, _next(node, rest)).output()
        else:
            x = add_activation(add, node, name, x)
    return x


def add_activation(add: AddNode, node: Node, name: str, x: Output) -> Output:
    """Add one unary op, whose `alpha` is that of the fused op. Raises OpError for any other."""
    op = lookup(name)
    if op is None or not _is_unary(op):
        raise OpError(f"{name!r} cannot be fused into {node.op}")
    if op.aliasing.is_identity:
        return x
    if "alpha" not in op.parsed().attrs:
        return add(name, x).output()
    if "leakyrelu_alpha" not in _attrs_of(node):
        raise OpError(f"{node.op} has no alpha for {name}")
    return add(name, x, alpha=node.attr("leakyrelu_alpha")).output()


def _attrs_of(node: Node) -> Any:
    definition = registry.lookup(node.op)
    assert definition is not None
    return definition.parsed().attrs


def _next(node: Node, args: list[Output]) -> Output:
    if not args:
        raise OpError(f"{node.op} has too few args for its fused_ops")
    return args.pop(0)


class FusedProduct(FusedOp, abstract=True):
    """A product of two tensors followed by the ops of `fused_ops`."""

    product: ClassVar[str]

    @classmethod
    def unfused(cls, add: AddNode, node: Node, inputs: Sequence[Output]) -> Sequence[Output]:
        x, w, *args = inputs
        attrs = shared_attrs(node, cls.product)
        return [add_epilogue(add, node, add(cls.product, x, w, **attrs).output(), args)]

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        op = lookup(cls.product)
        assert op is not None
        return op.shape(InferenceContext(context.node, context.inputs[:2], context.value))


_WINDOW: Final = "strides: list(int), padding: {'SAME', 'VALID'"
_MIRRORED: Final = f"mode: {{'REFLECT', 'SYMMETRIC'}}, {_WINDOW}}}"
_EPILOGUE: Final = (
    "fused_ops: list(string) = [], epsilon: float = 0.0001, leakyrelu_alpha: float = 0.2"
)


class _FusedConv2D(FusedProduct):
    """A convolution followed by bias, normalization, or activation."""

    signature = "input: T, filter: T, args: TArgs, host_args: num_host_args*float32 -> output: T"
    attrs = (
        "T: {float16, float32, float64, int8, qint8}, TArgs: list(type) >= 1, num_args: int >= 0, "
        f"num_host_args: int >= 0 = 0, {_WINDOW}, 'EXPLICIT'}}, "
        "explicit_paddings: list(int) = [], "
        "data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC', "
        "filter_format: {'HWIO', 'OIHW', 'OIHW_VECT_I'} = 'HWIO', "
        f"dilations: list(int) = [1, 1, 1, 1], use_cudnn_on_gpu: bool = true, {_EPILOGUE}"
    )
    product = "Conv2D"

    @classmethod
    def unfused(cls, add: AddNode, node: Node, inputs: Sequence[Output]) -> Sequence[Output]:
        if node.attr("num_host_args") or node.attr("filter_format") != b"HWIO":
            raise OpError("only filters in the order HWIO and no host arguments are supported")
        return super().unfused(add, node, inputs)


class _FusedDepthwiseConv2dNative(FusedProduct):
    """A depthwise convolution followed by bias or activation."""

    signature = "input: T, filter: T, args: num_args*T -> output: T"
    attrs = (
        "T: {float16, bfloat16, float32, float64}, num_args: int >= 0, "
        f"{_WINDOW}}}, data_format: {{'NHWC', 'NCHW'}} = 'NHWC', "
        f"dilations: list(int) = [1, 1, 1, 1], {_EPILOGUE}"
    )
    product = "DepthwiseConv2dNative"


class _FusedMatMul(FusedProduct):
    """A matrix product followed by bias or activation."""

    signature = "a: T, b: T, args: num_args*T -> product: T"
    attrs = (
        "transpose_a: bool = false, transpose_b: bool = false, T: {bfloat16, float16, float32}, "
        f"num_args: int >= 0, {_EPILOGUE}"
    )
    product = "MatMul"


class FusedPadConv2D(FusedOp):
    """A convolution of an image padded with its mirror image."""

    signature = "input: T, paddings: int32, filter: T -> output: T"
    attrs = f"T: {{float16, bfloat16, float32, float64}}, {_MIRRORED}"

    @classmethod
    def unfused(cls, add: AddNode, node: Node, inputs: Sequence[Output]) -> Sequence[Output]:
        x, paddings, w = inputs
        padded = add("MirrorPad", x, paddings, mode=node.attr("mode")).output()
        return [add("Conv2D", padded, w, **shared_attrs(node, "Conv2D")).output()]

    shape = staticmethod(lambda context: [shape_of_rank(4)])


class FusedResizeAndPadConv2D(FusedPadConv2D):
    """A convolution of an image resized by bilinear interpolation and padded as a mirror."""

    signature = "input: T, size: int32, paddings: int32, filter: T -> output: T"
    attrs = f"T: {{float16, float32, float64}}, resize_align_corners: bool = false, {_MIRRORED}"

    @classmethod
    def unfused(cls, add: AddNode, node: Node, inputs: Sequence[Output]) -> Sequence[Output]:
        x, size, *rest = inputs
        corners = node.attr("resize_align_corners")
        resized = add("ResizeBilinear", x, size, align_corners=corners).output()
        return super().unfused(add, node, [add("Cast", resized, DstT=x.dtype).output(), *rest])


class _FusedBatchNormEx(FusedOp):
    """Batch normalization followed by a sum and an activation."""

    signature = (
        "x: T, scale: U, offset: U, mean: U, variance: U, side_input: num_side_inputs*T "
        "-> y: T, batch_mean: U, batch_variance: U, reserve_space_1: U, reserve_space_2: U, "
        "reserve_space_3: U"
    )
    attrs = (
        "T: {float16, float32, bfloat16}, U: {float32}, epsilon: float = 0.0001, "
        "exponential_avg_factor: float = 1.0, num_side_inputs: int >= 0 = 0, "
        "activation_mode: string = 'Identity', data_format: {'NHWC', 'NCHW'} = 'NHWC', "
        "is_training: bool = true"
    )

    @classmethod
    def unfused(cls, add: AddNode, node: Node, inputs: Sequence[Output]) -> Sequence[Output]:
        attrs = shared_attrs(node, "FusedBatchNormV3")
        norm = add("FusedBatchNormV3", *inputs[:5], **attrs)
        y = norm.output()
        for side in inputs[5:]:
            y = add("AddV2", y, side).output()
        name = decode_text(node.attr("activation_mode"))
        return [add_activation(add, node, name, y), *(norm.output(port) for port in range(1, 6))]

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        op = lookup("FusedBatchNormV3")
        assert op is not None
        return op.shape(InferenceContext(context.node, context.inputs[:5], context.value))


class _UnaryOpsComposition(FusedOp, SameShape):
    """Unary ops, one after the other."""

    signature = "x: T -> y: T"
    attrs = "T: {float32, float16, float64}, op_names: list(string)"

    @classmethod
    def unfused(cls, add: AddNode, node: Node, inputs: Sequence[Output]) -> Sequence[Output]:
        (x,) = inputs
        for name in map(decode_text, node.attr("op_names")):
            x = add_activation(add, node, name, x)
        return [x]


def _is_unary(op: type[Op]) -> bool:
    """True for a pure op from one tensor to another of its type and shape."""
    keeps_shape = issubclass(op, SameShape | Elementwise)
    if op.effects.stateful or not keeps_shape or issubclass(op, FusedOp):
        return False
    signature = op.parsed()
    arguments = (*signature.inputs, *signature.outputs)
    return len(arguments) == 2 and len({arg.type_attr for arg in arguments}) == 1
