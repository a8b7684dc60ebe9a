"""The images of a split, and their batches for `fit` and `evaluate`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from hpcrun.data.index import load_index
from hpcrun.data.layout import count_images, find_shards, read_labels
from hpcrun.data.small_sets import find_cifar10, select_reader
from hpcrun.errors import HpcrunError
from hpcrun.train.backends import record_error
from hpcrun.train.data.stable_shards import owner
from hpcrun.train.data.tf_arrays import dataset
from hpcrun.train.images.augmentation import AUGMENTATIONS
from hpcrun.train.images.damage import find_undamaged, gather_problems, record_reads
from hpcrun.train.images.decoding import Decoder
from hpcrun.train.images.files import ImageFiles, list_files, split_folder
from hpcrun.train.images.memory_records import SourceRecords
from hpcrun.train.images.records import (
    Records,
    find_wrong_labels,
    has_class,
    require_all_records,
    scan_shards,
)
from hpcrun.train.ranks.agreement import require_agreement
from hpcrun.train.ranks.collectives import on_rank_0
from hpcrun.train.ranks.replicas import replica
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from hpcrun.data.image_sources import Dataset
    from hpcrun.train.types import Data

    Array = np.ndarray[Any, Any]

SPLITS = ("train", "validation")


@dataclass(frozen=True, eq=False)
class ImageSet:
    """The images of a split.

    Attributes:
        content: Image files, records, or images in memory.
        labels: Class of each image, int64 (n,), from 0: label 1 of a record is class 0.
        names: Class names: line k of ``labels.txt`` is the name of class k - 1.
    """

    content: ImageFiles | Records | SourceRecords
    labels: Array
    names: list[str]

    def __len__(self) -> int:
        return len(self.labels)

    def batches(
        self,
        batch_size: int,
        size: int,
        *,
        augment: str = "none",
        shuffle: bool = False,
        seed: int = 0,
        cache: bool = False,
    ) -> tf.data.Dataset:
        """Return this rank's shard of every batch, for `fit` and `evaluate`. Collective.

        Args:
            batch_size: The global batch size, over all ranks.
            size: Height and width of the images in pixels.
            augment: Random changes: ``resnet``, ``inception`` or ``cifar``; ``none``: crop the central square.
            shuffle: Whether to shuffle the images every epoch, in the same order on all ranks.
            seed: Seed of the shuffles and the augmentation.
            cache: Whether to keep in memory the encoded images that this rank has read. If true, shuffled batches are
                divided so that a rank reads nearly the same images every epoch.

        Returns:
            A dataset of images, uint8 of shape (b, size, size, 3), and labels, int64 of shape (b,).

        Raises:
            HpcrunError: The augmentation is unknown.
        """
        if augment not in AUGMENTATIONS:
            raise HpcrunError(f"there is no augmentation {augment!r}", hint=f"augment: {', '.join(AUGMENTATIONS)}")
        own = replica()
        is_stable = cache and shuffle  # without a shuffle, a rank reads the same images every epoch anyway

        def is_cached(index: int) -> bool:
            return cache and not (is_stable and owner(index, own.size) != own.rank)

        read_images = partial(self._read, {}, is_cached)
        decoder = Decoder(size, AUGMENTATIONS[augment])
        decode = decoder.decode_files if isinstance(self.content, ImageFiles) else decoder.decode_records

        def load(indices: Data, seeds: Data) -> Data:
            contents, problem = tf.numpy_function(read_images, [indices], [tf.string, tf.string])
            # an exception of a numpy_function would be logged twice with its traceback
            with tf.control_dependencies([tf.debugging.Assert(problem == "", [problem])]):
                return decode(tf.ensure_shape(contents, [None]), seeds)

        make_dataset = partial(dataset, batch_size=batch_size, shuffle=shuffle, seed=seed, stable_shards=is_stable)
        return make_dataset(np.arange(len(self)), self.labels, load=load)

    def _read(
        self, cached_images: dict[int, bytes], is_cached: Callable[[int], bool], indices: Array
    ) -> tuple[Array, bytes]:
        """Return the bytes of images and an empty message; or an error message, after the error is recorded.

        The images are an array of objects, because NumPy's dtype for bytes drops trailing zeros.
        """
        contents: Array = np.full(len(indices), b"", object)
        record_reads(self._find_problem, indices.tolist())
        try:
            for position, index in enumerate(indices.tolist()):
                content = cached_images.get(index)
                if content is None:
                    content = self.content.read(index)
                    if is_cached(index):
                        cached_images[index] = content
                contents[position] = content
        except HpcrunError as error:
            record_error(error)
            return contents, error.message.encode()
        except OSError as error:
            unreadable = HpcrunError(f"{error.filename or 'an image'}: {error.strerror}")
            record_error(unreadable)
            return contents, unreadable.message.encode()
        return contents, b""

    def without_damaged(self) -> ImageSet:
        """Decode all images, each rank a part, and return the undamaged images. Collective.

        Raises:
            HpcrunError: All images are damaged.
        """
        undamaged_indices = find_undamaged(self._find_problem, len(self))
        return ImageSet(self.content.select(undamaged_indices), self.labels[undamaged_indices], self.names)

    def _find_problem(self, image_index: int) -> str | None:
        """Return an error message if an image cannot be read and decoded; else None."""
        description = self.content.describe(image_index)
        try:
            problem = self.content.check(image_index)
        except HpcrunError as error:
            return error.message
        except ValueError as error:  # the record is damaged
            problem = f"the record is not an image: {error}"
        except OSError as error:
            problem = str(error.strerror)
        return f"{description}: {problem}" if problem else None


def read_split(folder: str | os.PathLike[str], split: str, *, limit: int = 0, skip_bad: bool = False) -> ImageSet:
    """Find the images of a split, without reading them. Collective; equal arguments on all ranks.

    Args:
        folder: Folder of TFRecord shards, such as ``train-00000-of-00008``, or with subfolders ``train`` and
            ``validation`` (or ``val``), which contain one folder of images per class, or with the original files of
            MNIST or CIFAR-10.
        split: ``train`` or ``validation``.
        limit: Number of images to use, from the first; 0: all images.
        skip_bad: Whether to decode all images once, and leave out images that are damaged or have a label without a
            class. If not, such an image ends the training when it is read.

    Raises:
        HpcrunError: The folder has no images of the split, or the images cannot be read.
    """
    folder = Path(folder)
    require_agreement({"split of the images": split, "limit": limit, "skip_bad": skip_bad})
    if split not in SPLITS:
        raise HpcrunError(f"there is no split {split!r}", hint=f"splits are {' and '.join(SPLITS)}")
    listing = on_rank_0(f"the images of {split}", lambda: _list_split_images(folder, split))
    content: ImageFiles | Records | SourceRecords
    if callable(listing):
        content, labels, names = _select_sources(listing(folder), split)
    elif isinstance(listing, tuple):
        paths, labels, names = listing
        content = ImageFiles(split_folder(folder, split) or folder / split, paths)
    else:
        files = [folder / name for name in listing["files"]]
        index, names = listing["index"], listing["names"]
        if index is None:
            index = scan_shards(files, len(names), skip_bad=skip_bad)
            require_all_records(folder, split, len(index), listing["records"], skip_bad=skip_bad)
        elif problems := list(find_wrong_labels(files, index, len(names))):
            gather_problems(problems if world().rank == 0 else [], skip_bad=skip_bad)
            index = index[has_class(index["label"], len(names))]
        labels = index["label"].astype(np.int64) - 1
        content = Records(files, index)
    if not len(labels):
        raise HpcrunError(
            f"{folder}: the shards of {split} are empty", hint="hpcrun data info DIR shows what they have"
        )
    if limit and limit < len(labels):
        content, labels = content.select(np.arange(limit)), labels[:limit]
    image_set = ImageSet(content, labels, names)
    image_set = image_set.without_damaged() if skip_bad else image_set
    return (
        image_set
        if names
        else replace(image_set, names=[str(label + 1) for label in range(int(image_set.labels.max()) + 1)])
    )


def read_cifar10(folder: str | os.PathLike[str], split: str) -> ImageSet:
    """Read a split of CIFAR-10, from shards of ``hpcrun data cifar10`` or from the original files. Collective.

    Args:
        folder: Folder with shards, the archive or the files of CIFAR-10, such as Keras's cache ``~/.keras/datasets``.
        split: ``train`` or ``validation``.

    Raises:
        HpcrunError: The folder has no data of CIFAR-10, or damaged data.
    """
    folder = Path(folder)
    if on_rank_0("the shards of CIFAR-10", lambda: any(folder.glob("train-*"))):
        return read_split(folder, split)
    return ImageSet(*_select_sources(find_cifar10(folder), split))


def _select_sources(images: Dataset, split: str) -> tuple[SourceRecords, Array, list[str]]:
    """Return the images of a split, their classes from 0, and the names of the classes."""
    sources = images.splits[split]
    return SourceRecords(sources), np.array([source.label - 1 for source in sources], np.int64), list(images.labels)


def _list_split_images(folder: Path, split: str) -> Any:
    """Return the image files of a split, or its shards with their index, or the reader of MNIST or CIFAR-10."""
    if not folder.is_dir():
        raise HpcrunError(
            f"{folder} is not a folder", hint="give a folder of shards, or with train/<class>/ and validation/<class>/"
        )
    if split_folder(folder, split):
        return list_files(folder, split)
    if train := split_folder(folder, "train"):
        raise HpcrunError(
            f"{folder} has no folder {split}, only {train.name}", hint=f"{folder}/{split}/roses/image1.jpg"
        )
    if not any(folder.glob("*-of-*")) and (reader := select_reader(folder)):
        return reader
    shards = find_shards(folder)
    if split not in shards:
        raise HpcrunError(
            f"{folder} has no images of {split}: it has shards of {', '.join(shards)}",
            hint="hpcrun data build IMAGES FOLDER --validation 0.1 writes shards of both splits",
        )
    files = shards[split]
    index, names = load_index(files, split), read_labels(folder)
    return {
        "files": [one.name for one in files],
        "index": index,
        "names": names,
        "records": count_images(folder, split),
    }
