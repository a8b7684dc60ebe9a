"""Images without TensorFlow: from TFRecords, from a folder with one subfolder per class, or random images."""

from __future__ import annotations

import math
from random import Random
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, Sampler

from hpcrun.data import image_reader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.data.image_reader import ImageReader

    Sample = tuple[torch.Tensor, int]  # (size, size, 3) uint8, and the class from 0


class Images(Dataset):
    """Images that are read, decoded and cropped when they are needed."""

    def __init__(self, reader: ImageReader) -> None:
        self.reader, self.names = reader, reader.names

    def __len__(self) -> int:
        return len(self.reader)

    def __getitem__(self, index: int) -> Sample:
        image, label = self.reader.read(index, Random(torch.randint(1 << 62, ()).item()))  # noqa: S311
        pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
        return pixels.view(image.height, image.width, 3), label


class RandomImages(Dataset):
    """Random pixels and classes, for speed measurements only."""

    def __init__(self, samples: int, size: int, classes: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.pool = torch.randint(256, (64, size, size, 3), dtype=torch.uint8, generator=generator)  # (64, 224, 224, 3)
        self.labels = torch.randint(classes, (samples,), generator=generator).tolist()
        self.names = list(map(str, range(classes)))

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Sample:
        return self.pool[index % len(self.pool)], self.labels[index]


def read_split(folder: str, split: str, size: int, augment: str, limit: int) -> Images:
    """Find the first `limit` images of `train` or `validation` (0: all images); every rank must call this."""

    def gather(local_object: object) -> list:
        objects = [local_object] * dist.get_world_size()
        dist.all_gather_object(objects, local_object)
        return objects

    ranks = {"rank": dist.get_rank(), "ranks": dist.get_world_size(), "gather": gather}
    return Images(image_reader.read_split(folder, split, size=size, augment=augment, limit=limit, **ranks))


class Shards(Sampler):
    """This rank's shard of every batch; a batch is the same on any number of ranks.

    Args:
        samples: The number of images.
        batch_size: The global batch size, over all ranks.
        seed: The seed of the order; None: keep the order, and keep the last batch, which may be smaller.
        first_batch: The number of batches to skip, which were trained before an interruption.
    """

    def __init__(self, samples: int, batch_size: int, seed: int | None = None, first_batch: int = 0) -> None:
        self.samples, self.batch_size, self.seed, self.first_batch = samples, batch_size, seed, first_batch

    def __len__(self) -> int:
        count = self.samples / self.batch_size
        return (math.ceil(count) if self.seed is None else math.floor(count)) - self.first_batch

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.arange(self.samples)
        if self.seed is not None:
            order = torch.randperm(self.samples, generator=torch.Generator().manual_seed(self.seed))
        for number in range(self.first_batch, self.first_batch + len(self)):
            batch = order[number * self.batch_size : (number + 1) * self.batch_size]
            yield batch[dist.get_rank() :: dist.get_world_size()].tolist()


def load(dataset: Dataset, shards: Shards, workers: int, device: torch.device) -> DataLoader:
    """Return the batches of this rank: images (b, size, size, 3), uint8, and labels (b,)."""
    pin_memory = device.type == "cuda"
    return DataLoader(dataset, batch_sampler=shards, num_workers=workers, pin_memory=pin_memory, collate_fn=collate)


def collate(samples: list[Sample]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return samples as a batch, which may be empty: the last batch may have fewer samples than ranks."""
    labels = torch.tensor([label for _, label in samples], dtype=torch.long)
    return torch.stack([pixels for pixels, _ in samples]) if samples else torch.empty(0), labels
