"""Checkpoints whose index lies about offsets, sizes, shapes, types, and files."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

import cfgraph
from cfgraph.cli import command_line as cli
from cfgraph.errors import CfgraphError
from cfgraph.ir.serde.checkpoint import table, table_entries
from cfgraph.limits import limited
from cfgraph.proto import tensor_bundle_pb2
from tests.robustness.trial import DOCUMENTED_STATUSES

_LIES = [-(1 << 63), -(1 << 31), -1, 0, 1, 2, 3, 4, 7, 8, 400, 411, 1 << 20, 1 << 31, (1 << 63) - 1]
_DTYPES = [*range(25), 40, 99, 101, 107, 120]
_SECONDS = 1.0


def lie(entry: Any, numbers: random.Random) -> None:
    """Change one field of an entry, often to what fits no other."""
    field = numbers.choice(["offset", "size", "shard_id", "dtype", "shape", "slices", "crc32c"])
    number = numbers.choice(_LIES) + numbers.choice([0, 0, 1, -1])
    if field == "shape":
        _lie_about_shape(entry.shape, numbers)
    elif field == "slices":
        entry.slices.add().extent.add(start=min(max(number, 0), 9))
    elif field == "dtype":
        entry.dtype = numbers.choice(_DTYPES)
    else:
        bits = {"shard_id": 31, "crc32c": 32}.get(field, 63)
        low = 0 if field == "crc32c" else -(1 << bits)
        setattr(entry, field, max(low, min(number, (1 << bits) - 1)))


def _lie_about_shape(shape: Any, numbers: random.Random) -> None:
    change = numbers.randrange(4)
    if change == 0:
        shape.unknown_rank = True
    elif change == 1:
        del shape.dim[:]
    elif change == 2 and shape.dim:
        numbers.choice(shape.dim).size = numbers.choice(_LIES)
    else:
        for _ in range(numbers.choice([1, 2, 64, 3000])):
            shape.dim.add(size=numbers.choice([0, 1, 1, 1, 1 << 40]))


def lying_index(index: bytes, numbers: random.Random) -> bytes:
    """An index with some lies; its checksums are right."""
    entries = dict(table_entries(index))
    for _ in range(numbers.choice([1, 1, 2, 5])):
        key = numbers.choice(sorted(entries))
        kind = tensor_bundle_pb2.BundleEntryProto if key else tensor_bundle_pb2.BundleHeaderProto
        message = kind.FromString(entries[key])
        action = numbers.randrange(10)
        if action == 0 and key:
            del entries[key]
        elif action == 1:
            other = numbers.choice(sorted(entries))
            entries[key], entries[other] = entries[other], entries[key]
        elif not key:
            message.num_shards = max(-(1 << 31), min(numbers.choice(_LIES), (1 << 31) - 1))
            entries[key] = message.SerializeToString()
        else:
            lie(message, numbers)
            entries[key] = message.SerializeToString()
    return table(sorted(entries.items()))


def status_of_restore(model: Path) -> int:
    try:
        with limited(max_memory=64 << 20):
            cfgraph.restore(model)
    except CfgraphError as error:
        return error.exit_code
    return 0


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 9))]
)
def test_an_index_that_lies_is_an_error_or_other_values(
    seed: int, fixtures: Path, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    shutil.copytree(fixtures / "saved_model", model)
    index = model / "variables" / "variables.index"
    true, numbers = index.read_bytes(), random.Random(seed)
    for number in range(100):
        index.write_bytes(lying_index(true, numbers))
        start = time.process_time()
        assert status_of_restore(model) in DOCUMENTED_STATUSES
        if number % 10 == 0:
            line = ["run", str(model), "--feed", "x=[[1,2]]", "--quiet"]
            assert cli.run(line) in DOCUMENTED_STATUSES
        assert time.process_time() - start < _SECONDS
