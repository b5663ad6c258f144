"""Names that the signature of a SavedModel gives to feeds and fetches."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from cfgraph.analysis.loops.frames import frames
from cfgraph.cli.output import note
from cfgraph.console.graph_files import Source, saved_model_contents
from cfgraph.console.node_names import NodeNames
from cfgraph.errors import CfgraphError, UsageError
from cfgraph.ir.graph import Graph, Output
from cfgraph.ir.names import did_you_mean, first_names
from cfgraph.ir.node import node_name
from cfgraph.ir.serde.file_contents import read_graph_file
from cfgraph.ir.serde.saved_model import (
    SavedModelContents,
    SavedSignature,
    SignatureTensor,
    read_contents,
)

# names that a note lists
_MAX_LISTED: Final = 6


@dataclass(frozen=True, slots=True)
class SignatureNames:
    """The tensors of the inputs and outputs of one signature, by the names that it gives them.

    On a command line, the mappings also find a node of the graph, `nodes`, by the end of its name.
    `unselected_owners` are the names that only other signatures have, with the names of these.
    """

    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    nodes: NodeNames = field(default_factory=lambda: NodeNames(Graph()))
    selected: SavedSignature | None = None
    unselected_owners: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of_all(cls, graph: Graph, signatures: Iterable[SavedSignature]) -> SignatureNames:
        """Return the names of several signatures, as `SIGNATURE/NAME`."""
        inputs, outputs = dict[str, str](), dict[str, str]()
        for signature in signatures:
            for names, tensors in ((inputs, signature.inputs), (outputs, signature.outputs)):
                found = _in_graph(graph, tensors)
                names.update({f"{signature.name}/{name}": found[name] for name in found})
        return cls.completed(NodeNames(graph), inputs, outputs)

    @classmethod
    def completed(
        cls, nodes: NodeNames, inputs: Mapping[str, str], outputs: Mapping[str, str], *more: Any
    ) -> SignatureNames:
        """Return names that also find the nodes of a graph by the ends of their names."""
        found = _CompletedNames("outputs", outputs, nodes.outside_functions)
        return cls(_CompletedNames("inputs", inputs, nodes.in_run), found, nodes, *more)

    def with_names(
        self, inputs: Mapping[str, str], outputs: Mapping[str, str] | None = None
    ) -> SignatureNames:
        """Return the names with others of tensors, which take precedence."""
        merged = {**self.inputs, **inputs}, {**self.outputs, **(outputs or {})}
        completed = SignatureNames.completed(self.nodes, *merged)
        return replace(self, inputs=completed.inputs, outputs=completed.outputs)

    def in_graph(self, graph: Graph) -> SignatureNames:
        """Return the names of tensors that another graph has, too."""
        kept = [
            {name: tensor for name, tensor in names.items() if _has_tensor(graph, tensor)}
            for names in (self.inputs, self.outputs)
        ]
        return SignatureNames.completed(NodeNames(graph), *kept)

    def tensor(self, name: str) -> str:
        """Return the tensor that a name of the signature stands for, or the complete name."""
        for names in (self.inputs, self.outputs):
            if name in names:
                return names[name]
        return self.nodes.in_function(name) or name

    def subject(self, text: str) -> str:
        """Return the complete name of a loop or node; loops also have the path that a run prints.

        Others remain as they are.
        """
        if any(frame.has_name(text) for frame in frames(self.nodes.graph).all[1:]):
            return text
        name = text.removeprefix("/")
        is_node = node_name(name) in self.nodes.graph
        complete = (None if is_node else self.nodes.loop(text)) or self.tensor(name)
        if complete == name and not is_node:
            complete = self.nodes.loop_in_scope(name) or name
        return text if complete == name else complete

    def output_tensors(self, listed: Sequence[str]) -> list[str]:
        """Return the tensors that names of outputs stand for. Raises UsageError."""
        self.require_selected(listed)
        return [self.outputs.get(name, name) for name in listed]

    def require_selected(self, names: Iterable[str]) -> None:
        """Raise UsageError for a name that only signatures have which are not selected."""
        for name in names:
            if owners := self.unselected_owners.get(name):
                message = f"{name!r} is a name of the signature {' and of '.join(owners)}"
                options = " or ".join(f"--signature {owner}" for owner in owners)
                raise UsageError(message, hint=f"add {options}")

    def listing(self, without: Container[str] = ()) -> str:
        """List the names with their tensors, except for some tensors, for a note."""
        pairs = {**self.outputs, **self.inputs}.items()
        listed = [f"{name} is {tensor}" for name, tensor in pairs if tensor not in without]
        return first_names(listed, _MAX_LISTED)

    def labels(self, graph: Graph) -> dict[Output, str]:
        """Return the names of the output tensors."""
        return {graph.tensor(tensor): name for name, tensor in reversed([*self.outputs.items()])}


class _CompletedNames(dict[str, str]):
    """Tensors by the names of a signature, and by the ends of their own names."""

    def __init__(
        self, kind: str, names: Mapping[str, str], complete: Callable[[str], str | None]
    ) -> None:
        super().__init__(names)
        self._kind = kind
        self._complete = complete

    def get(self, name: str, default: Any = None) -> Any:
        """Return the tensor of a name. Raises UsageError for the end of several names."""
        if name in self:
            return self[name]
        try:
            return self._complete(name) or default
        except UsageError as error:
            if self:
                listed = first_names([*self], _MAX_LISTED)
                error.hint = f"{self._kind} of the signature: {listed}; or {error.hint}"
            raise


def signature_names(
    source: Source,
    requested: str | None = None,
    variables: str | None = None,
    *,
    short: bool = True,
) -> SignatureNames:
    """Return the names of the requested or the default signature; none for other graphs.

    A graph derived from a SavedModel has the signatures of the SavedModel that provides its
    `variables`. The names find nodes by the ends of their names, which are errors unless `short`.
    Raises UsageError if there is no such signature.
    """
    contents = saved_model_contents(source) or _contents_at(variables)
    signature = _find_signature(contents, requested)
    others = contents.signatures.values() if contents else ()
    graph, owners = source.graph, dict[str, list[str]]()
    inputs = _in_graph(graph, signature.inputs) if signature else {}
    outputs = _in_graph(graph, signature.outputs) if signature else {}
    for other in others:
        for name in {item.name for item in (*other.inputs, *other.outputs)} - {*inputs, *outputs}:
            if other is not signature and not _has_tensor(graph, name):
                owners.setdefault(name, []).append(other.name)
    results = [graph.tensor(tensor).node for tensor in outputs.values()]
    nodes = NodeNames(graph, results, short=short)
    return SignatureNames.completed(nodes, inputs, outputs, signature, owners)


def names_tensors(path: str, graph: Graph) -> bool:
    """True for a SavedModel whose signatures name tensors of a graph."""
    contents = _contents_at(path)
    signatures = contents.signatures.values() if contents else ()
    return any(_in_graph(graph, (*item.inputs, *item.outputs)) for item in signatures)


def _contents_at(path: str | None) -> SavedModelContents | None:
    if path is None or not os.path.isdir(path):
        return None
    try:
        return read_contents(read_graph_file(path))
    except CfgraphError:
        return None  # a checkpoint, or an error that restoring the variables reports


def _find_signature(
    contents: SavedModelContents | None, requested: str | None
) -> SavedSignature | None:
    if requested is None:
        return contents.default_signature if contents else None
    if contents is None:
        message = f"signature {requested!r} requires a SavedModel"
        hint = "name tensors of the graph; or pass the SavedModel with --variables FOLDER"
        raise UsageError(message, hint=hint)
    if requested not in contents.signatures:
        known = ", ".join(contents.signatures) or "none"
        hint = did_you_mean(requested, contents.signatures) or f"its signatures: {known}"
        raise UsageError(f"the SavedModel has no signature {requested!r}", hint=hint)
    return contents.signatures[requested]


def _in_graph(graph: Graph, tensors: tuple[SignatureTensor, ...]) -> dict[str, str]:
    """Return the tensors that the graph has: a pass may have removed some."""
    return {item.name: item.tensor for item in tensors if _has_tensor(graph, item.tensor)}


def _has_tensor(graph: Graph, name: str) -> bool:
    try:
        graph.tensor(name)
    except UsageError:
        return False
    return True


def note_lost_names(names: SignatureNames, path: str) -> None:
    """Note the tensors that a signature names, for a written file, which has no signatures."""
    if os.path.isdir(path) or not (names.inputs or names.outputs):
        return
    note(f"note: {path} has no signatures: {names.listing()};\n  -o FOLDER/ writes a SavedModel")
