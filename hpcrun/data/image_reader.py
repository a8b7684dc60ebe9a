"""Reader of a split's images without TensorFlow: it lists the images once, and reads each image on demand.

images = read_split("records", "train", size=224, augment="resnet")
image, label = images.read(0, random.Random(1))  # a PIL image and a class from 0
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import ImageOps

from hpcrun.data.image_sources import TRAIN_FOLDERS, VALIDATION_FOLDERS, class_names, list_images, shuffle
from hpcrun.data.images import decode_image
from hpcrun.data.index import load_index
from hpcrun.data.info import sample_image
from hpcrun.data.layout import find_shards, read_labels
from hpcrun.data.shard_files import decode_features
from hpcrun.data.tfrecord import RecordError, read_record, read_records
from hpcrun.errors import HpcrunError
from hpcrun.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from PIL import Image

    ImageLocation = Path | tuple[Path, int, int]
    Box = tuple[float, float, float, float]
    ShardRecords = dict[int, list[tuple[ImageLocation, int]]]


@frozen
class ImageReader:
    """The encoded images of a split.

    Attributes:
        rows: For each image: its file, or the file, offset and length of its record; and its class from 0.
        names: The names of the classes.
        size: Height and width of the crops in pixels.
        augment: ``resnet``: random crops and flips (Szegedy et al., arXiv:1409.4842); ``none``: the centre.
    """

    rows: Sequence[tuple[ImageLocation, int]]
    names: list[str]
    size: int
    augment: str

    def __len__(self) -> int:
        return len(self.rows)

    def select(self, indices: Sequence[int]) -> ImageReader:
        """Return a reader of some of the images, without names, which is cheap to send to a different process."""
        return ImageReader([self.rows[index] for index in indices], [], self.size, self.augment)

    def read(self, index: int, generator: Random) -> tuple[Image.Image, int]:
        """Return an image of `size` x `size` pixels in RGB, and its class from 0.

        Args:
            index: The number of the image.
            generator: Generator of the random numbers for crop and flip.

        Raises:
            HpcrunError: The image is damaged.
        """
        location, label = self.rows[index]
        image = _decode(location).convert("RGB")
        box = _random_box(*image.size, generator) if self.augment == "resnet" else _centre_box(*image.size)
        image = image.resize((self.size, self.size), box=box)
        if self.augment == "resnet" and generator.random() < 0.5:
            image = ImageOps.mirror(image)
        return image, label


def read_split(
    folder: str,
    split: str,
    *,
    size: int,
    augment: str,
    limit: int = 0,
    rank: int = 0,
    ranks: int = 1,
    gather: Callable[[ShardRecords], list[ShardRecords]] = lambda records: [records],
) -> ImageReader:
    """Find the images of a split; every rank must call this: without an index, each rank reads a part.

    Args:
        folder: A folder of TFRecord shards, or a folder with the subfolders ``train`` and ``validation``, which contain
            one folder of images per class.
        split: ``train`` or ``validation``.
        size: Height and width of the crops in pixels.
        augment: ``resnet`` or ``none``.
        limit: The number of images to use, from the first; 0: all images.
        rank: This rank.
        ranks: The number of ranks.
        gather: Function that returns the arguments of all ranks on each rank.

    Raises:
        HpcrunError: The folder has no images of the split, or has labels without a class name.
    """
    top_folder = Path(folder)
    subfolders = {
        name: top_folder / name for name in (*TRAIN_FOLDERS, *VALIDATION_FOLDERS) if (top_folder / name).is_dir()
    }
    split_folders = [
        subfolders[name] for name in (TRAIN_FOLDERS if split == "train" else VALIDATION_FOLDERS) if name in subfolders
    ]
    if split_folders:  # the classes are the subfolders of train, sorted by name
        names = list(
            class_names(next((subfolders[name] for name in TRAIN_FOLDERS if name in subfolders), split_folders[0]))
        )
        rows: list[tuple[ImageLocation, int]] = [
            (Path(image.file), image.label) for image in shuffle(list_images(split_folders[0], names))
        ]
    else:
        shards = find_shards(top_folder)
        if split not in shards:
            raise HpcrunError(f"{top_folder} has no shards of {split}", hint="hpcrun data info DIR shows what it has")
        rows, names = _list_records(shards[split], split, rank, ranks, gather), read_labels(top_folder)
        if names and not all(1 <= label <= len(names) for _, label in rows):
            raise HpcrunError(f"{top_folder}: a record of {split} has a label that labels.txt does not name")
        names = names or [str(number) for number in range(max(label for _, label in rows))]
    return ImageReader([(location, label - 1) for location, label in rows[: limit or None]], names, size, augment)


def _list_records(
    shards: list[Path], split: str, rank: int, ranks: int, gather: Callable[[ShardRecords], list[ShardRecords]]
) -> list[tuple[ImageLocation, int]]:
    """Return file, offset and length of each record, and its label."""
    if (index := load_index(shards, split)) is not None:
        fields = (index[name].tolist() for name in ("shard", "offset", "length", "label"))
        return [((shards[shard], offset, length), label) for shard, offset, length, label in zip(*fields, strict=True)]
    own_records: ShardRecords = {
        number: [
            ((shards[number], offset, len(data)), _label(shards[number], offset, data))
            for offset, data in read_records(shards[number])
        ]
        for number in range(rank, len(shards), ranks)
    }
    all_records = {number: rows for records in gather(own_records) for number, rows in records.items()}
    return [row for number in range(len(shards)) for row in all_records[number]]


def _label(file: Path, offset: int, data: bytes) -> int:
    try:
        label: int = decode_features(data)["image/class/label"][0]
    except ValueError as error:
        raise RecordError(file, offset, str(error)) from None
    return label


def _decode(location: ImageLocation) -> Image.Image:
    file, offset, length = location if isinstance(location, tuple) else (location, 0, 0)
    try:
        if not isinstance(location, tuple):
            return decode_image(file.read_bytes(), 0, 0, 0, raw=False)
        with file.open("rb", buffering=0) as stream:
            return sample_image(decode_features(read_record(stream.fileno(), file, offset, length)))
    except ValueError as error:
        position = f"{file}: record at byte {offset}" if isinstance(location, tuple) else file
        raise HpcrunError(f"{position}: {error}") from None


def _random_box(width: int, height: int, generator: Random) -> Box:
    """Return a window with 8 to 100 % of an image, and an aspect ratio from 3:4 to 4:3."""
    for _ in range(10):
        area = width * height * generator.uniform(0.08, 1)
        ratio = math.exp(generator.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = math.sqrt(area * ratio), math.sqrt(area / ratio)
        if w <= width and h <= height:
            left, top = generator.random() * (width - w), generator.random() * (height - h)
            return left, top, left + w, top + h
    return _centre_box(width, height)


def _centre_box(width: int, height: int) -> Box:
    """Return the window in the centre with 7/8 of the shorter side: 224 of 256 pixels."""
    side = min(width, height) * 0.875
    return (width - side) / 2, (height - side) / 2, (width + side) / 2, (height + side) / 2
