"""Checkpoint ops. Ops that write files are declared but cannot run."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from cfgraph.errors import InvalidInput, UsageError
from cfgraph.ir.graph import Node
from cfgraph.ir.names import decode_key, decode_text
from cfgraph.ir.serde.checkpoint import Checkpoint
from cfgraph.ops.opdef.facts import CompilerSupport, HostPlacement, SideEffects
from cfgraph.ops.opdef.op import Op, OpError
from cfgraph.ops.opdef.resources import Step


class RestoreV2(Op):
    """Read the named tensors from a checkpoint."""

    signature = "prefix: string, tensor_names: string, shape_and_slices: string -> tensors: dtypes"
    attrs = "dtypes: list(type) >= 1"
    effects = SideEffects(stateful=True, reads_only=True, does_io=True)
    placement = HostPlacement(host_only=True)

    @staticmethod
    def kernel(
        xp: ModuleType, dtypes: Any, /, step: Step, prefix: Any, names: Any, slices: Any
    ) -> Any:
        if not names.size == slices.size == len(dtypes):
            counts = f"{names.size} names, {slices.size} slices and {len(dtypes)} types"
            raise OpError(f"expected equal numbers of each: {counts}")
        tensors = _read_slices(step, prefix, names, slices)
        for name, value, dtype in zip(names.flat, tensors, dtypes, strict=True):
            if value.dtype != dtype.numpy:
                message = f"{decode_text(name)} is {value.dtype} in the checkpoint, not {dtype}"
                raise OpError(message)
        values = [value if value.ndim or value.dtype.hasobject else value[()] for value in tensors]
        return values[0] if len(values) == 1 else tuple(values)


def _read_slices(step: Step, prefix: Any, names: Any, slices: Any) -> list[Any]:
    if any(slices.flat):
        raise OpError("reading slices of a checkpointed variable is not supported")
    try:
        checkpoint = Checkpoint(decode_key(prefix.item()), step.require_readable)
        return [checkpoint.read(decode_key(name)) for name in names.flat]
    except (InvalidInput, UsageError) as error:
        location = f"{error.path}: " if error.path else ""
        raise OpError(f"{location}{error.message}", hint=error.hint, code=error.code) from None


class SaveV2(Op):
    """Write named tensors to a checkpoint."""

    signature = "prefix: string, tensor_names: string, shape_and_slices: string, tensors: dtypes ->"
    attrs = "dtypes: list(type) >= 1"
    effects = SideEffects(stateful=True, does_io=True)
    placement = HostPlacement(host_only=True)
    compilation = CompilerSupport(runnable=False)


class MergeV2Checkpoints(Op):
    """Merge several sharded checkpoints into one."""

    signature = "checkpoint_prefixes: string, destination_prefix: string ->"
    attrs = "delete_old_dirs: bool = true, allow_missing_files: bool = false"
    effects = SideEffects(stateful=True, does_io=True)
    placement = HostPlacement(host_only=True)
    compilation = CompilerSupport(runnable=False)


class ShardedFilename(Op):
    """File name of one shard of a checkpoint."""

    signature = "basename: string, shard: int32, num_shards: int32 -> filename: string"
    placement = HostPlacement(host_only=True)

    @classmethod
    def kernel(cls, xp: ModuleType, basename: Any, shard: Any, count: Any) -> Any:
        """Append the shard number and the number of shards to the basename."""
        filename = basename.copy()
        filename[()] = b"%s-%05d-of-%05d" % (basename.item(), shard, count)
        return filename


class DisableCopyOnRead(Op):
    """Marker that disables copy-on-read of a variable; has no effect in this runtime."""

    signature = "resource: resource ->"
    effects = SideEffects(stateful=True, reads_only=True)

    @classmethod
    def run(cls, step: Step, node: Node, *inputs: Any) -> None:
        """Do nothing: the marker has no effect in this runtime."""
