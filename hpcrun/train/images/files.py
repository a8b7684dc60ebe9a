"""Images as files, in one folder per class."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hpcrun.data.image_sources import TRAIN_FOLDERS, VALIDATION_FOLDERS, class_names, list_images, shuffle
from hpcrun.errors import HpcrunError
from hpcrun.frozen import frozen
from hpcrun.train.images.damage import check_image


@frozen
class ImageFiles:
    """The image files of a split.

    Attributes:
        folder: Folder with one subfolder per class.
        paths: Path of each image, relative to `folder`.
    """

    folder: Path
    paths: list[str]

    def read(self, image_index: int) -> bytes:
        """Return the content of an image file.

        Raises:
            HpcrunError: The file is empty.
            OSError: The file cannot be read.
        """
        content = Path(self.folder, self.paths[image_index]).read_bytes()
        if not content:
            raise HpcrunError(f"{self.describe(image_index)}: the file is empty")
        return content

    def check(self, image_index: int) -> str | None:
        """Return an error message if an image cannot be decoded; else None."""
        return check_image(self.read(image_index))

    def describe(self, image_index: int) -> str:
        """Return the path of an image."""
        return str(Path(self.folder, self.paths[image_index]))

    def select(self, image_indices: np.ndarray[Any, Any]) -> ImageFiles:
        """Return a subset of the images, given their indices."""
        return replace(self, paths=[self.paths[image_index] for image_index in image_indices])


def split_folder(folder: Path, split: str) -> Path | None:
    """Return the folder of a split, with one subfolder per class; None if it does not exist."""
    names = TRAIN_FOLDERS if split == "train" else VALIDATION_FOLDERS
    return next((folder / name for name in names if (folder / name).is_dir()), None)


def list_files(folder: Path, split: str) -> tuple[list[str], np.ndarray[Any, Any], list[str]]:
    """List the images of a split, in the order of the records that ``hpcrun data build`` would write.

    Args:
        folder: Folder with one subfolder per split; the classes of all splits are those of ``train``, sorted by name.
        split: ``train`` or ``validation``.

    Returns:
        Paths relative to the folder of the split; labels from 0, int64 (n,); class names.

    Raises:
        HpcrunError: The split has no images, or has classes that the training split lacks.
    """
    split_path, train_path = split_folder(folder, split), split_folder(folder, "train")
    if split_path is None:
        raise HpcrunError(f"{folder} has no folder {split}")
    names = class_names(train_path or split_path)
    images = shuffle(list_images(split_path, names))
    labels = np.array([image.label - 1 for image in images], np.int64)
    printable_names = [os.fsencode(name).decode(errors="backslashreplace") for name in names]
    return [image.name for image in images], labels, printable_names
