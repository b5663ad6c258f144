"""tf.Example messages: features of a record by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.message import DecodeError

from cfgraph.proto import example_pb2

# the type of the values of a feature, and the values
Feature = tuple[str, Sequence[Any]]
_TYPES = {"bytes_list": "string", "float_list": "float32", "int64_list": "int64"}


def read_example(data: bytes) -> dict[str, Feature] | None:
    """The features of an example that have values, by name; None if it is no such message."""
    try:
        message = example_pb2.Example.FromString(data)
    except DecodeError:
        return None
    return _features(message.features.feature)


def _features(messages: Mapping[str, Any]) -> dict[str, Feature]:
    features = ((name, _feature(message)) for name, message in messages.items())
    return {name: feature for name, feature in features if feature is not None}


def _feature(message: Any) -> Feature | None:
    kind = message.WhichOneof("kind")
    return None if kind is None else (_TYPES[kind], getattr(message, kind).value)
