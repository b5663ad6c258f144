"""Outputs by name: `node:output:i` in the body of a function is a flat port in a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cfgraph.errors import InvalidInput, Unsupported
from cfgraph.ir import registry
from cfgraph.ir.dtypes import DType
from cfgraph.ir.functions import Function
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.signature import Arg, Signature


class Ports:
    """The flat ports of outputs that are called by name, and back."""

    def __init__(self, library: Mapping[str, Function]) -> None:
        self.library = library
        self._signatures: dict[str, Signature | None] = {}
        self._simple: dict[str, dict[str, int]] = {}

    def knows(self, op: str) -> bool:
        """True if `op` is an op or a function of the library."""
        return self.signature(op) is not None

    def signature(self, op: str) -> Signature | None:
        """The signature of an op or function, if it is known."""
        if op in self._signatures:
            return self._signatures[op]
        function, known = self.library.get(op), registry.lookup(op)
        found: Signature | None = None
        if function is not None:
            body = function.definition
            found = Signature.of(body.inputs, body.outputs, body.attr_defs)
        elif known is not None:
            found = known.parsed()
        self._signatures[op] = found
        if found is not None and found.simple_outputs is not None:
            self._simple[op] = {arg.name: port for port, arg in enumerate(found.outputs)}
        return found

    def find(self, node: Node, name: str, index: int) -> int | None:
        """The port of output `name:index`, or None."""
        simple = self._simple.get(node.op)
        if simple is not None:
            return simple.get(name) if index == 0 else None
        for arg, start, count in self._spans(node):
            if arg.name == name:
                return start + index if index < count else None
        return None

    def text(self, output: Output) -> str:
        """An output as a function's body writes it.

        Raises Unsupported where the op is not known.
        """
        node, port = output
        for arg, start, count in self._spans(node):
            if start <= port < start + count:
                return f"{node.name}:{arg.name}:{port - start}"
        message = f"op {node.op!r} is not known, so what its outputs are called is not either"
        raise Unsupported(message, node=node, code="CFG135")

    def dtype(self, output: Output) -> DType | None:
        """The type of an output, also of a call; None if it is not known."""
        node, port = output
        if node.op not in self.library:
            return output.dtype
        for arg, start, count in self._spans(node):
            if start <= port < start + count:
                signature = self.signature(node.op)
                return signature.arg_types(arg, node.attrs)[port - start] if signature else None
        return None

    def _spans(self, node: Node) -> Iterator[tuple[Arg, int, int]]:
        signature = self.signature(node.op)
        start = 0
        for arg in signature.outputs if signature else ():
            try:
                count = len(signature.arg_types(arg, node.attrs)) if signature else 0
            except ValueError as error:
                raise InvalidInput(f"{node.op}: {error}", node=node, code="CFG110") from None
            yield arg, start, count
            start += count
