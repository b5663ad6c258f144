"""tf.Example messages: features of a record by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError

from cfgraph.proto import example_pb2

# the type of the values of a feature, or an empty text if it has none, and the values
Feature = tuple[str, Sequence[Any]]
_EMPTY: Final[Feature] = ("", ())
_TYPES = {"bytes_list": "string", "float_list": "float32", "int64_list": "int64"}


def read_example(data: bytes) -> dict[str, Feature] | None:
    """The features of an example that have values, by name; None if it is no such message."""
    try:
        message = example_pb2.Example.FromString(data)
    except DecodeError:
        return None
    return _features(message.features.feature)


class SequenceFeatures(NamedTuple):
    """The features of a sequence example: of its context, and a list of each per name."""

    context: dict[str, Feature]
    lists: dict[str, list[Feature]]


def read_sequence_example(data: bytes) -> SequenceFeatures | None:
    """The features of a sequence example; None if it is no such message."""
    try:
        message = example_pb2.SequenceExample.FromString(data)
    except DecodeError:
        return None
    context = {name: _feature(item) or _EMPTY for name, item in message.context.feature.items()}
    lists = message.feature_lists.feature_list.items()
    steps = {name: [_feature(item) or _EMPTY for item in each.feature] for name, each in lists}
    return SequenceFeatures(context, steps)


def _features(messages: Mapping[str, Any]) -> dict[str, Feature]:
    features = ((name, _feature(message)) for name, message in messages.items())
    return {name: feature for name, feature in features if feature is not None}


def _feature(message: Any) -> Feature | None:
    kind = message.WhichOneof("kind")
    return None if kind is None else (_TYPES[kind], getattr(message, kind).value)
