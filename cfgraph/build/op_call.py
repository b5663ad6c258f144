"""Creation of nodes of any op from Python values: `MatMul(x, w, transpose_a=True)`."""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cfgraph.build.conversions import (
    as_array,
    as_attr,
    as_undeclared_attr,
    natural_dtype,
    nested_elements,
)
from cfgraph.build.tensor import BuilderTensor, Operation, TensorOperators
from cfgraph.build.user_frame import misuse_error
from cfgraph.ir import dtypes
from cfgraph.ir.attrs import TensorValue as Content
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.names import did_you_mean
from cfgraph.ir.signature import ArgDef, Signature
from cfgraph.ops.opdef.op import lookup

if TYPE_CHECKING:
    from cfgraph.build.body import BodyBuilder


def call_op(body: BodyBuilder, op: str, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Add a node; `named` are inputs and attributes by name, and `name`.

    Returns its output; several as a named tuple, a list output as a tuple, none as the operation.
    """
    definition = lookup(op)
    if definition is None:
        message = f"there is no op {op!r}"
        raise misuse_error(message)
    return _OpCall(body, op, definition.parsed(), args, named).make()


def add_constant(
    body: BodyBuilder, value: Any, dtype: DType | None, name: str, what: str = ""
) -> Output:
    """Add a constant of a type, by default the natural type of the value; `what` starts
    messages.
    """
    resolved = dtype or natural_dtype([value])
    if resolved is None:
        message = f"no element type can represent {value!r}"
        raise misuse_error(message)
    return body.const(Content(as_array(value, resolved, what)), name)


class _OpCall:
    """A call of one op: inputs by argument, and the attributes inferred so far."""

    def __init__(
        self,
        body: BodyBuilder,
        op: str,
        signature: Signature,
        args: Sequence[Any],
        named: Mapping[str, Any],
    ) -> None:
        self.body = body
        self.op = op
        self.signature = signature
        self.name = body.name_for(named.get("name") or op.lstrip("_"))
        self.values: dict[str, Any] = {}
        self.attrs: dict[str, Any] = {}
        self._bind_positional(args)
        for key, value in named.items():
            self._bind_named(key, value)

    def make(self) -> Any:
        """Infer the remaining attributes, add the node, and return its outputs."""
        self._require_all()
        for arg in self.signature.inputs:
            if self._is_list(arg):
                self._bind_list(arg)
        for attr in dict.fromkeys(arg.type_attr for arg in self.signature.inputs):
            if attr is not None and self.signature.attrs[attr].kind == "type":
                self._infer_type(attr)
        inputs = [item for arg in self.signature.inputs for item in self._inputs(arg)]
        node = self.body.add(self.op, inputs, self.name, self.attrs)
        return _wrap_outputs(self.body, node, self.signature)

    # -- arguments -------------------------------------------------------------------------------

    def _bind_positional(self, args: Sequence[Any]) -> None:
        inputs = self.signature.inputs
        if len(args) > len(inputs):
            names = f" ({', '.join(arg.name for arg in inputs)})" if inputs else ""
            count = f"{len(inputs)} input{'s' * (len(inputs) != 1)}"
            message = f"{self.op} takes {count}{names}, got {len(args)}"
            listed = any(self._is_list(arg) for arg in inputs)
            hint = "pass the tensors of a list in brackets" if listed else None
            raise misuse_error(message, hint=hint or "pass attributes by name")
        self.values.update((arg.name, value) for arg, value in zip(inputs, args, strict=False))

    def _bind_named(self, key: str, value: Any) -> None:
        declared = self.signature.attrs.get(key)
        if key == "name":
            return
        if key in self.values:
            message = f"{self.op}: the input {key!r} is passed twice"
            raise misuse_error(message)
        if any(arg.name == key for arg in self.signature.inputs):
            self.values[key] = value
        elif declared is not None:
            self.attrs[key] = as_attr(self.op, declared, value)
        elif key.startswith("_"):
            self.attrs[key] = as_undeclared_attr(value)
        else:
            known = [*(arg.name for arg in self.signature.inputs), *self.signature.attrs, "name"]
            message = f"{self.op} has no input or attribute {key!r}"
            raise misuse_error(
                message, hint=did_you_mean(key, known) or f"it has {', '.join(known)}"
            )

    def _require_all(self) -> None:
        inferable: set[str | None] = set()
        for arg in self.signature.inputs:
            inferable.update((arg.type_attr, arg.count))
            value = self.values.get(arg.name)
            if any(isinstance(item, Operation) for item in nested_elements(value)):
                message = f"{self.op}: {arg.name!r} is an operation, which has no value to read"
                raise misuse_error(message, hint="wait for it: `with builder.control(operation):`")
            if value is None:
                message = f"{self.op} requires the input {arg.name!r}"
                names = ", ".join(item.name for item in self.signature.inputs)
                raise misuse_error(message, hint=f"its inputs are {names}")
        for attr in self.signature.attrs.values():
            if not attr.has_default and attr.name not in self.attrs and attr.name not in inferable:
                message = f"{self.op} requires the attribute {attr.name!r}"
                raise misuse_error(message, hint=f"{self.op}(…, {attr.name}=…), a {attr.kind}")

    # -- types -----------------------------------------------------------------------------------

    def _is_list(self, arg: ArgDef) -> bool:
        listed = arg.type_attr and self.signature.attrs[arg.type_attr].kind == "list(type)"
        return bool(arg.count or listed)

    def _bind_list(self, arg: ArgDef) -> None:
        """Infer the count of a list, and its types if each element has its own."""
        items = self.values[arg.name]
        if isinstance(items, str | bytes | TensorOperators) or not hasattr(items, "__iter__"):
            message = f"{self.op} expects a list for the input {arg.name!r}"
            raise misuse_error(message, hint=f"put {items!r} in brackets")
        items = self.values[arg.name] = list(items)
        if arg.count:
            count = self.attrs.setdefault(arg.count, len(items))
            if count != len(items):
                message = f"{self.op} expects {count} tensors for {arg.name!r}, got {len(items)}"
                raise misuse_error(message)
        counted = self.signature.attrs[arg.count or arg.type_attr or ""]
        if counted.minimum is not None and len(items) < counted.minimum:
            expected = f"a list of length {counted.minimum} or more for {arg.name!r}"
            message = f"{self.op} expects {expected}, got {len(items)}"
            raise misuse_error(message)
        if not arg.count and arg.type_attr and arg.type_attr not in self.attrs:
            types = [_first_tensor_dtype(item) or natural_dtype([item]) for item in items]
            self.attrs[arg.type_attr] = tuple(types)

    def _infer_type(self, attr: str) -> None:
        """Infer a missing type attribute from tensors or from the natural type of values."""
        declared = self.signature.attrs[attr]
        if attr not in self.attrs:
            args = [arg for arg in self.signature.inputs if arg.type_attr == attr]
            items = [item for arg in args for item in self._items(arg)]
            known = next(
                (candidate for item in items if (candidate := _first_tensor_dtype(item))), None
            )
            allowed = declared.allowed
            dtype = known or (natural_dtype(items, allowed) if items else None)
            if dtype is None and items:
                message = f"{self.op} does not accept {items[0]!r} for {args[0].name!r}"
                raise misuse_error(
                    message, hint=f"allowed types: {', '.join(map(str, allowed or ()))}"
                )
            if dtype is not None:
                self.attrs[attr] = dtype
        chosen = self.attrs.get(attr)
        if declared.allowed is not None and chosen is not None and chosen not in declared.allowed:
            named = ", ".join(a.name for a in self.signature.inputs if a.type_attr == attr)
            message = f"{self.op} does not accept {chosen} for {named}"
            hint = f"insert a Cast to one of {', '.join(map(str, declared.allowed))}"
            raise misuse_error(message, hint=hint)

    def _items(self, arg: ArgDef) -> list[Any]:
        value = self.values[arg.name]
        return list(value) if self._is_list(arg) else [value]

    # -- inputs ----------------------------------------------------------------------------------

    def _inputs(self, arg: ArgDef) -> Iterator[Output]:
        items = self._items(arg)
        types = self.signature.arg_types(arg, self.attrs) if items else []
        if len(types) != len(items):
            message = f"{self.op} expects {len(types)} tensors for {arg.name!r}, got {len(items)}"
            raise misuse_error(message)
        single = not self._is_list(arg)
        for index, (item, dtype) in enumerate(zip(items, types, strict=True)):
            what = arg.name if single else f"{arg.name}_{index}"
            yield self._input(item, dtype.base, what)

    def _input(self, item: Any, dtype: DType, what: str) -> Output:
        """Convert one input; `what` is the argument name, with an index in a list."""
        if dtype is dtypes.resource and hasattr(item, "handle"):
            item = item.handle
        if isinstance(item, TensorOperators):
            return self.body.resolve(item.as_tensor())
        name = f"{self.name}/{what}"
        if isinstance(item, list | tuple) and _first_tensor_dtype(item) is not None:
            parts = [self._input(element, dtype, f"{what}/{i}") for i, element in enumerate(item)]
            attrs = {"N": len(parts), "T": dtype}
            return Output(self.body.add("Pack", parts, name, attrs))
        return add_constant(self.body, item, dtype, name, f"{self.op}, input {what!r}: ")


def _first_tensor_dtype(value: Any) -> DType | None:
    """The type of the first tensor in a value, or None if there is none."""
    if isinstance(value, TensorOperators):
        return value.dtype.base
    if isinstance(value, list | tuple):
        return next((dtype for item in value if (dtype := _first_tensor_dtype(item))), None)
    return None


def _wrap_outputs(body: BodyBuilder, node: Node, signature: Signature) -> Any:
    """The outputs of a node as returned to the caller."""
    outputs: list[Any] = []
    port = 0
    for arg in signature.outputs:
        types = signature.arg_types(arg, node.attrs)
        tensors = tuple(BuilderTensor(body, Output(node, port + i)) for i in range(len(types)))
        listed = arg.count or (arg.type_attr and signature.attrs[arg.type_attr].kind != "type")
        outputs.append(tensors if listed else tensors[0])
        port += len(types)
    if not outputs:
        return Operation(body, node)
    if len(outputs) == 1:
        return outputs[0]
    return _outputs_class(node.op, tuple(arg.name for arg in signature.outputs))(*outputs)


@functools.cache
def _outputs_class(op: str, fields: tuple[str, ...]) -> Any:
    """The named tuple class for an op's outputs."""
    return namedtuple(op.lstrip("_"), fields, rename=True)
