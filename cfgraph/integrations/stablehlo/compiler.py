"""Compilation of StableHLO modules by XLA, in the child process.

A call of a module is a jax primitive, which is lowered to the module: `jax.jit` compiles it for the
shapes and types of the inputs. A module with dynamic shapes is refined first: a new main function
has the shapes of the inputs, and calls the old one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Final

import numpy as np

from cfgraph.backends.xla.jax_library import load_jax, xla_context
from cfgraph.errors import Unsupported
from cfgraph.integrations.stablehlo.module_reader import opened_module, reason
from cfgraph.integrations.stablehlo.permitted_operations import (
    require_permitted,
    require_shallow_calls,
)
from cfgraph.ops.opdef.op import OpError

_WRAPPED: Final = "_wrapped_main"
# shapes and dtypes of inputs
Signature = tuple[tuple[tuple[int, ...], Any], ...]


@dataclass(frozen=True, slots=True)
class CheckedCall:
    """A module, and what its call decides.

    `platform` is its argument for the index of the platform, or None if it has no such argument.
    """

    data: bytes
    platform: int | None
    checks_shapes: bool
    signature: Signature
    output_types: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class StaticModule:
    """A module without dynamic shapes, as bytecode, and the types of its inputs and results."""

    data: bytes
    signature: Signature
    results: tuple[tuple[list[int], Any], ...]


def static_module(call: CheckedCall) -> StaticModule:
    """The module for the inputs of a call, refined if it has dynamic shapes.

    Raises Unsupported and OpError for a module that is not permitted, or has other inputs.
    """
    from jax.interpreters import mlir
    from jaxlib.mlir import ir

    with opened_module(call.data) as module, xla_context():
        _require_single_device(module)
        main = _checked_main(module, is_static=False)
        expected = list(main.type.inputs)
        _require_fitting(expected[call.platform is not None :], call.signature)
        types = [_tensor_type(shape, dtype) for shape, dtype in call.signature]
        is_dynamic = types != expected
        if is_dynamic:
            _wrap_main(module, main, types, call.platform)
        data = mlir.module_to_bytecode(module)
        if is_dynamic:
            try:
                data = import_module("jaxlib._jax").mlir.refine_polymorphic_shapes(
                    data,
                    enable_shape_assertions=call.checks_shapes,
                    validate_static_shapes=True,
                    enable_shardy=True,
                )
            except Exception as error:
                raise compiler_error(error) from None
        # what was read may differ from what is written, and the last is compiled
        main = _checked_main(ir.Module.parse(data), is_static=True)
        shapes = [list(ir.RankedTensorType(result).shape) for result in main.type.results]
        results = tuple(zip(shapes, call.output_types, strict=True))
        return StaticModule(data, call.signature, results)


def _checked_main(module: Any, *, is_static: bool) -> Any:
    """The main function of a module that is permitted."""
    from jaxlib.mlir import ir

    require_permitted(module, is_static=is_static)
    require_shallow_calls(module)
    functions = ir.SymbolTable(module.operation)
    if "main" not in functions:
        raise OpError("the module has no function 'main'")
    return functions["main"]


def compiled(module: StaticModule) -> Callable[..., Sequence[Any]]:
    """The executable of a module. Raises OpError for what XLA rejects."""
    jax = load_jax()
    with xla_context():
        _register_solvers()
        primitive = _call_primitive()
        arguments = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in module.signature]
        function = jax.jit(lambda *values: primitive.bind(*values, module=module))
        try:
            executable: Callable[..., Sequence[Any]] = function.lower(*arguments).compile()
        except Exception as error:
            raise compiler_error(error) from None
        return executable


def compiler_error(error: Exception) -> OpError:
    """The error of a module that XLA rejects."""
    return OpError(f"XLA does not compile the module: {reason(error)}")


def _register_solvers() -> None:
    """Register the routines of LAPACK that modules call, as jax does before it lowers a call."""
    with suppress(ImportError, AttributeError):
        from jax._src.lax.linalg import initialize_lapack

        initialize_lapack()


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

    def results(*_: Any, module: StaticModule) -> list[Any]:
        return [jax.core.ShapedArray(shape, dtype) for shape, dtype in module.results]

    def lower(context: Any, *arguments: Any, module: StaticModule) -> Any:
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
