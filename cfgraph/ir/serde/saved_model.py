"""SavedModel contents next to the graph: signatures, assets, and sources of its initial state."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from cfgraph.ir.dtypes import DType
from cfgraph.ir.file_io import decompress
from cfgraph.ir.serde import containers
from cfgraph.ir.serde.tensor import decode_shape
from cfgraph.ir.serde.wire import parse_message
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.proto import meta_graph_pb2, saved_model_pb2

DEFAULT_SIGNATURE: Final = "serving_default"
VARIABLES_PREFIX: Final = Path("variables", "variables")
_UTF8_BOM: Final = b"\xef\xbb\xbf"
_INIT_SIGNATURE: Final = "__saved_model_init_op"
INIT_COLLECTIONS: Final = ("saved_model_main_op", "legacy_init_op")
ASSET_COLLECTION: Final = "saved_model_assets"
_INTERNAL: Final = re.compile(r"__saved_model_\w+_op")


class Saver(NamedTuple):
    """The node of a MetaGraphDef that restores its variables, and the tensor to feed.

    The tensor is fed with the prefix of the checkpoint.
    """

    restore: str
    prefix: str


class SignatureTensor(NamedTuple):
    """An input or output of a signature: its name there, and the tensor of the graph."""

    name: str
    tensor: str
    dtype: DType
    shape: Shape


@dataclass(frozen=True, slots=True)
class SavedSignature:
    """A named entry point of a SavedModel, with inputs and outputs sorted by name."""

    name: str
    inputs: tuple[SignatureTensor, ...]
    outputs: tuple[SignatureTensor, ...]


class Asset(NamedTuple):
    """A file in the folder `assets`, and the tensor that is fed its path."""

    tensor: str
    filename: str


@dataclass(frozen=True, slots=True)
class SavedModelContents:
    """Signatures by name, the saver, the initializer, and the assets of a SavedModel."""

    signatures: Mapping[str, SavedSignature] = field(default_factory=dict)
    saver: Saver | None = None
    initializer: str | None = None
    assets: tuple[Asset, ...] = ()

    @property
    def default_signature(self) -> SavedSignature | None:
        """`serving_default`, or the only signature; None if neither exists."""
        if DEFAULT_SIGNATURE in self.signatures or len(self.signatures) != 1:
            return self.signatures.get(DEFAULT_SIGNATURE)
        return next(iter(self.signatures.values()))


def parse_saved_model(data: bytes) -> Any | None:
    """A SavedModel in binary or text form, or None for data of another format."""
    saved, data = saved_model_pb2.SavedModel(), decompress(data).removeprefix(_UTF8_BOM)
    if data[:1] == b"\x08":
        parse_message(saved, data, "SavedModel")
    elif containers.first_field(data) in saved.DESCRIPTOR.fields_by_name:
        containers.parse_text(data, saved)
    return saved if saved.meta_graphs else None


def read_contents(data: bytes) -> SavedModelContents | None:
    """Contents of a SavedModel in binary or text form, or None for data of another format."""
    saved = parse_saved_model(data)
    if saved is None:
        return None
    meta = saved.meta_graphs[0]
    saver = meta.saver_def
    has_saver = saver.restore_op_name and saver.filename_tensor_name
    return SavedModelContents(
        {
            name: SavedSignature(name, _tensors(entry.inputs), _tensors(entry.outputs))
            for name, entry in sorted(meta.signature_def.items())
            if not _INTERNAL.fullmatch(name)
        },
        Saver(saver.restore_op_name, saver.filename_tensor_name) if has_saver else None,
        _initializer(meta),
        tuple(
            Asset(entry.tensor_info.name, entry.filename)
            for entry in asset_entries(meta)
            if entry.tensor_info.name
        ),
    )


def asset_entries(meta: Any) -> list[Any]:
    """The entries of assets, as TensorFlow's loader finds them: TensorFlow 1 has a collection."""
    entries = [*meta.asset_file_def]
    if not entries and ASSET_COLLECTION in meta.collection_def:
        for value in meta.collection_def[ASSET_COLLECTION].any_list.value:
            entry = parse_message(meta_graph_pb2.AssetFileDef(), value.value, "AssetFileDef")
            entries += [entry] * (entry not in entries)
    return entries


def _tensors(entries: Mapping[str, Any]) -> tuple[SignatureTensor, ...]:
    """The dense tensors of a signature; sparse and composite ones have no single tensor."""
    named: Iterable[tuple[str, Any]] = sorted(entries.items())
    return tuple(
        SignatureTensor(name, info.name, DType.from_number(info.dtype), _shape(info))
        for name, info in named
        if info.name
    )


def _shape(info: Any) -> Shape:
    return decode_shape(info.tensor_shape) if info.HasField("tensor_shape") else UNKNOWN_SHAPE


def _initializer(meta: Any) -> str | None:
    """The node that initializes tables and resources, as TensorFlow's loader finds it."""
    if _INIT_SIGNATURE in meta.signature_def:
        outputs = meta.signature_def[_INIT_SIGNATURE].outputs
        if _INIT_SIGNATURE in outputs and outputs[_INIT_SIGNATURE].name:
            return str(outputs[_INIT_SIGNATURE].name)
    for name in INIT_COLLECTIONS:
        nodes = [*meta.collection_def[name].node_list.value] if name in meta.collection_def else []
        if len(nodes) == 1:
            return str(nodes[0])
    return None


@dataclass(frozen=True, slots=True)
class StateSources:
    """Sources of a SavedModel's initial state, at a path: a folder, or a file in it.

    `saver` restores the variables from the checkpoint `prefix`; then `initializer` runs, with the
    paths of the assets fed. Each is None if there is none.
    """

    path: str
    saver: Saver | None
    initializer: str | None
    assets: tuple[Asset, ...] = ()

    @property
    def folder(self) -> str:
        """The folder of the SavedModel."""
        return self.path if os.path.isdir(self.path) else str(Path(self.path).parent)

    @property
    def prefix(self) -> str:
        """The prefix of the checkpoint with the variables."""
        return str(Path(self.folder) / VARIABLES_PREFIX)

    @property
    def origin(self) -> str:
        """The source of the variables, or of other state, as people name it."""
        return self.path if self.saver is None else self.prefix

    @property
    def owns_folder(self) -> bool:
        """True if the path means the whole folder, so that a graph may read files in it."""
        return os.path.isdir(self.path)


def saved_state(
    path: str | os.PathLike[str], contents: SavedModelContents | None
) -> StateSources | None:
    """Sources of the state of the SavedModel at `path`, or None if it has none.

    That includes a SavedModel whose variables are missing.
    """
    if contents is None:
        return None
    saved = StateSources(str(path), contents.saver, contents.initializer, contents.assets)
    index = f"{VARIABLES_PREFIX.as_posix()}.index"
    if saved.saver is not None:
        return saved if Path(saved.folder, index).exists() else None
    return None if saved.initializer is None else saved
