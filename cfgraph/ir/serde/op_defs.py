"""Files of OpDefs: signatures of ops that have no class here."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

from google.protobuf.message import DecodeError

from cfgraph.errors import CfgraphError, InvalidInput
from cfgraph.ir.file_io import decompress, read_file
from cfgraph.ir.serde.containers import declare_ops, first_field, parse_text
from cfgraph.ir.serde.saved_model import parse_saved_model
from cfgraph.proto import meta_graph_pb2, op_def_pb2

_FIELD: Final = "op"


def declare_ops_of_file(path: str | os.PathLike[str]) -> list[str]:
    """Declare the ops of an OpList, text or binary, or of a SavedModel; returns their names.

    They are known to the process from then on. Ops that are known without the file are skipped.
    Raises InvalidInput for a file without OpDefs, UsageError for an op that another file declares
    with a different signature.
    """
    try:
        return declare_ops(_op_defs(decompress(read_file(path))), strict=True)
    except CfgraphError as error:
        error.path = error.path or str(path)
        raise


def _op_defs(data: bytes) -> list[Any]:
    if first_field(data) == _FIELD:
        return [*parse_text(data, op_def_pb2.OpList()).op]
    saved = parse_saved_model(data)
    if saved is not None:
        return [*saved.meta_graphs[0].meta_info_def.stripped_op_list.op]
    readers: tuple[Callable[[], Any], ...] = (
        lambda: op_def_pb2.OpList.FromString(data),
        lambda: meta_graph_pb2.MetaGraphDef.FromString(data).meta_info_def.stripped_op_list,
    )
    for read in readers:
        try:
            found = [*read().op]
        except (DecodeError, RecursionError):
            continue
        if found and all(item.name.isidentifier() for item in found):
            return found
    message_text = "found no OpDefs"
    hint = "an OpList in text form starts with `op {`; a SavedModel contains the ops of its graph"
    raise InvalidInput(message_text, hint=hint, code="CFG003")
