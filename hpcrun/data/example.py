"""Encoder and decoder of TensorFlow's ``Example`` messages, without TensorFlow.

An ``Example`` maps names to lists of bytes, floats or integers (tensorflow/core/example/{example,feature}.proto).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Value = int | str | bytes | Sequence[int] | Sequence[float]

_FIELD = descriptor_pb2.FieldDescriptorProto
_LIST_TYPES = {"bytes_list": _FIELD.TYPE_BYTES, "float_list": _FIELD.TYPE_FLOAT, "int64_list": _FIELD.TYPE_INT64}


def _declare_example() -> Any:
    """Return the message class from a separate pool, because TensorFlow declares the same name in the default pool."""
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="tensorflow", syntax="proto3")
    for name, kind in _LIST_TYPES.items():
        message = file.message_type.add(name=name)
        message.field.add(name="value", number=1, type=kind, label=_FIELD.LABEL_REPEATED)
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, name in enumerate(_LIST_TYPES, 1):
        type_name = f".tensorflow.{name}"
        feature.field.add(
            name=name, number=number, type=_FIELD.TYPE_MESSAGE, type_name=type_name, label=1, oneof_index=0
        )
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=_FIELD.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=_FIELD.TYPE_MESSAGE, type_name=".tensorflow.Feature", label=1)
    features.field.add(
        name="feature", number=1, type=_FIELD.TYPE_MESSAGE, label=_FIELD.LABEL_REPEATED,
        type_name=".tensorflow.Features.FeatureEntry",
    )  # fmt: skip
    example = file.message_type.add(name="Example")
    example.field.add(name="features", number=1, type=_FIELD.TYPE_MESSAGE, type_name=".tensorflow.Features", label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))


_EXAMPLE_CLASS = _declare_example()


def encode_example(features: Mapping[str, Value]) -> bytes:
    """Return a serialized ``Example``; equal features give equal bytes.

    Args:
        features: A value or a list of values for each name; parsers treat an empty list as a missing feature.
    """
    example = _EXAMPLE_CLASS()
    for name, value in features.items():
        values = [value] if isinstance(value, int | str | bytes) else list(value)
        feature = example.features.feature[name]
        if values and isinstance(values[0], str | bytes):
            feature.bytes_list.value.extend(
                item.encode(errors="surrogateescape") if isinstance(item, str) else item for item in values
            )
        elif values and isinstance(values[0], int):
            feature.int64_list.value.extend(values)
        elif values:
            feature.float_list.value.extend(values)
    return bytes(example.SerializeToString(deterministic=True))


def decode_example(data: bytes) -> dict[str, list[Any]]:
    """Return the features of an ``Example``: a list of bytes, floats or integers for each name.

    Raises:
        ValueError: The bytes are not an ``Example``.
    """
    try:
        features = _EXAMPLE_CLASS.FromString(data).features.feature
    except DecodeError as error:
        raise ValueError(f"not a tf.train.Example: {error}") from None
    kinds = {name: feature.WhichOneof("kind") for name, feature in features.items()}
    return {name: list(getattr(features[name], kind).value) if kind else [] for name, kind in kinds.items()}
