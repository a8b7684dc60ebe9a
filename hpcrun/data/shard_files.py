"""Writer and reader of the shards of a data set."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import field
from typing import TYPE_CHECKING, Any

from hpcrun.data.example import decode_example, encode_example
from hpcrun.data.images import EncodedImage, encode_image
from hpcrun.data.tfrecord import RecordError, read_records, write_record
from hpcrun.errors import HpcrunError
from hpcrun.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from hpcrun.data.image_sources import ImageSource

IMAGES_PER_SHARD = 1024
"""Approximate number of images in a shard, as Inception's guide recommends."""
_REQUIRED: dict[str, type] = {"image/encoded": bytes, "image/class/label": int}
_OPTIONAL: dict[str, type] = {"image/format": bytes, "image/height": int, "image/width": int, "image/channels": int}
"""Features with one value each, and the type of the value."""


@frozen
class ShardResult:
    """Summary of a written shard.

    Attributes:
        name: File name.
        images: Number of records.
        bytes: File size.
        labels: Number of images by label.
        skipped: Path and reason for each image that was left out.
        converted: Number of converted images by original format.
        records: Offset in bytes, length in bytes, and label of each record.
    """

    name: str
    images: int = 0
    bytes: int = 0
    labels: dict[int, int] = field(default_factory=dict)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    converted: dict[str, int] = field(default_factory=dict)
    records: list[tuple[int, int, int]] = field(default_factory=list)

    @classmethod
    def from_json(cls, line: str) -> ShardResult | None:
        """Parse a line of JSON; return None if the line is incomplete."""
        try:
            values = json.loads(line)
        except ValueError:
            return None
        return cls(**{**values, "labels": {int(label): count for label, count in values["labels"].items()}})


def write_shard(
    file: Path, sources: Sequence[ImageSource], report: Callable[[], object], *, resize: int = 0, raw: bool = False
) -> ShardResult:
    """Write a shard to a temporary file, verify the file, and rename it.

    Args:
        file: Path of the shard.
        sources: The images of the shard.
        report: Called after each image.
        resize: Height and width of the stored images in pixels; 0 keeps the size of each image.
        raw: Whether to store pixels instead of JPEG files.

    Raises:
        HpcrunError: The file has a different number of records than were written.
        OSError: The shard cannot be written.
    """
    skipped: list[tuple[str, str]] = []
    labels: Counter[int] = Counter()
    converted: Counter[str] = Counter()
    records: list[tuple[int, int, int]] = []
    partial_file = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        with partial_file.open("wb") as stream:
            for source in sources:
                try:
                    image = _encode(source, resize=resize, raw=raw)
                except (ValueError, OSError) as error:
                    skipped.append((_source_path(source), getattr(error, "strerror", None) or str(error)))
                else:
                    offset, data = stream.tell(), encode_example(features_of(source, image))
                    write_record(stream, data)
                    records.append((offset, len(data), source.label))
                    labels[source.label] += 1
                    converted.update([image.converted] if image.converted else [])
                report()
            stream.flush()
            os.fsync(stream.fileno())
        verified_records = sum(1 for _ in read_records(partial_file))
        if verified_records != labels.total():
            raise HpcrunError(f"{file}: {verified_records} records were read back, and {labels.total()} written")
        size = partial_file.stat().st_size
        partial_file.replace(file)
    finally:
        partial_file.unlink(missing_ok=True)
    return ShardResult(file.name, labels.total(), size, dict(labels), skipped, dict(converted), records)


def _source_path(source: ImageSource) -> str:
    return source.file if source.size is None else f"{source.file}: {source.name}"


def _encode(source: ImageSource, *, resize: int, raw: bool) -> EncodedImage:
    content = source.read()
    if source.shape is None:
        # images of ImageNet's archives are not rotated, because bounding boxes belong to the pixels as stored
        return encode_image(content, resize=resize, raw=raw, upright=source.size is None)
    height, width, channels = source.shape
    return EncodedImage(content, height, width, channels, "RAW")


def features_of(source: ImageSource, image: EncodedImage) -> dict[str, Any]:
    """Return the features of an image's record, with the names of Inception's scripts."""
    return {
        "image/height": image.height,
        "image/width": image.width,
        "image/colorspace": "RGB" if image.channels == 3 else "Grayscale",
        "image/channels": image.channels,
        "image/class/label": source.label,
        "image/class/text": source.text,
        "image/format": image.format,
        "image/filename": source.name.rpartition("/")[2],
        "image/encoded": image.data,
        **dict(source.extra),
    }


def decode_features(data: bytes) -> dict[str, list[Any]]:
    """Return the features of an image's record: a list of bytes, floats or integers for each name.

    Raises:
        ValueError: The bytes are not an ``Example``, it has no image or label, or one of the features that describe the
            image does not have one value of its type.
    """
    features = decode_example(data)
    for name, kind in (_REQUIRED | _OPTIONAL).items():
        values = features.get(name)
        if not values and name in _REQUIRED:
            raise ValueError(f"it has no {name}")
        if values is not None and [type(value) for value in values] != [kind]:
            found = f"{len(values)} values" if len(values) != 1 else f"a value of type {type(values[0]).__name__}"
            raise ValueError(f"its {name} has {found} instead of one of type {kind.__name__}")
    return features


def read_shard(file: Path) -> Iterator[tuple[int, dict[str, list[Any]]]]:
    """Read a shard.

    Yields:
        The offset of each record in bytes, and its features.

    Raises:
        RecordError: A record is damaged, or its features are not those of an image.
        OSError: The file cannot be read.
    """
    for offset, data in read_records(file):
        try:
            features = decode_features(data)
        except ValueError as error:
            raise RecordError(file, offset, str(error)) from None
        yield offset, features
