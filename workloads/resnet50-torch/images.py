"""Images of hpcrun's TFRecords, of a folder with a folder for each class, or random ones; without TensorFlow."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, Sampler

from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from PIL import Image

    Sample = tuple[torch.Tensor, int]  # (size, size, 3) uint8, and the class from 0


class Images(Dataset):
    """Encoded images, decoded and cropped when they are needed.

    Args:
        rows: For each image its place, for `read`, and its class from 0.
        names: The names of the classes.
        size: Height and width of the crops.
        augment: `resnet`: random crops and flips (Szegedy et al., arXiv:1409.4842); `none`: the centre.
    """

    def __init__(self, rows: list[tuple[object, int]], names: list[str], size: int, augment: str) -> None:
        self.rows, self.names, self.size, self.augment = rows, names, size, augment

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Sample:
        place, label = self.rows[index]
        image = self.read(place).convert("RGB")
        box = random_box(*image.size) if self.augment == "resnet" else centre_box(*image.size)
        image = image.resize((self.size, self.size), box=box)
        pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).view(self.size, self.size, 3)
        flips = self.augment == "resnet" and torch.rand(()) < 0.5
        return pixels.flip(1) if flips else pixels, label

    def read(self, place: object) -> Image.Image:
        """Return the image at a place: here, a file."""
        from hpcrun.data.images import decode_image

        try:
            return decode_image(Path(str(place)).read_bytes(), 0, 0, 0, raw=False)
        except ValueError as error:
            raise HpcrunError(f"{place}: {error}") from None


class Records(Images):
    """Images in TFRecords; a place is the file, offset and length of a record."""

    def read(self, place: tuple[Path, int, int]) -> Image.Image:
        """Return the image of a record."""
        from hpcrun.data.example import decode_example
        from hpcrun.data.info import sample_image
        from hpcrun.data.tfrecord import read_record

        file, offset, length = place
        try:
            with file.open("rb", buffering=0) as stream:
                return sample_image(decode_example(read_record(stream.fileno(), file, offset, length)))
        except ValueError as error:
            raise HpcrunError(f"{file}: record at byte {offset}: {error}") from None


class RandomImages(Dataset):
    """Random pixels and classes, for speed measurements only."""

    def __init__(self, samples: int, size: int, classes: int, seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        self.pool = torch.randint(256, (64, size, size, 3), dtype=torch.uint8, generator=draw)  # (64, 224, 224, 3)
        self.labels = torch.randint(classes, (samples,), generator=draw).tolist()
        self.names = list(map(str, range(classes)))

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Sample:
        return self.pool[index % len(self.pool)], self.labels[index]


def read_split(folder: str, split: str, size: int, augment: str, limit: int) -> Images:
    """Find the images of `train` or `validation`, the first `limit` of them (0: all); every rank must call this."""
    from hpcrun.data.layout import find_shards, read_labels
    from hpcrun.data.sources import TRAIN_FOLDERS, VALIDATION_FOLDERS, class_names, list_images, shuffle

    place = Path(folder)
    trees = {name: place / name for name in (*TRAIN_FOLDERS, *VALIDATION_FOLDERS) if (place / name).is_dir()}
    own = [trees[name] for name in (TRAIN_FOLDERS if split == "train" else VALIDATION_FOLDERS) if name in trees]
    if own:  # a folder for each class, sorted by name: those of train
        names = class_names(next((trees[name] for name in TRAIN_FOLDERS if name in trees), own[0]))
        found = shuffle(list_images(own[0], names))
        rows = [(image.file, image.label - 1) for image in found]
        return Images(rows[: limit or None], list(names), size, augment)
    shards = find_shards(place)
    if split not in shards:
        raise HpcrunError(f"{place} has no shards of {split}", hint="hpcrun data info DIR shows what it has")
    index, names = list_records(shards[split], split), read_labels(place)
    if names and not all(1 <= label <= len(names) for _, label in index):
        raise HpcrunError(f"{place}: a record of {split} has a label that labels.txt does not name")
    rows = [(place, label - 1) for place, label in index[: limit or None]]
    return Records(rows, names or list(map(str, range(max(label for _, label in index)))), size, augment)


def list_records(shards: list[Path], split: str) -> list[tuple[tuple[Path, int, int], int]]:
    """Return file, offset and length of each record, and its label: by the index, or each rank reads some shards."""
    from hpcrun.data.example import decode_example
    from hpcrun.data.index import load_index
    from hpcrun.data.tfrecord import read_records

    if (index := load_index(shards, split)) is not None:
        fields = (index[name].tolist() for name in ("shard", "offset", "length", "label"))
        return [((shards[shard], offset, length), label) for shard, offset, length, label in zip(*fields, strict=True)]
    own = {
        number: [
            ((shards[number], offset, len(data)), decode_example(data)["image/class/label"][0])
            for offset, data in read_records(shards[number])
        ]
        for number in range(dist.get_rank(), len(shards), dist.get_world_size())
    }
    parts = [own] * dist.get_world_size()
    dist.all_gather_object(parts, own)
    merged = {number: rows for part in parts for number, rows in part.items()}
    return [row for number in range(len(shards)) for row in merged[number]]


class Shards(Sampler):
    """This rank's samples of every batch; all ranks together take the batches that one process would.

    Args:
        samples: The number of images.
        batch: The number of images of a batch, over all ranks.
        seed: The seed of the order; None keeps the order, and the last batch, which may be smaller.
        first: The number of batches to leave out, which were done before an interruption.
    """

    def __init__(self, samples: int, batch: int, seed: int | None = None, first: int = 0) -> None:
        self.samples, self.batch, self.seed, self.first = samples, batch, seed, first

    def __len__(self) -> int:
        count = self.samples / self.batch
        return (math.ceil(count) if self.seed is None else math.floor(count)) - self.first

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.arange(self.samples)
        if self.seed is not None:
            order = torch.randperm(self.samples, generator=torch.Generator().manual_seed(self.seed))
        for number in range(self.first, self.first + len(self)):
            batch = order[number * self.batch : (number + 1) * self.batch]
            yield batch[dist.get_rank() :: dist.get_world_size()].tolist()


def load(dataset: Dataset, shards: Shards, workers: int, device: torch.device) -> DataLoader:
    """Return the batches of this rank: images (b, size, size, 3), uint8, and labels (b,)."""
    pins = device.type == "cuda"
    return DataLoader(dataset, batch_sampler=shards, num_workers=workers, pin_memory=pins, collate_fn=collate)


def collate(samples: list[Sample]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return samples as a batch; a rank may have none of the last one."""
    labels = torch.tensor([label for _, label in samples], dtype=torch.long)
    return torch.stack([pixels for pixels, _ in samples]) if samples else torch.empty(0), labels


def random_box(width: int, height: int) -> tuple[float, float, float, float]:
    """Return a window with 8 to 100 % of an image, and a ratio of 3:4 to 4:3 of its sides."""
    for _ in range(10):
        area = width * height * torch.empty(()).uniform_(0.08, 1).item()
        ratio = math.exp(torch.empty(()).uniform_(math.log(3 / 4), math.log(4 / 3)).item())
        w, h = math.sqrt(area * ratio), math.sqrt(area / ratio)
        if w <= width and h <= height:
            left, top = torch.rand(()).item() * (width - w), torch.rand(()).item() * (height - h)
            return left, top, left + w, top + h
    return centre_box(width, height)


def centre_box(width: int, height: int) -> tuple[float, float, float, float]:
    """Return the window in the centre with 7/8 of the shorter side: 224 of 256 pixels."""
    side = min(width, height) * 0.875
    return (width - side) / 2, (height - side) / 2, (width + side) / 2, (height + side) / 2
