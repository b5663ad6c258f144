"""Folders of SavedModels for derived graphs: the graph, its signatures, and copied variables.

DIR/saved_model.pb               of the original, with another graph and other signatures
DIR/variables/variables.index    copied, as the shards
DIR/assets/…                     copied

The result is one that TensorFlow 1 would write: it has no objects (`object_graph_def`), since these
refer to functions of the original. TensorFlow 2 loads it too (`tf.saved_model.load`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cfgraph.errors import InvalidInput, UsageError
from cfgraph.ir.file_io import SAVED_MODELS, StagedFiles
from cfgraph.ir.graph import Graph
from cfgraph.ir.node import node_name
from cfgraph.ir.serde.graph_def import graph_to_proto
from cfgraph.ir.serde.saved_model import (
    ASSET_COLLECTION,
    INIT_COLLECTIONS,
    VARIABLES_PREFIX,
    SavedSignature,
    SignatureTensor,
    asset_entries,
    parse_saved_model,
)
from cfgraph.ir.serde.tensor import encode_shape
from cfgraph.ir.serde.wire import pieces_of

_ASSETS: Final = "assets"
# parts of a folder that describe the graph that was in it
_DESCRIPTIONS: Final = ("fingerprint.pb", "keras_metadata.pb", SAVED_MODELS[1])
_CONTEXTS: Final = ("while_context", "cond_context")
_METHOD: Final = "tensorflow/serving/predict"


@dataclass(frozen=True, slots=True)
class SavedModelOrigin:
    """The SavedModel that a graph was derived from: its bytes, and its folder if it has one."""

    data: bytes
    folder: str | None


def stage_saved_model(
    graph: Graph,
    folder: str | os.PathLike[str],
    origin: SavedModelOrigin,
    files: StagedFiles,
    *,
    signatures: Sequence[SavedSignature] = (),
) -> tuple[str, ...]:
    """Write a graph as a SavedModel when `files` are committed; returns the omitted signatures.

    `signatures` replace those of the same name, or are added. A signature is omitted if the graph
    lacks one of its tensors. Raises UsageError if a file cannot be written or read, InvalidInput if
    the graph cannot restore its variables.
    """
    saved = parse_saved_model(origin.data)
    assert saved is not None
    meta, target = saved.meta_graphs[0], Path(folder)
    _omit_contexts(graph, meta)
    meta.ClearField("graph_def")
    meta.ClearField("object_graph_def")
    meta.DiscardUnknownFields()
    meta.meta_info_def.ClearField("stripped_op_list")
    if meta.saver_def.restore_op_name:
        _require_saver(graph, meta.saver_def)
    for signature in signatures:
        _write_signature(signature, meta.signature_def[signature.name])
    omitted = _omit_missing(graph, meta)
    meta.graph_def.MergeFrom(graph_to_proto(graph))
    files.make_folder(target)
    files.write(target / SAVED_MODELS[0], pieces_of(saved))
    copied = [*_data_files(meta, origin)]
    _copy_files(copied, origin, target, files)
    _remove_stale(target, copied, files)
    return omitted


def _omit_contexts(graph: Graph, meta: Any) -> None:
    """Omit the contexts of control flow, which name its nodes, if the graph lacks a node.

    TensorFlow cannot load a model whose contexts name other nodes.
    """
    if not all(node.name in graph for node in meta.graph_def.node):
        for name in _CONTEXTS:
            meta.collection_def.pop(name, None)


def _require_saver(graph: Graph, saver: Any) -> None:
    """Raise InvalidInput if the graph lacks a node that restores the variables."""
    for name in (saver.restore_op_name, saver.filename_tensor_name):
        if node_name(name) not in graph:
            message = f"the graph lacks {node_name(name)!r}, which restores its variables"
            hint = "write a file (-o FILE.pb), or keep the node (--fetch)"
            raise InvalidInput(message, hint=hint, code="CFG038")


def _write_signature(signature: SavedSignature, proto: Any) -> None:
    """Replace the dense inputs and outputs of a signature; other ones stay."""
    proto.method_name = proto.method_name or _METHOD
    for entries, tensors in ((proto.inputs, signature.inputs), (proto.outputs, signature.outputs)):
        names = {tensor.name for tensor in tensors}
        for name in [name for name in entries if entries[name].name and name not in names]:
            del entries[name]
        for tensor in tensors:
            _write_tensor_info(tensor, entries[tensor.name])


def _write_tensor_info(tensor: SignatureTensor, proto: Any) -> None:
    proto.name, proto.dtype = tensor.tensor, tensor.dtype.number
    proto.ClearField("tensor_shape")
    proto.tensor_shape.SetInParent()
    encode_shape(tensor.shape, proto.tensor_shape)


def _omit_missing(graph: Graph, meta: Any) -> tuple[str, ...]:
    """Omit what names tensors that the graph lacks; returns the names of such signatures."""
    omitted = [
        name
        for name, entry in sorted(meta.signature_def.items())
        if not all(node_name(tensor) in graph for tensor in _tensor_names(entry))
    ]
    for name in omitted:
        del meta.signature_def[name]
    for name in [name for name in INIT_COLLECTIONS if name in meta.collection_def]:
        nodes = meta.collection_def[name].node_list.value
        if not all(node_name(item) in graph for item in nodes):
            del meta.collection_def[name]
    assets = [item for item in asset_entries(meta) if node_name(item.tensor_info.name) in graph]
    meta.collection_def.pop(ASSET_COLLECTION, None)
    del meta.asset_file_def[:]
    meta.asset_file_def.extend(assets)
    return tuple(omitted)


def _tensor_names(signature: Any) -> Iterator[str]:
    for info in (*signature.inputs.values(), *signature.outputs.values()):
        sparse = info.coo_sparse
        names = (sparse.values_tensor_name, sparse.indices_tensor_name)
        yield from filter(None, (info.name, *names, sparse.dense_shape_tensor_name))


def _data_files(meta: Any, origin: SavedModelOrigin) -> Iterator[Path]:
    """Paths of the variables and assets, relative to the folder of the SavedModel."""
    for asset in meta.asset_file_def:
        yield Path(_ASSETS, asset.filename)
    if not meta.saver_def.restore_op_name:
        return
    if origin.folder is None:
        message = "the variables of the SavedModel are not known without its folder"
        raise UsageError(message, hint="name the folder of the SavedModel instead of a file or -")
    folder = Path(origin.folder)
    for path in sorted((folder / VARIABLES_PREFIX.parent).glob(f"{VARIABLES_PREFIX.name}.*")):
        yield path.relative_to(folder)


def _copy_files(
    paths: Iterable[Path], origin: SavedModelOrigin, target: Path, files: StagedFiles
) -> None:
    """Copy files of a SavedModel, unless it is replaced by the result."""
    source = Path(origin.folder or ".")
    if source.resolve() == target.resolve():
        return
    for path in paths:
        _require_inside(source, path)
        _require_inside(target, path)
        files.make_folder((target / path).parent)
        try:
            with (source / path).open("rb") as stream:
                shutil.copyfileobj(stream, files.open(target / path), 1 << 20)
        except OSError as error:
            message = f"the file cannot be copied: {error.strerror}"
            raise UsageError(message, path=source / path) from None


def _require_inside(folder: Path, path: Path) -> None:
    """Raise UsageError for a path out of a folder, by its name or by a link."""
    if not (folder / path).resolve().is_relative_to(folder.resolve()):
        message = f"{str(path)!r} is outside of the folder"
        raise UsageError(message, path=folder, hint="copy the file itself into the folder")


def _remove_stale(target: Path, copied: Sequence[Path], files: StagedFiles) -> None:
    """Remove the variables and descriptions of a SavedModel that the result replaces."""
    variables = (target / VARIABLES_PREFIX.parent).glob(f"{VARIABLES_PREFIX.name}.*")
    for path in (*variables, *(target / name for name in _DESCRIPTIONS)):
        if path.is_file() and path.relative_to(target) not in copied:
            files.remove(path)


def extended_signature(
    signature: SavedSignature, outputs: Iterable[SignatureTensor]
) -> SavedSignature:
    """The signature with further outputs, which replace those of the same name."""
    by_name: Mapping[str, SignatureTensor] = {
        item.name: item for item in (*signature.outputs, *outputs)
    }
    ordered = tuple(by_name[name] for name in sorted(by_name))
    return SavedSignature(signature.name, signature.inputs, ordered)
