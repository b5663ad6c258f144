"""Reader of StableHLO modules, in the child process: MLIR's bindings parse the bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from cfgraph.backends.xla.jax_library import load_jax
from cfgraph.integrations.stablehlo.module_bodies import (
    ARGUMENT,
    CAPTURED,
    REGIONS,
    RETURN,
    ModuleBody,
    TensorType,
)
from cfgraph.integrations.stablehlo.permitted_operations import require_shallow_regions
from cfgraph.ir.attrs import Func
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.printable import clean_layout
from cfgraph.ir.shapes import Shape
from cfgraph.ops.opdef.op import OpError

_DIALECT: Final = "stablehlo."
# larger constants are elided, and longer attributes and lines of text shortened
_MAX_ELEMENTS: Final = 16
_MAX_ATTRIBUTE: Final = 500
_MAX_LINE: Final = 20_000
_TYPES: Final = {
    "i1": "bool",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "complex<f32>": "complex64",
    "complex<f64>": "complex128",
    **{f"i{bits}": f"int{bits}" for bits in (4, 8, 16, 32, 64)},
    **{f"ui{bits}": f"uint{bits}" for bits in (4, 8, 16, 32, 64)},
}
_MAX_REASON: Final = 300


@contextmanager
def opened_module(data: bytes) -> Iterator[Any]:
    """The MLIR module of a portable artifact. Raises OpError for other data."""
    load_jax()
    from jax.interpreters import mlir
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    with mlir.make_ir_context() as context, ir.Location.unknown():
        try:
            module = stablehlo.deserialize_portable_artifact(context, data)
        except Exception as error:
            hint = "it may need a newer jax, or be damaged"
            message = f"the module is not a portable artifact of StableHLO: {reason(error)}"
            raise OpError(message, hint=hint) from None
        require_shallow_regions(module)
        yield module


def reason(error: Exception) -> str:
    """The first line of an error of the compiler, or of MLIR."""
    text = clean_layout(str(error)).strip().partition("\n")[0]
    return text[:_MAX_REASON] or type(error).__name__


def read_bodies(data: bytes, prefix: str) -> tuple[ModuleBody, ...]:
    """The functions and regions of a module, `main` first, each before its regions.

    Their names start with `prefix`.

    Raises OpError for data that are no module.
    """
    bodies: list[ModuleBody] = []
    with opened_module(data) as module:
        from jaxlib.mlir.dialects import func

        functions: list[Any] = [op for op in module.body.operations if isinstance(op, func.FuncOp)]
        for function in functions:
            if not function.is_external:
                name = f"{prefix}{function.name.value}"
                reader = _BlockReader(bodies, name, prefix, function.regions[0].blocks[0])
                reader.read({})
    main = f"{prefix}main"
    return tuple(sorted(bodies, key=lambda body: not f"{body.name}/".startswith(f"{main}/")))


def read_text(data: bytes) -> str:
    """The text of a module, with large constants elided and very long lines shortened.

    Raises OpError for data that are no module.
    """
    with opened_module(data) as module:
        text = module.operation.get_asm(large_elements_limit=_MAX_ELEMENTS)
    return clean_layout("\n".join(_shortened(line, _MAX_LINE) for line in text.split("\n")))


class _BlockReader:
    """Reader of one block; values are Outputs of its graph by MLIR value."""

    def __init__(self, bodies: list[ModuleBody], name: str, prefix: str, block: Any) -> None:
        self.bodies, self.prefix, self.block = bodies, prefix, block
        inputs = tuple(_tensor_type(argument.type) for argument in block.arguments)
        self.body = ModuleBody(name, inputs)
        self.values: dict[Any, Output] = {}
        bodies.append(self.body)

    def read(self, outer: dict[Any, Output], caller: Node | None = None) -> None:
        """Add the nodes of the block; `outer` are the values that it may capture."""
        self.body.caller = caller
        for number, value in enumerate(self.block.arguments):
            self._define(self._add(f"arg{number}", ARGUMENT, (), {}, [value]), [value])
        for operation in self.block.operations:
            self._read(operation.operation, outer)

    def _read(self, operation: Any, outer: dict[Any, Output]) -> None:
        inputs = [self._value(value, outer) for value in operation.operands]
        if operation.name in ("func.return", "stablehlo.return"):
            self.body.results = tuple(inputs)
            self.body.outputs = tuple(_tensor_type(value.type) for value in operation.operands)
            self._add(RETURN, RETURN, inputs, {}, ())
            return
        op = operation.name.removeprefix(_DIALECT)
        results = list(operation.results)
        node = self._add(op, op, inputs, dict(_attributes(operation, self.prefix)), results)
        self._define(node, results)
        if op in REGIONS:
            names = REGIONS[op] or tuple(
                f"branch{number}" for number in range(len(operation.regions))
            )
            for name, region in zip(names, operation.regions, strict=True):
                path = f"{self.body.name}/{node.name}/{name}"
                node.attrs = {**node.attrs, name: Func(path)}
                inner = _BlockReader(self.bodies, path, self.prefix, region.blocks[0])
                inner.read({**outer, **self.values}, node)

    def _add(
        self,
        name: str,
        op: str,
        inputs: Sequence[Output],
        attrs: dict[str, Any],
        results: Sequence[Any],
    ) -> Node:
        graph = self.body.graph
        node = graph.create(graph.unique_name(name), op, inputs, (), attrs)
        self.body.types[node] = tuple(_tensor_type(value.type) for value in results)
        return node

    def _define(self, node: Node, results: Sequence[Any]) -> None:
        for port, value in enumerate(results):
            self.values[value] = Output(node, port)

    def _value(self, value: Any, outer: dict[Any, Output]) -> Output:
        known = self.values.get(value)
        if known is None:
            source = outer.get(value)
            name = CAPTURED if source is None else f"{CAPTURED}_{source.node.name}"
            self._define(self._add(name, CAPTURED, (), {}, [value]), [value])
            known = self.values[value]
        return known


def _attributes(operation: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """The attributes of an operation as texts, and the function that it calls."""
    from jaxlib.mlir import ir

    for name in operation.attributes:
        try:
            value = operation.attributes[name]
        except TypeError:  # the bindings have no class for elements that are complex numbers
            yield name, ", ".join(str(result.type) for result in operation.results)
            continue
        if isinstance(value, ir.FlatSymbolRefAttr):
            yield name, Func(f"{prefix}{value.value}")
        elif not isinstance(value, ir.DenseElementsAttr) or len(value) <= _MAX_ELEMENTS:
            yield name, _shortened(str(value), _MAX_ATTRIBUTE)
        else:
            yield name, str(value.type)


def _shortened(text: str, size: int) -> str:
    return text if len(text) <= size else f"{text[:size]}..."


def _tensor_type(mlir_type: Any) -> TensorType:
    from jaxlib.mlir import ir

    if not isinstance(mlir_type, ir.RankedTensorType):
        return TensorType(None, Shape(None), str(mlir_type))
    name = _TYPES.get(str(mlir_type.element_type))
    shape = Shape(
        None if mlir_type.is_dynamic_dim(axis) else mlir_type.get_dim_size(axis)
        for axis in range(mlir_type.rank)
    )
    if name is None:
        return TensorType(None, shape, str(mlir_type))
    return TensorType(DType.from_name(name), shape, f"{name}{shape}")
