"""What a data set contains: counts, labels, sizes, damaged records, and samples as a picture."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from PIL import Image

from hpcrun.data.images import decode_image
from hpcrun.data.shards import read_shard
from hpcrun.data.tfrecord import RecordError
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_THUMBNAIL, _COLUMNS, _GAP = 128, 8, 4
"""Pixels of a sample in the picture, samples in a row, and pixels between them."""


@dataclass
class SplitInfo:
    """The records of a split.

    Attributes:
        shards: Number of shards.
        bytes: Their size.
        images: Number of records that can be read.
        labels: Number of images by label.
        formats: Number of images by format.
        heights: Height of each image in pixels.
        widths: Width of each image in pixels.
        damaged: One message for each shard that cannot be read to its end, or has a label without a class.
        samples: Some records.
    """

    shards: int = 0
    bytes: int = 0
    images: int = 0
    labels: Counter[int] = field(default_factory=Counter)
    formats: Counter[str] = field(default_factory=Counter)
    heights: list[int] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    samples: list[dict[str, list[Any]]] = field(default_factory=list)

    def count(self, features: dict[str, list[Any]]) -> None:
        """Count a record."""
        self.images += 1
        self.labels[features["image/class/label"][0]] += 1
        self.formats[_text(features, "image/format") or "JPEG"] += 1
        self.heights += features.get("image/height", [])[:1]
        self.widths += features.get("image/width", [])[:1]

    def to_json(self, names: Sequence[str]) -> dict[str, Any]:
        """Return it as JSON, with the names of its classes."""
        return {
            "shards": self.shards, "bytes": self.bytes, "images": self.images, "formats": dict(self.formats),
            "height": _range(self.heights), "width": _range(self.widths),
            "labels": {name_of(label, names): count for label, count in sorted(self.labels.items())},
            "damaged": self.damaged,
        }  # fmt: skip


def name_of(label: int, names: Sequence[str]) -> str:
    """Return the name of a class; its number if it has none."""
    return names[label - 1] if 0 < label <= len(names) else str(label)


def _range(values: list[int]) -> list[float] | None:
    return [min(values), median(values), max(values)] if values else None


def inspect_split(
    files: Sequence[Path], names: Sequence[str], samples: int, report: Callable[[int], None]
) -> SplitInfo:
    """Read all records of a split.

    Args:
        files: Its shards.
        names: The names of the classes.
        samples: Number of records to keep, from the first ones of the shards.
        report: Called after each shard with its size in bytes.
    """
    info = SplitInfo(shards=len(files))
    each = -(-samples // len(files))
    for file in files:
        info.bytes += file.stat().st_size
        kept = 0
        try:
            for offset, features in read_shard(file):
                _require_label(features["image/class/label"][0], len(names), file, offset)
                info.count(features)
                if kept < each and len(info.samples) < samples:
                    info.samples.append(features)
                    kept += 1
        except (RecordError, OSError) as error:
            info.damaged.append(error.message if isinstance(error, HpcrunError) else f"{file}: {error.strerror}")
        if not file.stat().st_size:
            info.damaged.append(f"{file}: the shard is empty")
        report(file.stat().st_size)
    return info


def _require_label(label: int, classes: int, file: Path, offset: int) -> None:
    if classes and not 0 <= label <= classes:
        raise RecordError(file, offset, f"label {label} is not one of 0 to {classes}")


def _text(features: dict[str, list[Any]], name: str) -> str:
    return bytes(next(iter(features.get(name, [])), b"")).decode(errors="replace")


def draw_samples(samples: Sequence[dict[str, list[Any]]], file: Path) -> int:
    """Write a picture of records.

    Args:
        samples: The features of each.
        file: The picture; its ending chooses the format.

    Returns:
        The number of samples in it.

    Raises:
        HpcrunError: The picture cannot be written.
    """
    step = _THUMBNAIL + _GAP
    sheet = Image.new("RGB", (_COLUMNS * step, max(1, -(-len(samples) // _COLUMNS)) * step), "white")
    for number, features in enumerate(samples):
        image = sample_image(features).convert("RGB")
        image.thumbnail((_THUMBNAIL, _THUMBNAIL))
        sheet.paste(image, (number % _COLUMNS * step, number // _COLUMNS * step))
    try:
        sheet.save(file)
    except (OSError, ValueError) as error:
        raise HpcrunError(f"{file}: the picture cannot be written: {error}", hint="--sheet samples.png") from None
    return len(samples)


def sample_image(features: dict[str, list[Any]]) -> Image.Image:
    """Return the image of a record.

    Raises:
        ValueError: The image is damaged.
    """
    height, width, channels = (features.get(f"image/{key}", [0])[0] for key in ("height", "width", "channels"))
    raw = _text(features, "image/format") == "RAW"
    return decode_image(features["image/encoded"][0], height, width, channels, raw=raw)
