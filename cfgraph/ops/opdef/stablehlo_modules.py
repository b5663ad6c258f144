"""StableHLO modules inside graphs, read by the MLIR bindings of jaxlib and compiled by XLA.

jax2tf writes a function of jax as one `XlaCallModule`, whose attribute `module` is a portable
artifact. A call of it is a jax primitive, which is lowered to the module: `jax.jit` compiles it per
shapes and types of the inputs. A module with dynamic shapes is refined first: a new main function
has the shapes of the inputs, and calls the old one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from typing import Any, Final

import numpy as np

from cfgraph.errors import CfgraphError, Unsupported
from cfgraph.ir.graph import Node
from cfgraph.ir.printable import clean_layout
from cfgraph.limits import run_interruptibly
from cfgraph.ops.opdef.jax_library import load_jax, xla_context
from cfgraph.ops.opdef.op import OpError
from cfgraph.ops.opdef.stablehlo_calls import (
    require_safe_calls,
    require_shallow_calls,
    require_shallow_regions,
)

# the versions of the calling convention that TensorFlow supports
VERSIONS: Final = range(5, 11)
_PLATFORM: Final = "CPU"
# compiled modules that are kept, each with the shapes of its inputs
_KEPT: Final = 64
_MAX_REASON: Final = 300
_WRAPPED: Final = "_wrapped_main"
# shapes and dtypes of inputs
Signature = tuple[tuple[tuple[int, ...], Any], ...]


@dataclass(frozen=True, slots=True)
class ModuleCall:
    """A StableHLO module, and the attributes of the op that calls it."""

    data: bytes
    version: int
    platforms: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    has_tokens: bool = False
    disabled_checks: tuple[str, ...] = ()
    output_types: tuple[Any, ...] = ()

    @property
    def platform_index(self) -> int:
        """The index of the CPU among the platforms of the module.

        Raises OpError if it excludes the CPU, unless that check is disabled.
        """
        if not self.platforms or "platform" in self.disabled_checks:
            return self.platforms.index(_PLATFORM) if _PLATFORM in self.platforms else 0
        if _PLATFORM not in self.platforms:
            names = ", ".join(self.platforms)
            hint = f'export it with platforms=["cpu", …]; the module is for {names}'
            message = f"the platform {_PLATFORM} is not among those of the module: {names}"
            raise OpError(message, hint=hint)
        return self.platforms.index(_PLATFORM)

    def require_supported(self) -> None:
        """Raise Unsupported, which names what cfgraph lacks."""
        if self.version not in VERSIONS:
            message = f"version {self.version} of XlaCallModule is not supported"
            hint = f"versions {VERSIONS.start} to {VERSIONS.stop - 1} are; export it again"
            raise Unsupported(message, hint=hint, code="CFG701")
        if self.functions:
            names = ", ".join(repr(name) for name in self.functions)
            message = f"the module of XlaCallModule calls functions of the graph: {names}"
            hint = "export it without call_tf, or with call_tf_graph=False"
            raise Unsupported(message, hint=hint, code="CFG701")
        if self.has_tokens:
            message = "XlaCallModule with has_token_input_output is not supported"
            raise Unsupported(message, hint="export it with a newer jax", code="CFG701")


def module_call(node: Node) -> ModuleCall:
    """The call of a node of XlaCallModule."""

    def texts(name: str) -> tuple[str, ...]:
        return tuple(text.decode("utf-8", "replace") for text in node.attr(name) or ())

    return ModuleCall(
        node.attr("module"),
        node.attr("version"),
        texts("platforms"),
        tuple(function.name for function in node.attr("function_list") or ()),
        bool(node.attr("has_token_input_output")),
        texts("disabled_checks"),
        tuple(dtype.numpy for dtype in node.attr("Tout")),
    )


def run_module(call: ModuleCall, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Execute a module on NumPy arrays.

    Raises Unsupported without jax, or for a module that needs what cfgraph lacks, OpError for
    inputs that do not fit.
    """
    load_jax()
    signature = tuple((tuple(value.shape), value.dtype) for value in map(np.asarray, inputs))
    compiled = _compiled(call, signature)
    with xla_context():
        try:
            return tuple(map(np.asarray, compiled(*inputs)))
        except Exception as error:
            raise OpError(f"XLA: {_reason(error)}") from error


@lru_cache(maxsize=_KEPT)
def _compiled(call: ModuleCall, signature: Signature) -> Callable[..., Sequence[Any]]:
    """The executable of a module for the shapes and types of its inputs."""
    call.require_supported()
    index = call.platform_index

    def work() -> Callable[..., Sequence[Any]]:
        jax = load_jax()
        with xla_context():
            _register_solvers()
            module = _static_module(call, index, signature)
            primitive = _call_primitive()
            arguments = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in signature]
            function = jax.jit(lambda *values: primitive.bind(*values, module=module))
            compiled: Callable[..., Sequence[Any]] = function.lower(*arguments).compile()
            return compiled

    try:
        return run_interruptibly(work)
    except CfgraphError:
        raise
    except Exception as error:
        raise OpError(f"XLA does not compile the module: {_reason(error)}") from error


def _register_solvers() -> None:
    """Register the routines of LAPACK that modules call, as jax does before it lowers a call."""
    with suppress(ImportError, AttributeError):
        from jax._src.lax.linalg import initialize_lapack

        initialize_lapack()


@contextmanager
def opened_module(data: bytes) -> Iterator[Any]:
    """The MLIR module of a portable artifact. Raises Unsupported without jax, OpError."""
    load_jax()
    from jax.interpreters import mlir
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    with mlir.make_ir_context() as context, ir.Location.unknown():
        try:
            module = stablehlo.deserialize_portable_artifact(context, data)
        except Exception as error:
            hint = "it may need a newer jax, or be damaged"
            message = f"the module is not a portable artifact of StableHLO: {_reason(error)}"
            raise OpError(message, hint=hint) from None
        require_shallow_regions(module)
        yield module


def _static_module(call: ModuleCall, index: int, signature: Signature) -> _StaticModule:
    """The module for inputs of a signature, refined if it has dynamic shapes."""
    from jax.interpreters import mlir
    from jaxlib.mlir import ir

    with opened_module(call.data) as module:
        _require_single_device(module)
        require_shallow_calls(module)
        main: Any = ir.SymbolTable(module.operation)["main"]
        expected = list(main.type.inputs)
        has_index = len(call.platforms) > 1
        _require_fitting(expected[has_index:], signature)
        types = [_tensor_type(shape, dtype) for shape, dtype in signature]
        is_dynamic = types != expected
        if is_dynamic:
            _wrap_main(module, main, types, index if has_index else None)
        data = mlir.module_to_bytecode(module)
        static = module
        if is_dynamic:
            data = import_module("jaxlib._jax").mlir.refine_polymorphic_shapes(
                data,
                enable_shape_assertions="shape_assertions" not in call.disabled_checks,
                validate_static_shapes=True,
                enable_shardy=True,
            )
            static = ir.Module.parse(data)
            main = ir.SymbolTable(static.operation)["main"]
        require_safe_calls(static)
        shapes = [tuple(ir.RankedTensorType(result).shape) for result in main.type.results]
        return _StaticModule(data, tuple(zip(shapes, call.output_types, strict=True)))


def _require_single_device(module: Any) -> None:
    """Raise Unsupported for a module of several devices, or with calls back into the graph."""
    from jaxlib.mlir import ir

    attributes = module.operation.attributes
    for name in ("mhlo.num_partitions", "mhlo.num_replicas"):
        count = ir.IntegerAttr(attributes[name]).value if name in attributes else 1
        if count > 1:
            message = f"the module of XlaCallModule runs on several devices ({name} = {count})"
            raise Unsupported(message, hint="export it for one device", code="CFG701")


def _require_fitting(expected: Sequence[Any], signature: Signature) -> None:
    """Raise OpError for inputs of other types or shapes than the arguments of a module."""
    if len(expected) != len(signature):
        message = f"the module has {len(expected)} arguments, got {len(signature)} inputs"
        raise OpError(message)
    from jaxlib.mlir import ir

    for number, (argument, (shape, dtype)) in enumerate(zip(expected, signature, strict=True)):
        if not isinstance(argument, ir.RankedTensorType):
            message = f"argument {number} of the module is no tensor: {argument}"
            raise Unsupported(message, hint="export it with a newer jax", code="CFG701")
        dims = [
            None if argument.is_dynamic_dim(axis) else argument.get_dim_size(axis)
            for axis in range(argument.rank)
        ]
        fits = len(dims) == len(shape) and all(
            dim in (None, size) for dim, size in zip(dims, shape, strict=True)
        )
        if not fits or argument.element_type != _tensor_type((), dtype).element_type:
            message = f"input {number} is {np.dtype(dtype).name}{list(shape)}"
            raise OpError(f"{message}, the module expects {argument}")


def _tensor_type(shape: Sequence[int], dtype: Any) -> Any:
    from jax.interpreters import mlir
    from jaxlib.mlir import ir

    return ir.RankedTensorType.get(list(shape), mlir.dtype_to_ir_type(np.dtype(dtype)))


def _wrap_main(module: Any, main: Any, types: Sequence[Any], index: int | None) -> None:
    """Add a main function of static shapes, which calls the old one with its platform index."""
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import func, stablehlo

    expected, results = list(main.type.inputs), list(main.type.results)
    main.attributes["sym_name"] = ir.StringAttr.get(_WRAPPED)
    main.attributes["sym_visibility"] = ir.StringAttr.get("private")
    with ir.InsertionPoint.at_block_begin(module.body):
        wrapper: Any = func.FuncOp("main", ir.FunctionType.get(list(types), results))
    wrapper.attributes["sym_visibility"] = ir.StringAttr.get("public")
    block = wrapper.add_entry_block()
    with ir.InsertionPoint(block):
        arguments = list(block.arguments)
        if index is not None:
            number: Any = np.asarray(index, np.int32)
            scalar = ir.DenseElementsAttr.get(number)
            arguments.insert(0, stablehlo.constant(scalar))
        converted = [
            value if value.type == needed else stablehlo.convert(needed, value)
            for value, needed in zip(arguments, expected, strict=True)
        ]
        call = func.CallOp(results, ir.FlatSymbolRefAttr.get(_WRAPPED), converted)
        func.ReturnOp(list(call.results))


@dataclass(frozen=True, eq=False)
class _StaticModule:
    """A module without dynamic shapes, as bytecode, and the types of its results."""

    data: bytes
    results: tuple[Any, ...]


@cache
def _call_primitive() -> Any:
    """The jax primitive that calls a module, given as parameter `module`."""
    jax = load_jax()
    from jax.extend.core import Primitive
    from jax.interpreters import mlir
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import func

    primitive = Primitive("stablehlo_module")
    primitive.multiple_results = True

    def results(*_: Any, module: _StaticModule) -> list[Any]:
        return [jax.core.ShapedArray(shape, dtype) for shape, dtype in module.results]

    def lower(context: Any, *arguments: Any, module: _StaticModule) -> Any:
        target = context.module_context
        inner = ir.Module.parse(module.data, target.context)
        main: Any = ir.SymbolTable(inner.operation)["main"]
        types = main.type.results
        name = mlir.merge_mlir_modules(
            target.module, "stablehlo_main", inner, dst_symtab=target.symbol_table
        )
        call = func.CallOp(types, ir.FlatSymbolRefAttr.get(name), list(arguments))
        return call.results

    primitive.def_abstract_eval(results)
    mlir.register_lowering(primitive, lower)
    return primitive


def _reason(error: Exception) -> str:
    """The first line of an error of the compiler, or of MLIR."""
    text = clean_layout(str(error)).strip().partition("\n")[0]
    return text[:_MAX_REASON] or type(error).__name__
