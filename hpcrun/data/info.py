"""Statistics of a data set: counts, labels, sizes, damaged records, and a picture of samples."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from PIL import Image

from hpcrun.data.images import decode_image
from hpcrun.data.index import find_difference, index_name, read_rows
from hpcrun.data.layout import count_images
from hpcrun.data.shard_files import read_shard
from hpcrun.data.tfrecord import RecordError
from hpcrun.errors import HpcrunError, pluralize

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_THUMBNAIL_PIXELS, _COLUMNS, _GAP_PIXELS = 128, 8, 4
"""Side of a thumbnail in pixels, number of thumbnails in a row, and pixels between two thumbnails."""


@dataclass
class SplitInfo:
    """The statistics of a split.

    Attributes:
        shards: Number of shards.
        bytes: Size of all shards.
        images: Number of records that can be read.
        labels: Number of images by label.
        formats: Number of images by format.
        heights: Height of each image in pixels.
        widths: Width of each image in pixels.
        damaged: One message for each shard that has a damaged record or a label without a class, or other records than
            when it was built, and for each sample that is no image.
        samples: Images of the sample records.
    """

    shards: int = 0
    bytes: int = 0
    images: int = 0
    labels: Counter[int] = field(default_factory=Counter)
    formats: Counter[str] = field(default_factory=Counter)
    heights: list[int] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    samples: list[Image.Image] = field(default_factory=list)

    def count(self, features: dict[str, list[Any]]) -> None:
        """Add a record to the counts."""
        self.images += 1
        self.labels[features["image/class/label"][0]] += 1
        self.formats[_decode_text(features, "image/format") or "JPEG"] += 1
        self.heights += features.get("image/height", [])[:1]
        self.widths += features.get("image/width", [])[:1]

    def to_json(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the statistics as JSON values; labels are replaced by class names."""
        return {
            "shards": self.shards, "bytes": self.bytes, "images": self.images, "formats": dict(self.formats),
            "height": _summarize(self.heights), "width": _summarize(self.widths),
            "labels": {class_name(label, names): count for label, count in sorted(self.labels.items())},
            "damaged": self.damaged,
        }  # fmt: skip


def file_size(file: Path) -> int:
    """Return the size of a file in bytes; 0 for a link without its target."""
    return file.stat().st_size if file.is_file() else 0


def class_name(label: int, names: Sequence[str]) -> str:
    """Return the name of a class, or its label if the class has no name."""
    return names[label - 1] if 0 < label <= len(names) else str(label)


def _summarize(values: list[int]) -> list[float] | None:
    return [min(values), median(values), max(values)] if values else None


def inspect_split(
    split: str, files: Sequence[Path], names: Sequence[str], samples: int, report: Callable[[int], None]
) -> SplitInfo:
    """Read all records of a split, and return their statistics.

    Args:
        split: The name of the split.
        files: The shards of the split.
        names: The names of the classes.
        samples: Number of records to keep as samples, taken from the beginnings of the shards.
        report: Function that is called after each shard with the shard's size in bytes.
    """
    info = SplitInfo(shards=len(files))
    samples_per_shard = -(-samples // len(files))
    folder = files[0].parent
    index = read_rows(folder / index_name(split))
    has_index = bool(index) and max(index) < len(files)
    shard_faults: list[str] = []
    for number, file in enumerate(files):
        size = file_size(file)
        info.bytes += size
        kept_samples = 0
        records: list[tuple[int, int]] = []
        try:
            for offset, features in read_shard(file):
                label = features["image/class/label"][0]
                _require_label(label, len(names), file, offset)
                info.count(features)
                records.append((offset, label))
                if kept_samples < samples_per_shard and len(info.samples) < samples:
                    kept_samples += 1
                    try:
                        info.samples.append(sample_image(features).convert("RGB"))
                    except ValueError as error:
                        info.damaged.append(f"{file}: record at byte {offset}: {error}")
        except (RecordError, OSError) as error:
            shard_faults.append(error.message if isinstance(error, HpcrunError) else f"{file}: {error.strerror}")
        else:
            difference = find_difference(index.get(number, b""), records, size) if has_index else None
            if fault := difference if size else "the shard is empty":
                shard_faults.append(f"{file}: {fault}")
        report(size)
    expected_images = count_images(folder, split)
    if not shard_faults and expected_images not in {None, info.images}:
        shard_faults.append(
            f"{folder}: the shards of {split} have {pluralize(info.images, 'record')}, and had {expected_images} when "
            "they were built"
        )
    info.damaged += shard_faults
    return info


def _require_label(label: int, classes: int, file: Path, offset: int) -> None:
    if label < 1 or (classes and label > classes):  # 0 is the background, which no image has
        number = classes or "the number of classes"
        raise RecordError(file, offset, f"label {label} is not one of 1 to {number}, the lines of labels.txt")


def _decode_text(features: dict[str, list[Any]], name: str) -> str:
    return bytes(next(iter(features.get(name, [])), b"")).decode(errors="replace")


def draw_samples(samples: Sequence[Image.Image], file: Path) -> int:
    """Write a picture with thumbnails of images.

    Args:
        samples: The images, which become thumbnails.
        file: The image file to write; its suffix determines the format.

    Returns:
        The number of thumbnails in the picture.

    Raises:
        HpcrunError: The picture cannot be written.
    """
    cell_pixels = _THUMBNAIL_PIXELS + _GAP_PIXELS
    sheet = Image.new("RGB", (_COLUMNS * cell_pixels, max(1, -(-len(samples) // _COLUMNS)) * cell_pixels), "white")
    for number, image in enumerate(samples):
        image.thumbnail((_THUMBNAIL_PIXELS, _THUMBNAIL_PIXELS))
        sheet.paste(image, (number % _COLUMNS * cell_pixels, number // _COLUMNS * cell_pixels))
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
    is_raw = _decode_text(features, "image/format") == "RAW"
    return decode_image(features["image/encoded"][0], height, width, channels, raw=is_raw)
